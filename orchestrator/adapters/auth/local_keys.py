"""The key of `weft token`: made on first use, private, in the data folder.

For trying roles on one machine. Whoever can read the file can be anybody, so it is created for its
owner alone, and one that others can read is not used.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from orchestrator.adapters.auth.jwks import Key, matching
from orchestrator.domain.identity import ClaimRules, Issuer

ISSUER: Final = "weft-local"
AUDIENCE: Final = "weft"
FILE: Final = Path("auth") / "local-key.pem"
LOCAL: Final = Issuer(issuer=ISSUER, audiences=(AUDIENCE,), rules=ClaimRules())
MAX_FILE_BYTES: Final = 16 * 1024


class LocalKeyError(Exception):
    """The key file cannot be used; the message says what to do."""


def sign(folder: Path, claims: Mapping[str, Any], *, now_s: int, ttl_s: int) -> str:
    """A token with `claims`, signed with the key of the data folder, which is made if there is
    none. Raises `LocalKeyError`, `OSError`."""
    private = _private(folder / FILE)
    times = {"iat": now_s, "exp": now_s + ttl_s}
    payload = {**claims, **times, "iss": ISSUER, "aud": AUDIENCE}
    headers = {"kid": _kid(private.public_key())}
    return jwt.encode(payload, private, algorithm="ES256", headers=headers)


class LocalKeys:
    """The public half, read again when the file changes: it may be made while the platform runs."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        self._stamp: tuple[int, int, int] | None = None
        self._keys: tuple[Key, ...] = ()

    async def find(self, kid: str | None) -> Sequence[Key]:
        """See `Keys`. No keys if there is no file, or one that others could have read."""
        try:
            seen = self._path.stat()
            stamp = (seen.st_mtime_ns, seen.st_ino, seen.st_mode)
            if stamp != self._stamp:
                public = _read(self._path).public_key()
                self._keys, self._stamp = (Key(_kid(public), "ES256", public),), stamp
        except (OSError, LocalKeyError):
            self._keys, self._stamp = (), None
        return matching(self._keys, kid)


def _private(path: Path) -> ec.EllipticCurvePrivateKey:
    try:
        return _read(path)
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    made = ec.generate_private_key(ec.SECP256R1())
    text = made.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    # Written beside and linked into place: two that make it at once end with the same whole key.
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(text)
    try:
        os.link(beside, path)
    except FileExistsError:
        pass
    finally:
        beside.unlink()
    return _read(path)


def _read(path: Path) -> ec.EllipticCurvePrivateKey:
    with path.open("rb") as file:
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        if mode & 0o077:
            raise LocalKeyError(
                f"{path} can be read by others (mode {mode:03o}); delete it, or "
                "chmod 600 it if nobody has"
            )
        text = file.read(MAX_FILE_BYTES)
    try:
        key = serialization.load_pem_private_key(text, password=None)
    except (ValueError, TypeError) as error:
        raise LocalKeyError(f"{path} is no key in PEM; delete it to have a new one made") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.curve.name != "secp256r1":
        raise LocalKeyError(f"{path} is not an EC key on P-256; delete it to have a new one made")
    return key


def _kid(public: ec.EllipticCurvePublicKey) -> str:
    der = public.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return hashlib.sha256(der).hexdigest()[:16]
