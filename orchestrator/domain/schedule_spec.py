"""What a user writes about a schedule, checked at once, and the way to its runnable form.

Every fault is told with its path, a code and a hint. Whether the workflow exists and takes the
input is asked by `engine/schedules.py`, which knows the catalog and the time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from itertools import islice, pairwise
from typing import Annotated, Any, Final, TypeAlias, cast
from zoneinfo import ZoneInfo

from pydantic import BeforeValidator, Field, ValidationError, WithJsonSchema
from pydantic_core import PydanticCustomError

from orchestrator.domain import jsonvalues, schedule_cron
from orchestrator.domain import tags as tag_rules
from orchestrator.domain.definition_types import Duration, Model, Name, fault
from orchestrator.domain.durations import format_duration
from orchestrator.domain.errors import ErrorDetail, InvalidError
from orchestrator.domain.faults import translate
from orchestrator.domain.jsontypes import Json
from orchestrator.domain.jsonvalues import child_path
from orchestrator.domain.nearest import Nearest
from orchestrator.domain.schedule import MAX_CATCH_UP, Every, Once, Overlap, Schedule, Ticks
from orchestrator.domain.templates import Template, TemplateError
from orchestrator.domain.topology import INLINE_PAYLOAD_BYTES

MIN_INTERVAL_MS: Final = 1_000
DEFAULT_GRACE_MS: Final = 120_000
"""Longer than a change of leaders takes, and than clocks differ."""
INPUT_NAMES: Final = frozenset({"schedule", "tick"})
LOOKED_AT: Final = 100  # ticks, for the shortest time between two

_LAST_YEAR: Final = 2900  # cron looks 50 years ahead; Python's calendar ends in 9999


def instant(text: str) -> int | None:
    """Epoch milliseconds of an ISO 8601 time with an offset; None for anything else, and for a year
    that cron cannot look ahead from."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    if moment.tzinfo is None or not 1970 < moment.year <= _LAST_YEAR:
        return None
    return schedule_cron.to_ms(moment)


def _instant(value: Any) -> int:
    found = instant(value) if isinstance(value, str) else None
    if found is None:
        raise fault(
            "BAD_TIME",
            "must be an ISO 8601 time with an offset",
            "such as 2027-01-31T09:00:00Z or 2027-01-31T09:00:00+01:00",
        )
    return found


def _misfire(value: Any) -> int:
    if value == "skip":
        return 0
    if value == "fireOnce":
        return 1
    if isinstance(value, Mapping):
        given = dict(cast("Mapping[str, Any]", value))
        count = given.pop("catchUp", None)
        if not given and type(count) is int and 1 <= count <= MAX_CATCH_UP:
            return count
    raise fault(
        "BAD_VALUE", f"must be skip, fireOnce or {{catchUp: 1 to {MAX_CATCH_UP}}}", "such as skip"
    )


def _described(**schema: Any) -> WithJsonSchema:
    return WithJsonSchema(schema)


Instant: TypeAlias = Annotated[
    int,
    BeforeValidator(_instant),
    _described(type="string", format="date-time", description="ISO 8601 with an offset."),
]
Misfire: TypeAlias = Annotated[
    int,
    BeforeValidator(_misfire),
    _described(
        oneOf=[
            {"type": "string", "enum": ["skip", "fireOnce"]},
            {
                "type": "object",
                "properties": {
                    "catchUp": {"type": "integer", "minimum": 1, "maximum": MAX_CATCH_UP}
                },
                "required": ["catchUp"],
                "additionalProperties": False,
            },
        ],
        description="What runs of the ticks that were missed: none, the last, the last so many.",
    ),
]


class ScheduleSpec(Model):
    """When a workflow is started. Exactly one of `cron`, `interval` and `at`."""

    name: Name
    description: Annotated[str, Field(max_length=1_000)] | None = None
    workflow: Name
    version: Annotated[int, Field(ge=1)] | None = None
    """Left out: the latest when it fires."""
    cron: str | None = None
    """Five fields (minute, hour, day of month, month, day of week) or an alias such as @daily."""
    interval: Duration | None = None
    """At least 1s, counted from `anchor`, else from `start`, else from the creation."""
    at: Instant | None = None
    """Once, at this time."""
    time_zone: str = "UTC"
    """IANA name; cron is read in it, and times are shown in it."""
    anchor: Instant | None = None
    start: Instant | None = None
    """No tick before this time."""
    end: Instant | None = None
    """No tick after this time."""
    misfire: Misfire | None = None
    """What runs of the ticks that were missed: none (skip, the default), the last, the last n."""
    misfire_grace: Duration | None = None
    """A tick seen later than this after it was due was missed; 2m if left out."""
    overlap: Overlap = "allow"
    """If the execution before still runs: start, drop the tick, wait for its end, or cancel it."""
    jitter: Duration | None = None
    """Each start is delayed by up to this, always the same for the same tick."""
    paused: bool | None = None
    input: Any = None
    """The execution's input; `${schedule.id}` and `${tick}` may be used."""
    tags: dict[str, str] = Field(default_factory=dict)


def parse(raw: Json, *, created_at: int) -> Schedule:
    """The schedule that `raw` describes. `created_at`: epoch ms, where intervals are counted from
    unless it says otherwise. Raises `InvalidError` (BAD_SCHEDULE) with every problem found."""
    try:
        spec = ScheduleSpec.model_validate(raw)
    except ValidationError as error:
        raise _invalid(translate(error, {}, Nearest(), ScheduleSpec)) from None
    problems: list[ErrorDetail] = []
    zone = _try(problems, "$.timeZone", lambda: schedule_cron.zone_of(spec.time_zone))
    ticks = _ticks(spec, zone or ZoneInfo("UTC"), created_at, problems)
    if spec.start is not None and spec.end is not None and spec.end < spec.start:
        problems.append(ErrorDetail("$.end", "`end` is before `start`", "BAD_RANGE"))
    if spec.anchor is not None and spec.interval is None:
        problems.append(ErrorDetail("$.anchor", "`anchor` is of `interval` only", "BAD_VALUE"))
    jitter = spec.jitter or 0
    if ticks is not None and jitter and jitter >= (gap := _shortest(ticks, created_at)):
        told = f"jitter must be shorter than the time between two ticks, {format_duration(gap)}"
        problems.append(ErrorDetail("$.jitter", told, "BAD_VALUE"))
    problems += tag_rules.problems(spec.tags)
    template = _input(spec.input, problems)
    if problems or ticks is None or zone is None or template is None:
        raise _invalid(problems)
    return Schedule(
        name=spec.name,
        workflow=spec.workflow,
        version=spec.version,
        ticks=ticks,
        zone=zone,
        start=spec.start,
        end=spec.end,
        catch_up=spec.misfire or 0,
        grace=spec.misfire_grace or DEFAULT_GRACE_MS,
        overlap=spec.overlap,
        jitter=jitter,
        input=template,
        tags=spec.tags,
    )


def _ticks(
    spec: ScheduleSpec, zone: ZoneInfo, created_at: int, problems: list[ErrorDetail]
) -> Ticks | None:
    given = [name for name in ("cron", "interval", "at") if getattr(spec, name) is not None]
    if len(given) != 1:
        told = (
            f"exactly one of cron, interval and at is needed, not {' and '.join(given) or 'none'}"
        )
        problems.append(ErrorDetail("$", told, "BAD_SCHEDULE", 'such as cron: "0 7 * * MON-FRI"'))
        return None
    if spec.cron is not None:
        expression = spec.cron
        return _try(problems, "$.cron", lambda: schedule_cron.parse(expression, zone))
    if spec.interval is not None:
        if spec.interval < MIN_INTERVAL_MS:
            problems.append(ErrorDetail("$.interval", "must be at least 1s", "BAD_VALUE"))
            return None
        anchor = spec.anchor if spec.anchor is not None else spec.start
        return Every(spec.interval, created_at if anchor is None else anchor)
    return Once(cast(int, spec.at))


def _try(problems: list[ErrorDetail], path: str, make: Callable[[], Any]) -> Any:
    try:
        return make()
    except PydanticCustomError as error:
        context = cast("dict[str, str]", error.context or {})
        detail = ErrorDetail(path, context["message"], context["code"], context["hint"])
        problems.append(detail)
        return None


def _shortest(ticks: Ticks, after: int) -> int:
    """The shortest time between two of the next ticks; a year for a single one."""
    some = list(islice(ticks.after(after), LOOKED_AT))
    return min((b - a for a, b in pairwise(some)), default=365 * 86_400_000)


def _input(value: Json, problems: list[ErrorDetail]) -> Template | None:
    try:
        size = len(jsonvalues.dumps(value))
        template = Template.compile(value)
    except jsonvalues.NotJson as error:
        path = "$.input" + error.path.removeprefix("$")
        problems.append(ErrorDetail(path, error.reason, "BAD_VALUE"))
        return None
    except TemplateError as error:
        problems += [
            ErrorDetail(f"$.input{path}", reason, "BAD_EXPRESSION")
            for path, _, reason in error.problems
        ]
        return None
    if size > INLINE_PAYLOAD_BYTES:
        told = (
            f"the input has {size:,} bytes of JSON, a schedule's may have {INLINE_PAYLOAD_BYTES:,}"
        )
        problems.append(ErrorDetail("$.input", told, "INPUT_TOO_LARGE"))
    known = ", ".join(sorted(INPUT_NAMES))
    for path, expression in template.expressions:
        problems += [
            ErrorDetail(
                child_path("$", "input") + path,
                f"`{name}` is not known in the input of a schedule, only {known}",
                "UNKNOWN_NAME",
            )
            for name in sorted(expression.names - INPUT_NAMES)
        ]
    return template


def _invalid(problems: list[ErrorDetail]) -> InvalidError:
    first = "; ".join(f"{one.field}: {one.message}" for one in problems[:3])
    return InvalidError(
        f"the schedule has {len(problems)} problem{'s' * (len(problems) != 1)}: {first}",
        code="BAD_SCHEDULE",
        details=problems,
    )
