"""usdt.pyz: one file that every Python of this machine runs, under the name of either command."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from house import ROOT
from pythons import each_other_python, interpreter
from skips import requires_root

sys.path.insert(0, str(ROOT / "tools"))
from pyz import write_pyz


@pytest.fixture(scope="module")
def pyz(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pyz") / "usdt.pyz"
    write_pyz(path)
    return path


def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words,
        cwd="/",
        env={"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize(
    ("link", "words", "shown"),
    [
        pytest.param("usdt.pyz", ["--help"], "Usage: usdt ", id="it is usdt"),
        pytest.param("usdt.pyz", ["kprobe", "--help"], "Usage: kprobe ", id="or kprobe by a word"),
        pytest.param("kprobe", ["--help"], "Usage: kprobe ", id="or kprobe by its name"),
        pytest.param("kprobe", ["usdt", "--help"], "Usage: usdt ", id="a word beats the name"),
        pytest.param("other", ["--help"], "Usage: usdt ", id="any other name is usdt"),
    ],
)
def test_the_name_or_the_first_word_selects_the_command(
    pyz: Path, tmp_path: Path, link: str, words: list[str], shown: str
) -> None:
    (tmp_path / link).symlink_to(pyz)
    done = run(tmp_path / link, *words)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(shown)


def test_it_names_its_commit(pyz: Path) -> None:
    ours = run(sys.executable, "-m", "usdt", "--version")
    assert run(pyz, "--version").stdout.splitlines()[0] in ours.stdout


def test_it_has_the_licences_of_what_is_inside(pyz: Path) -> None:
    with zipfile.ZipFile(pyz) as archive:
        kept = {name.split("/")[1] for name in archive.namelist() if name.startswith("licences/")}
    assert {"click", "pyelftools"} <= kept


@requires_root
def test_it_records_and_reports(pyz: Path, tmp_path: Path) -> None:
    kept = tmp_path / "run.usdt"
    done = run(pyz, "record", "-o", kept, "-n", "1", "-c", "true", "uprobe:libc:exit")
    assert done.returncode == 0, done.stderr
    assert ":exit " in run(pyz, "report", kept).stdout


@each_other_python
def test_every_python_runs_it(pyz: Path, python: str) -> None:
    done = run(interpreter(python), "-I", "-S", pyz, "list", "libc", "uprobe:getenv")
    assert (done.returncode, done.stderr) == (0, "")
    assert "getenv" in done.stdout
