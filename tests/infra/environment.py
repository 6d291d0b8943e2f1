"""An environment with nothing but requirements.txt, made of what is installed here."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def requirements(text: str) -> list[Requirement]:
    """The lines of a requirements.txt that count for this Python."""
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    found = [Requirement(line) for line in lines if line]
    return [one for one in found if one.marker is None or one.marker.evaluate()]


def closure(wanted: Iterable[Requirement]) -> dict[str, Distribution]:
    """The installed distributions that pip would install for `wanted`, by canonical name. Raises
    `AssertionError` where another version is installed than a pin asks for."""
    found: dict[str, Distribution] = {}
    asked: set[tuple[str, frozenset[str]]] = set()
    pending = list(wanted)
    while pending:
        requirement = pending.pop()
        name = canonicalize_name(requirement.name)
        key = (name, frozenset(requirement.extras))
        if key in asked:
            continue
        asked.add(key)
        found[name] = installed = distribution(name)
        assert requirement.specifier.contains(installed.version, prereleases=True), requirement
        for line in installed.requires or []:
            needed = Requirement(line)
            contexts = [{"extra": extra} for extra in ("", *requirement.extras)]
            if needed.marker is None or any(needed.marker.evaluate(one) for one in contexts):
                pending.append(needed)
    return found


def environment(distributions: Iterable[Distribution], folder: Path) -> None:
    """Makes `folder` a site-packages with the files of `distributions` and nothing else."""
    for one in distributions:
        for file in one.files or []:
            target = folder / file
            if ".." in file.parts or file.suffix == ".pyc" or target.exists():
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(file.locate())
