"""The outputs of a deployment as lines for a shell, under the names that `main.bicep` gives them.

    az deployment sub show --name weft-prod --query properties.outputs | python -m infra.outputs

Resource Manager does not keep the case of outputs' names: AZURE_RESOURCE_GROUP comes back as
azurE_RESOURCE_GROUP (Azure/bicep, issue 9360), and whoever reads it by its name gets nothing. azd
puts the names right by itself; this is for everybody else.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

TEMPLATE = Path(__file__).with_name("main.bicep")


def named(outputs: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """The values by their true names, in the order of the template. Raises `KeyError` if the
    deployment has not all of them: it was made by another template."""
    folded = {name.lower(): str(one["value"]) for name, one in outputs.items()}
    names = re.findall(r"^output (\w+) ", TEMPLATE.read_text("utf-8"), re.MULTILINE)
    return {name: folded[name.lower()] for name in names}


if __name__ == "__main__":
    for name, value in named(json.load(sys.stdin)).items():
        sys.stdout.write(f"{name}={shlex.quote(value)}\n")
