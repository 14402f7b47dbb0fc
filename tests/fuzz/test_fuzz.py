"""The fuzzer for 10 s, with mutants of the day's own, and every input that it has found."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

from house import ROOT

_HERE = Path(__file__).parent
_CORPUS = _HERE.parent / "corpus"
_SECONDS = 10
_SEED = int(time.time()) // 86400
_PATHS = [str(ROOT), *(str(ROOT / "tests" / name) for name in ("", "support", "live", "fuzz"))]


def _fuzz(*words: object, timeout: float) -> subprocess.CompletedProcess[str]:
    # In a process of its own: its memory is limited, and its streams are replaced.
    return subprocess.run(
        [sys.executable, str(_HERE / "__main__.py"), *map(str, words)],
        env={"PYTHONPATH": ":".join(_PATHS), "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def test_mutants_break_no_promise() -> None:
    done = _fuzz("--seconds", _SECONDS, "--seed", _SEED, timeout=30 * _SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr
    mutants = [
        int(number) for number in re.findall(r"^\w+: (\d+) mutants", done.stdout, re.MULTILINE)
    ]
    assert len(mutants) > 10
    assert all(mutants), done.stdout


def test_what_was_found_once_breaks_no_promise() -> None:
    inputs = [path for path in _CORPUS.glob("*/*") if path.is_file()]
    assert inputs
    done = _fuzz("--corpus", timeout=60 + 10 * len(inputs))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(inputs)} inputs" in done.stdout
