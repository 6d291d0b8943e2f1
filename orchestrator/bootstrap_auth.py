"""Settings -> who may say who asks. Kept apart, like the Azure half of the composition root."""

from __future__ import annotations

from orchestrator.adapters.auth.front import Front
from orchestrator.adapters.auth.jwks import RemoteKeys
from orchestrator.adapters.auth.local_keys import LOCAL, LocalKeys
from orchestrator.adapters.auth.tokens import TokenVerifier, Trusted
from orchestrator.domain.identity import ClaimRules
from orchestrator.ports import Clock
from orchestrator.settings import Settings


def open_front(settings: Settings, *, clock: Clock) -> Front:
    """The authenticator that the settings describe. Fetches nothing yet."""
    remote = tuple(RemoteKeys(issuer, clock=clock) for issuer in settings.auth_issuers)
    trusted = [
        Trusted(issuer, keys) for issuer, keys in zip(settings.auth_issuers, remote, strict=True)
    ]
    if settings.auth_local or settings.auth_development:
        trusted.append(Trusted(LOCAL, LocalKeys(settings.data_dir)))
    return Front(
        TokenVerifier(trusted, clock=clock) if trusted else None,
        easy=(settings.auth_easy_claims or ClaimRules()) if settings.auth_easy else None,
        development=settings.auth_development,
        remote=remote,
    )
