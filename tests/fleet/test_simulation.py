"""A thousand machines, simulated: the sum is exact, whoever is late, dies or sends damage."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest
from house import ROOT


@pytest.mark.parametrize(("machines", "results"), [(1000, 1), (300, 10)])
def test_a_thousand_machines_are_added_in_time(machines: int, results: int) -> None:
    script = str(ROOT / "bench/fleet.py")
    done = subprocess.run(
        [sys.executable, script, "--machines", str(machines), "--results", str(results)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)  # the script compares the sum with what was sent
    assert found["answered"] + found["failed"] + found["late"] == machines
    assert found["failed"]
    assert found["late"]
    assert found["seconds per 1000 results"] <= 2
    assert found["MiB at most"] <= 200


def test_the_numbers_of_the_page_are_those_of_the_script() -> None:
    page = (ROOT / "docs/fleet.md").read_text()
    assert re.search(r"bench/fleet\.py --machines 1000", page)
