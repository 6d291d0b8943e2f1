"""The pipeline that deploys, run: its scripts against stand-ins for `az`, `gh` and `weft`.

That a rollback is there says nothing about whether it happens. So here the scripts are taken out of
the workflow and run, and the ways in which a job ends without one are ruled out.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.infra.bicep import deployment
from tests.infra.test_bicep import ENVIRONMENT
from tests.infra.test_workflows import DEPLOY, ROOT

JOB: dict[str, Any] = yaml.safe_load(DEPLOY.read_text("utf-8"))["jobs"]["deploy"]
STEPS: list[dict[str, Any]] = JOB["steps"]
NAMES = [step.get("name") for step in STEPS]
CALLS = re.compile(r"\baz \w|\.github/scripts/")
PERSON = {"AZURE_PRINCIPAL_ID"}
"""What a parameter file reads for people; a pipeline gives nobody the app's roles."""

AZ = """
echo "az $*" >>"$LOG"
case $* in
*"deployment sub create"*) cat "$ANSWER" ;;
*get-access-token*) echo token ;;
*"/query "*) cat "$ANSWER" ;;
esac
"""
GH = """
echo "gh $*" >>"$LOG"
case $* in
"run list "*--event\\ push*) echo "$LAST" ;;
"run list "*) echo 666 ;; # somebody's pull request
"run download "*) [ -n "$KEPT" ] && mkdir old && echo zip >old/package.zip ;;
esac
"""
WEFT = """
echo "weft $*" >>"$LOG"
[ "$(grep -c '^weft' "$LOG")" -gt "$FAILING" ]
"""


class Machine:
    """A folder in which steps run, and what they called."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "calls.log"
        self.answer = folder / "answer.json"
        self.log.touch()
        for name in (".github", "infra"):
            (folder / name).symlink_to(ROOT / name)
        tools = folder / "bin"
        tools.mkdir()
        scripts = {
            "python": f'exec {sys.executable} "$@"',
            "az": AZ,
            "gh": GH,
            "weft": WEFT,
            "curl": "",
            "sleep": "",
        }
        for name, script in scripts.items():
            (tools / name).write_text(f"#!/usr/bin/env bash\n{script}", "utf-8")
            (tools / name).chmod(0o755)

    def run(self, name: str, **env: str) -> subprocess.CompletedProcess[str]:
        """One step by its name, as GitHub runs it with `shell: bash`."""
        script = self.folder / "step.sh"
        script.write_text(STEPS[NAMES.index(name)]["run"], "utf-8")
        given = {"LAST": "41", "KEPT": "1", "FAILING": "0", "URL": "https://x", **env}
        return subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)],
            cwd=self.folder,
            env={
                "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
                "LOG": str(self.log),
                "ANSWER": str(self.answer),
                **given,
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=50,
        )

    @property
    def calls(self) -> str:
        return self.log.read_text("utf-8")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def written_by_arm(outputs: dict[str, str]) -> str:
    """Outputs as Resource Manager gives them back: leading capitals become small, but for the last
    before something else."""

    def small(name: str) -> str:
        return re.sub(r"^[A-Z]+(?=[A-Z])|^[A-Z]", lambda one: one[0].lower(), name)

    return json.dumps({small(name): {"value": value} for name, value in outputs.items()})


def test_the_outputs_reach_the_steps_although_arm_changes_their_names(machine: Machine) -> None:
    outputs = deployment(ROOT / "infra", "main.prod.bicepparam", ENVIRONMENT).outputs
    machine.answer.write_text(written_by_arm(outputs), "utf-8")
    assert "azurE_RESOURCE_GROUP" in machine.answer.read_text("utf-8")
    said = machine.folder / "output"
    env = {"SIZE": "prod", "AZURE_LOCATION": "westeurope", "GITHUB_OUTPUT": str(said)}
    done = machine.run("Infrastructure", **env)
    assert done.returncode == 0, done.stderr
    found = dict(line.split("=", 1) for line in said.read_text("utf-8").splitlines())
    assert found == {
        "group": outputs["AZURE_RESOURCE_GROUP"],
        "app": outputs["AZURE_FUNCTION_NAME"],
        "url": outputs["SERVICE_API_URI"],
        "workspace": outputs["LOG_ANALYTICS_WORKSPACE_ID"],
    }


def test_a_deployment_without_an_output_fails_the_step(machine: Machine) -> None:
    machine.answer.write_text(json.dumps({"azurE_LOCATION": {"value": "westeurope"}}), "utf-8")
    env = {"SIZE": "prod", "AZURE_LOCATION": "westeurope", "GITHUB_OUTPUT": "/dev/null"}
    assert machine.run("Infrastructure", **env).returncode != 0


def test_going_back_deploys_the_last_package_and_tests_it(machine: Machine) -> None:
    assert machine.run("The package that ran before").returncode == 0
    done = machine.run("Back to the package before", GROUP="g", APP="a")
    assert done.returncode == 0, done.stderr
    deployed = "az functionapp deployment source config-zip --resource-group g --name a"
    assert f"{deployed} --src old/package.zip" in machine.calls
    assert machine.calls.count("weft smoke --url https://x") == 3
    assert machine.calls.index(deployed) < machine.calls.index("weft smoke")


def test_a_package_of_a_pull_request_is_never_gone_back_to(machine: Machine) -> None:
    """A fork's branch may be called main, and its run may upload any package."""
    machine.run("The package that ran before")
    assert "gh run download 41" in machine.calls
    assert "666" not in machine.calls


@pytest.mark.parametrize("lost", [{"LAST": ""}, {"KEPT": ""}], ids=["first", "expired"])
def test_without_an_older_package_going_back_fails_aloud(
    lost: dict[str, str], machine: Machine
) -> None:
    assert machine.run("The package that ran before", **lost).returncode == 0
    done = machine.run("Back to the package before", GROUP="g", APP="a")
    assert done.returncode != 0
    assert "::error::No package to go back to." in done.stdout
    assert "config-zip" not in machine.calls


def test_the_smoke_test_must_pass_three_times_in_a_row(machine: Machine) -> None:
    done = machine.run("Smoke test", FAILING="2", AUTH_AUDIENCE="api://weft")
    assert done.returncode == 0, done.stderr
    assert machine.calls.count("weft smoke") == 5
    assert "az account get-access-token --resource api://weft" in machine.calls


def test_a_smoke_test_that_never_passes_fails_the_step(machine: Machine) -> None:
    assert machine.run("Smoke test", FAILING="1000").returncode != 0


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
@pytest.mark.parametrize(
    ("answer", "good"),
    [
        ({"tables": [{"rows": [[0, 0]]}]}, True),
        ({"tables": [{"rows": [[19, 19]]}]}, True),  # too few to tell
        ({"tables": [{"rows": [[100, 1]]}]}, True),
        ({"tables": [{"rows": [["100", "2"]]}]}, False),
        ({"tables": [{"rows": []}]}, False),
        ({"error": {"message": "no such workspace"}}, False),
    ],
)
def test_the_error_rate_decides(answer: Any, good: bool, machine: Machine) -> None:
    machine.answer.write_text(json.dumps(answer), "utf-8")
    name = "Error rate of the first ten minutes"
    done = machine.run(name, WORKSPACE="w", SINCE="2027-01-31T09:55:00Z")
    assert (done.returncode == 0) is good, done.stderr
    assert "https://api.loganalytics.io/v1/workspaces/w/query" in machine.calls
    assert "datetime(2027-01-31T09:55:00Z)" in machine.calls


def test_a_step_that_hangs_fails_before_the_job_is_cancelled() -> None:
    """`failure()` is false in a job that ran out of time: then nothing would be taken back."""
    limits = [step["timeout-minutes"] for step in STEPS if CALLS.search(step.get("run", ""))]
    waits = [
        int(one) / 60 for step in STEPS for one in re.findall(r"^sleep (\d+)", step.get("run", ""))
    ]
    assert len(limits) == 5
    assert sum(limits) + sum(waits) + 5 < JOB["timeout-minutes"]


def test_each_part_signs_in_afresh() -> None:
    """GitHub's token for Azure is good for minutes, and each service asks for it once."""
    for before, step in itertools.pairwise(STEPS):
        if CALLS.search(step.get("run", "")):
            assert before["uses"].startswith("azure/login@"), step["name"]
            assert before.get("if") == step.get("if"), step["name"]


@pytest.mark.parametrize("size", ["dev", "prod"])
def test_the_pipeline_sets_what_the_parameter_files_read(size: str) -> None:
    """What it forgets gets its default again with each deployment, whatever it was before."""
    text = (ROOT / "infra" / f"main.{size}.bicepparam").read_text("utf-8")
    read = set(re.findall(r"readEnvironmentVariable\('(\w+)'", text)) - PERSON
    plan = yaml.safe_load((DEPLOY.parent / "deploy.yml").read_text("utf-8"))["jobs"]["what-if"]
    for steps, name in ((STEPS, "Infrastructure"), (plan["steps"], "What would change")):
        (step,) = [one for one in steps if one.get("name") == name]
        assert read - step["env"].keys() == set()
