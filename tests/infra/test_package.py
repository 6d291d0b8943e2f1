"""What is deployed is complete and nothing more: built as the tools build it, imported with nothing
but requirements.txt. A package that is only in the extras is there on every developer's machine,
and missing in Azure."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml

from infra import package
from orchestrator import bootstrap_code
from orchestrator.functions.app import compose
from orchestrator.functions.provider import EngineProvider
from tests.infra.environment import closure, environment, requirements

ROOT = Path(__file__).parents[2]
IMPORT = """
import importlib, json, pkgutil, sys
sys.path[:0] = sys.argv[1:]
import function_app
for name in ("orchestrator", "activities"):
    found = importlib.import_module(name)
    for module in pkgutil.walk_packages(found.__path__, name + "."):
        importlib.import_module(module.name)
print(json.dumps(sorted(one.get_function_name() for one in function_app.app.get_functions())))
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    archive = tmp_path_factory.mktemp("package") / "package.zip"
    names = package.build(ROOT, archive)
    folder = archive.parent / "app"
    with zipfile.ZipFile(archive) as opened:
        opened.extractall(folder)
    return folder, names


def run(app: Path, site: Path) -> subprocess.CompletedProcess[str]:
    """Import every module of `app` in a Python that sees its standard library, `site` and `app`."""
    return subprocess.run(
        [sys.executable, "-I", "-S", "-B", "-c", IMPORT, str(app), str(site)],
        env={},
        cwd=app,
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )


def test_the_package_runs_with_its_requirements_alone(
    built: tuple[Path, list[str]], tmp_path: Path
) -> None:
    app, _ = built
    wanted = requirements((app / "requirements.txt").read_text("utf-8"))
    environment(closure(wanted).values(), tmp_path / "site")
    done = run(app, tmp_path / "site")
    assert done.returncode == 0, done.stderr

    async def never() -> None:
        raise AssertionError

    code = bootstrap_code.load()
    provider = EngineProvider(never, learn=code.hub.learn)  # type: ignore[arg-type]
    composed = compose(provider, code.orchestrators).get_functions()
    assert json.loads(done.stdout) == sorted(one.get_function_name() for one in composed)


def test_a_forgotten_requirement_is_noticed(built: tuple[Path, list[str]], tmp_path: Path) -> None:
    app, _ = built
    wanted = requirements((app / "requirements.txt").read_text("utf-8"))
    rest = closure(one for one in wanted if one.name != "cronsim")
    environment(rest.values(), tmp_path / "site")
    done = run(app, tmp_path / "site")
    assert done.returncode != 0
    assert "No module named 'cronsim'" in done.stderr


def test_the_package_holds_the_app_and_nothing_else(built: tuple[Path, list[str]]) -> None:
    _, names = built
    assert {name.split("/")[0] for name in names} == {
        "LICENSE",
        "activities",
        "function_app.py",
        "host.json",
        "orchestrator",
        "requirements.txt",
    }
    assert "orchestrator/functions/docs_page.html" in names
    assert "activities/samples/orders.py" in names  # not the folder samples/
    assert not [name for name in names if name.startswith("orchestrator/local")]
    assert not [name for name in names if name.endswith((".pyc", ".md"))]


def test_secrets_and_state_of_a_developer_stay_behind(tmp_path: Path) -> None:
    left = ("local.settings.json", ".weft/store.db", ".venv-3.13/x.py", ".azure/dev/.env", ".git/x")
    for name in (*left, "host.json", "orchestrator/a.py", "tests/b.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x", "utf-8")
    shutil.copy(ROOT / ".funcignore", tmp_path)
    archive = tmp_path.parent / f"{tmp_path.name}.zip"
    assert package.build(tmp_path, archive) == ["host.json", "orchestrator/a.py"]


def test_azd_deploys_this_folder_to_the_function_app() -> None:
    project = yaml.safe_load((ROOT / "azure.yaml").read_text("utf-8"))
    assert project["services"] == {"api": {"project": ".", "language": "py", "host": "function"}}
    module = ROOT / project["infra"]["path"] / project["infra"]["module"]
    assert module.with_suffix(".bicep").exists()
    assert module.with_suffix(".bicepparam").exists()
