"""The pipelines: valid by GitHub's published schema, pinned, without stored secrets; and the files
and Pythons that they name exist."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests.wire.published_schemas import schema

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PINNED = re.compile(r"[\w.-]+/[\w./-]+@[0-9a-f]{40}")
CI = ROOT / ".github" / "workflows" / "ci.yml"
DEPLOY = ROOT / ".github" / "workflows" / "deploy-one.yml"


def faults(text: str) -> Iterator[str]:
    """Everything wrong with one workflow."""
    # YAML 1.1 reads the key `on` as true.
    flow: dict[Any, Any] = yaml.safe_load(text)
    flow = {("on" if key is True else key): value for key, value in flow.items()}
    validator = jsonschema.Draft7Validator(schema("github-workflow"))
    yield from (error.message for error in validator.iter_errors(flow))
    if flow.get("permissions") != {"contents": "read"}:
        yield "the token may do more than read, in every job"
    if flow.get("defaults") != {"run": {"shell": "bash"}}:
        yield "a failure in front of a pipe is hidden: only a named bash has pipefail"
    if re.search(r"\$\{\{[^}]*\bsecrets\b|^\s+secrets:", text, re.MULTILINE):
        yield "a stored secret"
    for name, job in flow["jobs"].items():
        if "uses" not in job and "timeout-minutes" not in job:
            yield f"{name}: no time limit"
        for step in (job, *job.get("steps", [])):
            uses = step.get("uses")
            if uses and uses.startswith("./"):
                if not (ROOT / uses).exists():
                    yield f"{name}: {uses} does not exist"
            elif uses and not PINNED.fullmatch(uses):
                yield f"{name}: {uses} is not pinned to a commit"
            kept = (step.get("with") or {}).get("persist-credentials") is not False
            if uses and uses.startswith("actions/checkout@") and kept:
                yield f"{name}: the token stays in the checkout"
            if "${{" in step.get("run", ""):
                yield f"{name}: an expression inside of a script can be injected into; use env"
    for script in re.findall(r"\.github/scripts/[\w-]+", text):
        if not os.access(ROOT / script, os.X_OK):
            yield f"{script} cannot be run"


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_is_sound(path: Path) -> None:
    assert list(faults(path.read_text("utf-8"))) == []


@pytest.mark.parametrize(
    ("path", "old", "new", "fault"),
    [
        (CI, "runs-on: ubuntu-latest", "run-on: ubuntu-latest", "not valid"),
        (CI, "@08c6903cd8c0fde910a37f88322edcfb5dd907a8", "@v5", "not pinned"),
        (CI, "persist-credentials: false", "persist-credentials: true", "stays in the checkout"),
        (CI, "contents: read", "contents: write", "more than read"),
        (CI, "timeout-minutes: 15", "", "no time limit"),
        (CI, "shell: bash", "shell: sh", "in front of a pipe"),
        (CI, "run: make check", "run: echo ${{ github.head_ref }}", "injected"),
        (DEPLOY, "vars.AZURE_CLIENT_ID", "secrets.AZURE_CLIENT_ID", "stored secret"),
        (DEPLOY, ".github/scripts/smoke", ".github/scripts/smokes", "cannot be run"),
    ],
)
def test_an_unsound_workflow_is_noticed(path: Path, old: str, new: str, fault: str) -> None:
    text = path.read_text("utf-8")
    assert old in text
    assert [one for one in faults(text.replace(old, new)) if fault in one]


def test_ci_tests_the_pythons_that_are_promised() -> None:
    jobs = yaml.safe_load(CI.read_text("utf-8"))["jobs"]
    local = (ROOT / ".ci" / "run").read_text("utf-8")
    promised = {
        re.search(rf"^{name}=(.*)$", local, re.MULTILINE)[1]  # type: ignore[index]
        for name in ("LOWEST", "DEPLOYED")
    }
    assert set(jobs["test"]["strategy"]["matrix"]["python"]) == promised


def test_deployment_goes_through_dev_and_an_approval() -> None:
    jobs = yaml.safe_load((DEPLOY.parent / "deploy.yml").read_text("utf-8"))["jobs"]
    assert jobs["prod"]["needs"] == "dev"
    assert [jobs[name]["with"]["size"] for name in ("dev", "prod")] == ["dev", "prod"]
    one = yaml.safe_load(DEPLOY.read_text("utf-8"))["jobs"]["deploy"]
    assert one["environment"] == "${{ inputs.size }}"  # whose reviewers approve
    names = [step.get("name") for step in one["steps"]]
    order = ["Infrastructure", "Deploy", "Smoke test", "Back to the package before"]
    assert [name for name in names if name in order] == order
    for size in ("dev", "prod"):
        assert (ROOT / "infra" / f"main.{size}.bicepparam").exists()


@pytest.mark.parametrize(
    ("file", "job", "words"),
    [
        ("ci.yml", "scan", "pip-audit --strict"),
        ("ci.yml", "scan", "detect-secrets-hook --baseline .secrets.baseline"),
        ("ci.yml", "scan", "zizmor"),
        ("ci.yml", "bicep", "bicep lint infra/main.bicep"),
        ("deploy.yml", "what-if", "az deployment sub what-if"),
        ("deploy-one.yml", "deploy", "az deployment sub create"),
        ("deploy-one.yml", "deploy", ".github/scripts/smoke"),
        ("deploy-one.yml", "deploy", "old/package.zip"),
    ],
)
def test_the_pipelines_scan_show_test_and_take_back(file: str, job: str, words: str) -> None:
    steps = yaml.safe_load((DEPLOY.parent / file).read_text("utf-8"))["jobs"][job]["steps"]
    assert [step for step in steps if words in step.get("run", "")]


def test_a_smoke_test_or_an_error_rate_takes_a_deployment_back() -> None:
    steps = yaml.safe_load(DEPLOY.read_text("utf-8"))["jobs"]["deploy"]["steps"]
    by_name = {step.get("name"): step for step in steps}
    names = list(by_name)
    back = by_name["Back to the package before"]
    assert back["if"] == "failure() && steps.deploy.outcome != 'skipped'"
    for reason in ("Smoke test", "Error rate of the first ten minutes"):
        assert names.index("Deploy") < names.index(reason) < names.index(back["name"])
        assert "continue-on-error" not in by_name[reason]
    assert back["run"].index("config-zip") < back["run"].index(".github/scripts/smoke")


def test_azure_is_entered_by_a_federated_token_only() -> None:
    for path in WORKFLOWS:
        for job in yaml.safe_load(path.read_text("utf-8"))["jobs"].values():
            logins = [
                step
                for step in job.get("steps", [])
                if step.get("uses", "").startswith("azure/login@")
            ]
            for step in logins:
                assert job["permissions"]["id-token"] == "write"
                assert step["with"].keys() == {"client-id", "tenant-id", "subscription-id"}


def test_the_guide_names_every_variable_of_the_pipelines() -> None:
    used = {
        name for path in WORKFLOWS for name in re.findall(r"vars\.(\w+)", path.read_text("utf-8"))
    }
    guide = (ROOT / "docs" / "azure.md").read_text("utf-8")
    assert used
    assert [name for name in sorted(used) if f"`{name}`" not in guide] == []


def test_the_known_secrets_are_where_the_baseline_says() -> None:
    """A line more above one, and the scan fails in every pipeline until the baseline knows it."""
    baseline = json.loads((ROOT / ".secrets.baseline").read_text("utf-8"))
    for name, found in baseline["results"].items():
        lines = (ROOT / name).read_text("utf-8").splitlines()
        for one in found:
            values = re.split(r'[;"]', lines[one["line_number"] - 1])
            hashes = [hashlib.sha1(value.encode()).hexdigest() for value in values]
            assert one["hashed_secret"] in hashes, (name, one["line_number"])


def program(name: str) -> str | None:
    """Where `name` is: beside the Python that runs the tests, or on the path."""
    return shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)


def lint(path: Path) -> str:
    """What actionlint says of a workflow, its shell scripts included."""
    found = program("actionlint")
    if found is None:
        pytest.skip("actionlint is not installed")
    done = subprocess.run(
        [found, "-no-color", "-shellcheck", program("shellcheck") or "", str(path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
        cwd=ROOT,
    )
    assert bool(done.stdout) == bool(done.returncode), done.stderr
    return done.stdout


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_actionlint_has_nothing_to_say(path: Path) -> None:
    assert lint(path) == ""


def test_actionlint_is_listened_to(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yml"
    wrong.write_text(CI.read_text("utf-8").replace("matrix.python", "matrix.pyton"), "utf-8")
    assert "pyton" in lint(wrong)
