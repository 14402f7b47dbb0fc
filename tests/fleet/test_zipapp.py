"""The toolkit as one file: the same bytes each time, and nothing else is needed to run it."""

from __future__ import annotations

import io
import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING

import pytest

from usdt.fleet.zipapp import App, build_app

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def app() -> App:
    return build_app()


@pytest.fixture(scope="module")
def path(app: App, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("app") / "app.pyz"
    path.write_bytes(app.content)
    return path


def run(path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-I", "-S", path, *words],
        cwd="/",
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_the_same_sources_are_the_same_bytes(app: App) -> None:
    assert build_app() == app


def test_entries_are_sorted_and_say_nothing_of_this_machine(app: App) -> None:
    entries = zipfile.ZipFile(io.BytesIO(app.content)).infolist()
    names = [entry.filename for entry in entries]
    assert names == ["__main__.py", *sorted(names[1:])]
    assert {entry.date_time for entry in entries} == {(1980, 1, 1, 0, 0, 0)}
    assert {entry.external_attr for entry in entries} == {0o100644 << 16}
    folders = {name.partition("/")[0] for name in names[1:]}
    assert folders == {"click", "elftools", "kprobe", "licences", "usdt"}
    assert not [name for name in names if "__pycache__" in name or name.endswith(".pyc")]


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["--help"], "Usage: usdt"),
        (["usdt", "count", "--help"], "Usage: usdt count"),
        (["kprobe", "count", "--help"], "Usage: kprobe count"),
        (["examples"], "exec_snoop"),
        (["examples", "exec_snoop"], '"""Show every program'),
        (["decode", "8@%rdi"], "rdi"),
    ],
    ids=" ".join,
)
def test_it_runs_from_another_folder_without_site_packages(
    path: Path, words: list[str], shown: str
) -> None:
    done = run(path, *words)
    assert (done.returncode, done.stderr.replace("print one with: usdt examples NAME\n", "")) == (
        0,
        "",
    )
    assert shown in done.stdout


def test_it_reads_debug_information_with_the_pyelftools_inside(path: Path) -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(path)!r}); import elftools; print(elftools.__file__)"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith(f"{path}/elftools/")
