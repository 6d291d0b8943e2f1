"""A value to be planted, the forms that services give it back in, and the search for it."""

from __future__ import annotations

import base64
import html
import json
import quopri
from typing import Final
from urllib.parse import quote, quote_plus

PLANTED: Final = "s3cr3t-Ω/+="
UTF8: Final = PLANTED.encode()


def _forms() -> dict[str, str]:
    every = "".join(f"%{byte:02X}" for byte in UTF8)
    numbers = "".join(f"&#{ord(char)};" for char in PLANTED)
    forms = {
        "raw": PLANTED,
        "upper": PLANTED.upper(),
        "percent": quote(PLANTED),
        "percent all": quote(PLANTED, safe=""),
        "percent lower": quote(PLANTED, safe="").lower(),
        "percent twice": quote(quote(PLANTED, safe=""), safe=""),
        "percent every byte": every,
        "form": quote_plus(PLANTED),
        "json": json.dumps(PLANTED),
        "json in json": json.dumps(json.dumps(PLANTED)),
        "json of php": json.dumps(PLANTED).replace("/", "\\/"),
        "html": html.escape(PLANTED),
        "html numbers": numbers,
        "html hexadecimal": "".join(f"&#x{ord(char):X};" for char in PLANTED),
        "html twice": html.escape(numbers),
        "hexadecimal": UTF8.hex(),
        "hexadecimal upper": UTF8.hex().upper(),
        "hexadecimal with colons": UTF8.hex(":"),
        "python repr": repr(UTF8),
        "wrong charset": UTF8.decode("latin-1"),
        "charset lost": UTF8.decode("ascii", "replace"),
        "question marks": PLANTED.encode("ascii", "replace").decode(),
        "quoted printable": quopri.encodestring(UTF8).decode(),
        "base64 of utf-16": base64.b64encode(PLANTED.encode("utf-16-le")).decode(),
        "basic": base64.b64encode(b"user:" + UTF8).decode(),
        "basic twice": base64.b64encode(base64.b64encode(UTF8)).decode(),
        "base64 in lines": base64.encodebytes(b"x" * 52 + UTF8 + b"y" * 60).decode(),
    }
    for before in range(3):
        for after in range(3):
            around = b"x" * before + UTF8 + b"y" * after
            forms[f"base64 {before} {after}"] = base64.b64encode(around).decode()
            forms[f"base64 url {before} {after}"] = base64.urlsafe_b64encode(around).decode()
            forms[f"base64 percent {before} {after}"] = quote(base64.b64encode(around), safe="")
    return forms


FORMS: Final[dict[str, str]] = _forms()
"""Name -> `PLANTED` in that form."""

_BEGIN: Final = UTF8[:6]  # no form is without a trace of it
_TRACES: Final = tuple(
    trace.lower().encode()
    for trace in (
        _BEGIN.decode(),
        _BEGIN.hex(),
        _BEGIN.hex(":"),
        "".join(f"%{byte:02x}" for byte in _BEGIN),
        "".join(f"&#{byte};" for byte in _BEGIN),
        "".join(f"&#x{byte:x};" for byte in _BEGIN),
        base64.b64encode(PLANTED[:6].encode("utf-16-le")).decode()[:15],
        base64.b64encode(base64.b64encode(_BEGIN)).decode()[:10],
        *(base64.b64encode(b"x" * n + UTF8).decode()[(4 if n else 0) : 9] for n in range(3)),
    )
)


def found_in(data: bytes | str) -> list[str]:
    """Every trace of `PLANTED` in any of its forms, with what stands around it."""
    lower = (data.encode(errors="surrogatepass") if isinstance(data, str) else data).lower()
    lower = lower.replace(b"&amp;", b"&").replace(b"\\n", b"").replace(b"\n", b"")
    places = [lower.find(trace) for trace in _TRACES]
    return [repr(lower[max(0, at - 80) : at + 80]) for at in places if at >= 0]
