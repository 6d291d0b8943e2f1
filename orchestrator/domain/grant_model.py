"""A tenant's stored grants, as they are written: who gets which scopes, where and when."""

from __future__ import annotations

import re
from typing import Annotated, Final

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    field_validator,
    model_validator,
)
from pydantic.alias_generators import to_camel

from orchestrator.domain.authz import ROLES, Grant, Principal, Scope

MAX_GRANTS: Final = 500  # of one tenant: all are read at once, and held against each request
MAX_NAMES: Final = 100
EVERYBODY: Final = "*"
_PATTERN: Final = re.compile(r"[a-z0-9*-]{1,63}")


def _line(text: str) -> str:
    if not text.isprintable() or text != text.strip():
        raise ValueError("only printable characters, and no spaces at the ends")
    return text


Name = Annotated[str, Field(min_length=1, max_length=256), AfterValidator(_line)]
Names = Annotated[list[Name], Field(max_length=MAX_NAMES)]


class GrantModel(BaseModel):
    """Scopes for people and programs of this tenant: for all of it, or for what `workflows`,
    `tags` and `own` say, all of which must hold."""

    model_config = ConfigDict(
        title="Grant",
        alias_generator=to_camel,
        populate_by_name=True,
        extra="forbid",
        frozen=True,
    )

    subjects: Names = Field(default_factory=list, description="Subjects of tokens; `*`: everybody")
    groups: Names = Field(default_factory=list, description="Values of the groups' claim")
    role: str | None = Field(None, description=f"One of {', '.join(ROLES)}")
    scopes: list[Scope] = Field(default_factory=list, max_length=len(Scope))
    workflows: Names = Field(
        default_factory=list, description="Names, `*` for any characters; left out: all workflows"
    )
    tags: dict[Name, str] = Field(
        default_factory=dict, description="Only executions with all of these", max_length=20
    )
    own: bool = Field(False, description="Only executions that the principal started")
    not_before: AwareDatetime | None = None
    not_after: AwareDatetime | None = None

    @field_validator("role")
    @classmethod
    def _known(cls, value: str | None) -> str | None:
        if value is not None and value not in ROLES:
            raise ValueError(f"no such role; known: {', '.join(ROLES)}")
        return value

    @field_validator("workflows")
    @classmethod
    def _patterns(cls, value: list[str]) -> list[str]:
        for pattern in value:
            if not _PATTERN.fullmatch(pattern):
                raise ValueError("a pattern has 1 to 63 of a-z, 0-9, - and *")
        return value

    @model_validator(mode="after")
    def _whole(self) -> GrantModel:
        if not self.subjects and not self.groups:
            raise ValueError("name `subjects` or `groups`, or nobody gets it")
        if (self.role is None) == (not self.scopes):
            raise ValueError("name either a `role` or `scopes`")
        if self.not_before and self.not_after and self.not_before >= self.not_after:
            raise ValueError("`notBefore` must be before `notAfter`")
        return self

    def is_for(self, principal: Principal) -> bool:
        """Whether it is granted to `principal`."""
        named = EVERYBODY in self.subjects or principal.subject in self.subjects
        return named or not principal.groups.isdisjoint(self.groups)

    def grant(self, tenant: str) -> Grant:
        """It as the decision reads it."""
        return Grant(
            tenant=tenant,
            scopes=frozenset(self.scopes) if self.role is None else ROLES[self.role],
            workflows=tuple(self.workflows),
            tags=tuple(self.tags.items()),
            own=self.own,
            not_before=None if self.not_before is None else _ms(self.not_before),
            not_after=None if self.not_after is None else _ms(self.not_after),
        )


def _ms(moment: AwareDatetime) -> int:
    return round(moment.timestamp() * 1000)


class GrantsModel(BaseModel):
    """All grants of a tenant beside those that tokens carry."""

    model_config = ConfigDict(title="Grants", extra="forbid", frozen=True)

    grants: list[GrantModel] = Field(max_length=MAX_GRANTS)
