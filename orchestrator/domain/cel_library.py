"""The CEL library without its command line.

`import cel` imports the library's own command line tool too, and with it typer, rich and
prompt_toolkit: a fifth of a second at every start of every process, for nothing. So while it is
imported an empty module stands in for that tool; afterwards the tool can be imported as ever.
"""

from __future__ import annotations

import sys
from types import ModuleType

_TOOL = "cel.cli"

if "cel" in sys.modules:  # somebody else has paid already
    import cel
else:
    sys.modules[_TOOL] = ModuleType(_TOOL)
    try:
        import cel
    finally:
        del sys.modules[_TOOL]
    del cel.cli  # type: ignore[attr-defined]

stdlib = cel.stdlib
OptionalValue = cel.OptionalValue

__all__ = ["OptionalValue", "cel", "stdlib"]
