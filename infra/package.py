"""The deployment package as `func azure functionapp publish` and azd make it.

    python -m infra.package package.zip

For pipelines that deploy one package to several environments, and go back to the one before. With
`.python_packages/lib/site-packages` in the folder the dependencies are in it, and Azure builds
nothing.
"""

from __future__ import annotations

import os
import sys
import zipfile
from pathlib import Path

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
                if root / name != archive and file != ".funcignore" and not ignore.match_file(name):
                    package.write(root / name, name)
                    names.append(name)
    return sorted(names)


if __name__ == "__main__":
    made = Path(sys.argv[1]).absolute()
    build(Path(__file__).parents[1], made)
