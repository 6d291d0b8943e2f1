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


def is_library_error(error: BaseException) -> bool:
    """Whether `error` is the CEL library's: an exception, or a Rust panic, which is no
    `Exception` so that it may pass by `except Exception`."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


__all__ = ["OptionalValue", "cel", "is_library_error", "stdlib"]
