"""The torture harness, each scenario twice, at moments of the day's own.

``make torture`` takes as long as is wanted; here each way to disturb is tried.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

from house import ROOT
from skips import requires_root

_MAIN = Path(__file__).parent / "__main__.py"
_TIMES = 2
_SEED = int(time.time()) // 86400
_PATHS = [str(ROOT), *(str(ROOT / "tests" / name) for name in ("", "support", "torture"))]


@requires_root
def test_disturbances_break_no_promise() -> None:
    done = subprocess.run(
        [sys.executable, str(_MAIN), "--times", str(_TIMES), "--seed", str(_SEED)],
        env={**os.environ, "PYTHONPATH": ":".join(_PATHS)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    times = [int(number) for number in re.findall(r"^\w+: (\d+) times", done.stdout, re.MULTILINE)]
    assert len(times) > 5
    assert set(times) == {_TIMES}, done.stdout
