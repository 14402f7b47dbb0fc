"""The torture harness for 20 s."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from house import ROOT
from skips import requires_root

_MAIN = Path(__file__).parent / "__main__.py"
_SECONDS = 20
_PATHS = [str(ROOT), *(str(ROOT / "tests" / name) for name in ("", "support", "torture"))]


@requires_root
def test_disturbances_break_no_promise() -> None:
    done = subprocess.run(
        [sys.executable, str(_MAIN), "--seconds", str(_SECONDS)],
        env={**os.environ, "PYTHONPATH": ":".join(_PATHS)},
        capture_output=True,
        text=True,
        timeout=30 * _SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    times = [int(number) for number in re.findall(r"^\w+: (\d+) times", done.stdout, re.MULTILINE)]
    assert len(times) > 5
    assert all(times), done.stdout
