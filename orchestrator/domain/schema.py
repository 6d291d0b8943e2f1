"""The JSON Schema of a definition, for editors: completion and marks while typing YAML.

It says what single values may be. Edges, cycles and expressions are for `validate`.
"""

from __future__ import annotations

from typing import Any

from pydantic.json_schema import GenerateJsonSchema

from orchestrator.domain.definition import Definition


class _Generator(GenerateJsonSchema):
    """Without a title on every field: editors show it above the description, and it says nothing
    that the key does not."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def definition_schema() -> dict[str, Any]:
    """A JSON Schema (draft 2020-12) of a definition with `tasks` as a mapping."""
    schema = Definition.model_json_schema(by_alias=True, schema_generator=_Generator)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": "Weft workflow definition",
    }
