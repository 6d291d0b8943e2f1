"""Use cases: plain async functions that take the `Engine` (all ports) and a request or message.

`submit` stores an execution; `orchestrate` decides; `execute` runs one attempt; `relay` sends what
commits left in the outbox; `sweep` finds what was lost; `catalog` keeps definitions; `inspect`
answers questions; `verify` proves that history and state agree. `docs/modules.md` lists every
module, sorted by room.
"""
