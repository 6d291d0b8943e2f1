"""The deployment package as `func azure functionapp publish` and azd make it, and an environment
with nothing but requirements.txt to import it in."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterable
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from pathspec import GitIgnoreSpec


def build(root: Path, archive: Path) -> list[str]:
    """Zips `root` without what `.funcignore` names; returns the names inside, sorted."""
    ignore = GitIgnoreSpec.from_lines((root / ".funcignore").read_text("utf-8").splitlines())
    names: list[str] = []
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as package:
        for folder, folders, files in os.walk(root):
            here = Path(folder).relative_to(root)
            folders[:] = [
                one for one in folders if not ignore.match_file(f"{(here / one).as_posix()}/")
            ]
            for file in files:
                name = (here / file).as_posix()
                if file != ".funcignore" and not ignore.match_file(name):
                    package.write(root / name, name)
                    names.append(name)
    return sorted(names)


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
