"""What Bicep's linter would say of one file, for machines without it: the usual rules."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tree_sitter import Node

from tests.infra.bicep import named, parse, text_of, walk

ENVIRONMENT_URLS: Final = (
    "management.azure.com",
    "management.core.windows.net",
    "database.windows.net",
    "core.windows.net",
    "login.microsoftonline.com",
    "graph.windows.net",
    "vault.azure.net",
    "api.loganalytics.io",
)
"""Differ between Azure's clouds; `environment()` knows them."""
PREVIEW: Final = frozenset({"Microsoft.Insights/diagnosticSettings"})
"""Types of which only preview versions have what everybody uses."""
OLDEST: Final = "2024-11-30"
"""Two years before the versions were compared with what there was (on 30 November 2026)."""
NEWEST: Final = {
    "Microsoft.Authorization/roleAssignments": "2022-04-01",
    "Microsoft.Consumption/budgets": "2024-08-01",
    "Microsoft.Insights/actionGroups": "2023-01-01",
    "Microsoft.Insights/components": "2020-02-02",
    "Microsoft.Insights/workbooks": "2023-06-01",
    "Microsoft.Network/privateDnsZones": "2024-06-01",
    "Microsoft.Network/privateDnsZones/virtualNetworkLinks": "2024-06-01",
}
"""Older ones that had no stable successor on that day."""
DECLARING: Final = {
    "parameter_declaration": "parameter",
    "variable_declaration": "variable",
    "resource_declaration": "resource",
    "module_declaration": "module",
}


def _uses(root: Node) -> set[str]:
    """Names that are read somewhere, declarations and property keys left out."""
    used: set[str] = set()
    for node in walk(root):
        if node.type != "identifier" or node.parent is None:
            continue
        parent = node.parent
        declares = parent.type in DECLARING or parent.type == "output_declaration"
        if declares and named(parent)[0].id == node.id:
            continue
        if parent.type == "object_property" and named(parent)[0].id == node.id:
            continue
        used.add(text_of(node))
    return used


def faults(path: Path) -> Iterator[str]:
    """Everything wrong with the file as such; what it deploys is not looked at."""
    source = path.read_text("utf-8")
    root = parse(source)
    used = _uses(root)
    for node in walk(root):
        if node.type in DECLARING:
            name = text_of(named(node)[0])
            existing = any(child.type == "existing" for child in node.children)
            idle = node.type in ("parameter_declaration", "variable_declaration") or existing
            if idle and name not in used:
                yield f"{DECLARING[node.type]} {name} is unused"
            if node.type == "resource_declaration":
                yield from _version_faults(text_of(named(node)[1]).strip("'"))
        if node.type == "string_content":
            for host in ENVIRONMENT_URLS:
                if host in text_of(node):
                    yield f"{host} is written out; use environment()"
        if node.type == "object_property" and re.fullmatch(
            r"'[A-Za-z_]\w*'", text_of(named(node)[0])
        ):
            yield f"{text_of(named(node)[0])} needs no quotes"
    if not source.startswith("//"):
        yield "no comment says what the file is for"


def _version_faults(kind: str) -> Iterator[str]:
    name, _, version = kind.partition("@")
    if version.endswith("-preview") and name not in PREVIEW:
        yield f"{kind}: a preview version"
    if version and version[:10] < OLDEST and name not in PREVIEW and NEWEST.get(name) != version:
        yield f"{kind}: an old version"
