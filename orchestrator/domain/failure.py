"""Why a task or an execution failed, as it is stored and shown. Bounded: at most 16 KiB."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from orchestrator.domain.topology import MAX_ERROR_BYTES

MAX_CAUSES: Final = 8
TRUNCATION_MARK: Final = "… [truncated]"


class FailureType:
    """Names of the failures that Weft itself produces (`retryable`/`nonRetryable` may name them).
    A failure raised by an activity carries the exception's class name instead."""

    TIMEOUT: Final = "TIMEOUT"
    DEADLINE_EXCEEDED: Final = "DEADLINE_EXCEEDED"
    HEARTBEAT_TIMEOUT: Final = "HEARTBEAT_TIMEOUT"
    LEASE_EXPIRED: Final = "LEASE_EXPIRED"
    EXPRESSION: Final = "EXPRESSION_FAILED"
    OUTPUT_NOT_JSON: Final = "OUTPUT_NOT_JSON"
    PAYLOAD_TOO_LARGE: Final = "PAYLOAD_TOO_LARGE"
    INPUT_INVALID: Final = "INPUT_INVALID"
    OUTPUT_INVALID: Final = "OUTPUT_INVALID"
    UNKNOWN_ACTIVITY: Final = "UNKNOWN_ACTIVITY"
    MAP_ITEM_FAILED: Final = "MAP_ITEM_FAILED"
    MAP_ITEMS_INVALID: Final = "MAP_ITEMS_INVALID"
    WAIT_INVALID: Final = "WAIT_INVALID"
    EXECUTION_TIMEOUT: Final = "EXECUTION_TIMEOUT"
    SIGNAL_TIMEOUT: Final = "SIGNAL_TIMEOUT"
    EXITED: Final = "ACTIVITY_EXITED"
    PUT_OFF: Final = "PUT_OFF"  # of an attempt that does not count
    CHILD_FAILED: Final = "CHILD_FAILED"
    CHILD_CANCELLED: Final = "CHILD_CANCELLED"
    CHILD_NOT_FOUND: Final = "CHILD_NOT_FOUND"
    CHILD_TOO_DEEP: Final = "CHILD_TOO_DEEP"
    ORCHESTRATION_FAILED: Final = "ORCHESTRATION_FAILED"
    ORCHESTRATION_TERMINATED: Final = "ORCHESTRATION_TERMINATED"
    ORCHESTRATION_NOT_FOUND: Final = "ORCHESTRATION_NOT_FOUND"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A failure and its chain of causes, outermost first. Text is safe to store (no lone
    surrogates) and bounded by `bounded()`."""

    type: str
    message: str
    retryable: bool = True
    field: str = ""  # where in the definition, e.g. `$.tasks.pack.items`
    expression: str = ""  # the expression's source, if one failed
    retry_after_ms: int | None = None  # told by the dependency
    causes: tuple[Failure, ...] = ()

    def to_doc(self) -> dict[str, Any]:
        """The stored and shown form; empty fields are left out."""
        doc: dict[str, Any] = {"type": self.type, "message": self.message}
        if not self.retryable:
            doc["retryable"] = False
        if self.field:
            doc["field"] = self.field
        if self.expression:
            doc["expression"] = self.expression
        if self.retry_after_ms is not None:
            doc["retryAfterMs"] = self.retry_after_ms
        if self.causes:
            doc["causes"] = [cause.to_doc() for cause in self.causes]
        return doc

    @staticmethod
    def from_doc(doc: dict[str, Any]) -> Failure:
        """Inverse of `to_doc`."""
        return Failure(
            type=doc["type"],
            message=doc["message"],
            retryable=doc.get("retryable", True),
            field=doc.get("field", ""),
            expression=doc.get("expression", ""),
            retry_after_ms=doc.get("retryAfterMs"),
            causes=tuple(Failure.from_doc(cause) for cause in doc.get("causes", ())),
        )

    def bounded(self, limit: int = MAX_ERROR_BYTES) -> Failure:
        """The same failure, cut so that all its texts together need at most `limit` bytes of
        UTF-8, and with at most `MAX_CAUSES` causes, flattened to one level. Lone surrogates become
        U+FFFD: they cannot be stored as UTF-8."""
        chain = [self, *_flatten(self.causes)][: MAX_CAUSES + 1]
        share = limit // (len(chain) + 1)
        cut = [
            Failure(
                type=_cut(link.type, 256),
                message=_cut(link.message, max(64, share - 1024)),
                retryable=link.retryable,
                field=_cut(link.field, 256),
                expression=_cut(link.expression, 512),
                retry_after_ms=link.retry_after_ms,
            )
            for link in chain
        ]
        head, causes = cut[0], tuple(cut[1:])
        return Failure(
            type=head.type,
            message=head.message,
            retryable=head.retryable,
            field=head.field,
            expression=head.expression,
            retry_after_ms=head.retry_after_ms,
            causes=causes,
        )


def _flatten(causes: tuple[Failure, ...]) -> list[Failure]:
    flat: list[Failure] = []
    stack = list(reversed(causes))
    while stack and len(flat) < MAX_CAUSES:
        cause = stack.pop()
        flat.append(cause)
        stack.extend(reversed(cause.causes))
    return flat


def scrub(text: str) -> str:
    """`text` with every lone surrogate replaced by U+FFFD (pairs are joined), so that it can be
    stored as UTF-8."""
    return text.encode("utf-16", errors="surrogatepass").decode("utf-16", errors="replace")


def _cut(text: str, limit: int) -> str:
    """At most `limit` bytes of UTF-8, the mark included; lone surrogates replaced."""
    clean = scrub(text[: limit + 1])
    data = clean.encode()
    if len(text) <= limit and len(data) <= limit:
        return clean
    keep = limit - len(TRUNCATION_MARK.encode())
    return data[:keep].decode(errors="ignore") + TRUNCATION_MARK
