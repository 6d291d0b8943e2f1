"""What an attempt knows that others may not read: its secrets, and sensitive parts of its input.

Its failure, progress and log records are masked for both. Its output is masked for secrets only:
sensitive data is stored as it is, and masked where it is shown. An attempt that fails makes its
secrets doubtful: the next one reads them again. If a secret has changed since, the failure is worth
another attempt, whatever the called service said.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from orchestrator.domain.expressions import Template
from orchestrator.domain.failure import Failure
from orchestrator.domain.jsontypes import Json
from orchestrator.domain.redaction import MASK, NOTHING, Redactor
from orchestrator.domain.sensitive import NONE, Marks, texts
from orchestrator.engine.claims import Claim
from orchestrator.engine.core import Engine
from orchestrator.engine.secret_book import SecretBook
from orchestrator.engine.sensitive import Flows
from orchestrator.ports import SecretNotFound, StoreError


@dataclass(slots=True)
class Confidential:
    """The secrets of one attempt, by name, and what takes them out of anything."""

    secrets: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    redactor: Redactor = NOTHING
    """Of what is stored."""
    texts: Redactor = NOTHING
    """Of what is told: failures, progress, log records."""
    marks: Marks = NONE
    """Which parts of the attempt's input are sensitive."""

    async def read(self, engine: Engine, tenant: str, template: Template | None) -> None:
        """Those that `template` names. Raises `SecretNotFound` and what the port raises."""
        if template is None or not template.secrets:
            return
        book = engine.part(SecretBook)
        self.secrets = {name: await book.get(tenant, name) for name in sorted(template.secrets)}
        self.redactor = self.texts = Redactor(self.secrets.values())

    def given(self, engine: Engine, claim: Claim, value: Json) -> None:
        """Its input, before it is used."""
        flow = engine.part(Flows).of(claim.aggregate)
        if flow:
            self.marks = flow.given(claim.doc["task"], item=claim.item is not None)
            plain = set(texts(self.marks, value))
            self.texts = Redactor(self.secrets.values(), plain=plain)

    async def judged(self, engine: Engine, tenant: str, failure: Failure) -> Failure:
        """The failure as it may be kept. Never raises."""
        failure = self.texts.failure(failure)
        if await self._changed(engine, tenant) and not failure.retryable:
            message = f"{failure.message} (a secret has changed since it was read: tried again)"
            return replace(failure, retryable=True, message=message)
        return failure

    async def _changed(self, engine: Engine, tenant: str) -> bool:
        book = engine.part(SecretBook)
        doubtful = [name for name in self.secrets if book.doubt(tenant, name)]
        try:
            return any([await book.get(tenant, n) != self.secrets[n] for n in doubtful])
        except (SecretNotFound, StoreError, OSError):
            return False


def filled(edited: Json, shown: Json, real: Json) -> Json:
    """An edited input with the secrets back in their places: what was left as it was `shown`,
    `MASK` in it, is what it is in `real`."""
    return _merged(edited, shown, real, [])


def strays(edited: Json, shown: Json) -> list[str]:
    """Texts of an edited input that hold a `MASK` which was not shown there: nobody could tell
    which secret is meant. Paths."""
    found: list[str] = []
    _merged(edited, shown, shown, found)
    return found


def _merged(edited: Json, shown: Json, real: Json, found: list[str], path: str = "") -> Json:
    if isinstance(edited, str) and MASK in edited:
        if edited == shown:
            return real
        found.append(path)
    elif isinstance(edited, dict):
        below = partial(_field, shown, real)
        return {k: _merged(v, *below(k), found, f"{path}.{k}") for k, v in edited.items()}
    elif isinstance(edited, list):
        below = partial(_item, shown, real)
        return [_merged(v, *below(i), found, f"{path}[{i}]") for i, v in enumerate(edited)]
    return edited


def _field(shown: Json, real: Json, key: str) -> tuple[Json, Json]:
    if isinstance(shown, dict) and isinstance(real, dict):
        return shown.get(key), real.get(key)
    return None, None


def _item(shown: Json, real: Json, at: int) -> tuple[Json, Json]:
    if isinstance(shown, list) and isinstance(real, list) and at < min(len(shown), len(real)):
        return shown[at], real[at]
    return None, None
