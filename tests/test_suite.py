"""The suite's own guards: leaks are found, skips are honest, and a variable forbids them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from house import ROOT

if TYPE_CHECKING:
    from pathlib import Path

_CLEAN = "def test_it(): pass"
_LEAK = "import os\ndef test_it(): os.dup(1)"
_LEFT = (
    "import subprocess\nleft = []\n"
    "def test_one():\n    left.append(subprocess.Popen(['sleep', '99']))\n    assert False\n"
    "def test_two(): assert left[0].wait(30) == -9"
)
_SKIP = "import pytest\ndef test_it(): pytest.skip('needs the program frob')"
_MODULE_SKIP = "import pytest\npytest.skip('needs a frob', allow_module_level=True)"
_XFAIL = "import pytest\n@pytest.mark.xfail(reason='known')\ndef test_it(): assert False"
_NOT_YET = (
    "from usdt.base.errors import NotSupported\ndef test_it(): raise NotSupported('x', (99, 0))"
)
_LONG_AGO = (
    "from usdt.base.errors import NotSupported\ndef test_it(): raise NotSupported('x', (2, 6))"
)
_CONFIG = "from usdt.base.errors import NotSupported\ndef test_it(): raise NotSupported('x', None)"
_FIXTURE = (
    "import pytest\nfrom usdt.base.errors import NotSupported\n"
    "@pytest.fixture\ndef need(): raise NotSupported('x', (99, 0))\n"
    "def test_it(need): pass"
)


_SLOW = "import time\ndef test_it(): time.sleep(1)"

_FINE = {"1 passed", "1 skipped", "1 xfailed"}


@pytest.mark.parametrize(
    ("text", "no_skips", "outcome"),
    [
        pytest.param(_CLEAN, "", "1 passed", id="a clean test passes"),
        pytest.param(_LEAK, "", "leaked descriptors", id="an open descriptor is an error"),
        pytest.param(_LEFT, "", "1 failed, 1 passed", id="what a failed test started is ended"),
        pytest.param(_SKIP, "", "1 skipped", id="a skip is a skip"),
        pytest.param(_SKIP, "0", "1 skipped", id="USDT_NO_SKIPS=0 allows it"),
        pytest.param(_SKIP, "1", "1 failed", id="USDT_NO_SKIPS=1 does not"),
        pytest.param(_MODULE_SKIP, "", "1 skipped", id="a module may skip itself"),
        pytest.param(_MODULE_SKIP, "1", "1 error", id="but not with USDT_NO_SKIPS"),
        pytest.param(_XFAIL, "1", "1 xfailed", id="an expected failure is no skip"),
        pytest.param(_NOT_YET, "", "1 skipped", id="a feature of a later kernel is skipped"),
        pytest.param(_FIXTURE, "", "1 skipped", id="also where a fixture misses it"),
        pytest.param(_CONFIG, "", "1 skipped", id="a feature left out of the kernel is skipped"),
        pytest.param(_LONG_AGO, "", "wrong minimum", id="a feature this kernel has is a failure"),
    ],
)
def test_guards(tmp_path: Path, text: str, no_skips: str, outcome: str) -> None:
    result = _run(tmp_path, text, no_skips=no_skips)
    assert outcome in result.stdout, result.stdout + result.stderr
    assert result.returncode in ({0, 5} if outcome in _FINE else {1, 2})
    assert "Timeout" not in result.stderr


def test_where_a_test_stands_that_hangs(tmp_path: Path) -> None:
    result = _run(tmp_path, _SLOW, "-o", "hang_timeout=0.1")
    assert "1 passed" in result.stdout, result.stdout + result.stderr
    assert re.search(r'Timeout.*"\S*test_it.py", line 2 in test_it', result.stderr, re.DOTALL)


def _run(
    tmp_path: Path, text: str, *options: str, no_skips: str = ""
) -> subprocess.CompletedProcess[str]:
    (tmp_path / "test_it.py").write_text(text + "\n")
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(
            [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "support")]
        ),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # half of the time it takes
        "USDT_NO_SKIPS": no_skips,
    }
    words = ["-p", "conftest", "-p", "no:cacheprovider", "-q", *options, "test_it.py"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
