"""The pure core: no I/O, no clock, no random. Everything here can be tested with plain values.

`docs/modules.md` lists every module, sorted by room.
"""
