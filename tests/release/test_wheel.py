"""An installed wheel: two packages, and no clash with a user's own modules."""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

import pytest
from builds import distributions
from house import ROOT
from pythons import OTHERS, interpreter


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    (found,) = distributions(tmp_path_factory)[1].glob("*.whl")
    return found


def test_a_wheel_installs_two_packages(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    top = {name.partition("/")[0] for name in names}
    own = {name for name in top if not name.endswith((".dist-info", ".data"))}
    assert own == {"kprobe", "usdt"}
    assert len(top) == 4
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / "usdt").rglob("*.py")}
    assert modules <= set(names)
    assert {"usdt/py.typed", "kprobe/py.typed"} <= set(names)


def test_an_installed_wheel_shows_the_examples(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)

    def examples(*words: str) -> str:
        return _usdt(tmp_path, "examples", *words)

    programs = sorted((ROOT / "examples").glob("*.py"))
    assert [line.split()[0] for line in examples().splitlines()] == [one.stem for one in programs]
    for program in programs:
        assert examples(program.stem) == program.read_text()


def test_an_installed_wheel_shows_the_pages_of_help(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    listed = {line.split()[0] for line in _usdt(tmp_path, "help", "topics").splitlines()}
    pages = [*(ROOT / "docs").rglob("*.md")]
    assert {page.stem for page in pages} <= {name.removesuffix(".md") for name in listed}
    assert (
        _usdt(tmp_path, "help", "spans.md").rstrip()
        == (ROOT / "docs/spans.md").read_text().rstrip()
    )


def test_a_wheel_knows_its_commit_and_its_extras(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    lines = _usdt(tmp_path, "--version").splitlines()
    assert re.fullmatch(r"usdt \S+ \(commit [0-9a-f]{12}(-dirty)?\)", lines[0])
    with (ROOT / "pyproject.toml").open("rb") as file:
        extras = {*tomllib.load(file)["project"]["optional-dependencies"]} - {"dev", "docs"}
    assert {*re.findall(r"[\w-]+", lines[1].partition(": ")[2])} <= extras
    assert extras <= {*re.findall(r"[\w-]+", "\n".join(lines[1:]))}


def test_a_wheel_installs_man_pages_and_completions(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    shared = {name.partition(".data/data/")[2] for name in names if ".data/" in name}
    assert {
        *("share/man/man1/usdt-trace.1", "share/man/man1/kprobe.1"),
        *("share/bash-completion/completions/usdt", "share/fish/vendor_completions.d/kprobe.fish"),
        *("share/zsh/site-functions/_usdt",),
    } <= shared


def _usdt(site: Path, *words: str) -> str:
    """What the usdt command of an unpacked wheel prints."""
    dependencies = sysconfig.get_path("purelib")
    script = (
        f"import sys; sys.path[:1] = [{str(site)!r}]; sys.path.append({dependencies!r})\n"
        f"import usdt.cli; sys.argv = {['usdt', *words]}; usdt.cli.main()"
    )
    command = [sys.executable, "-S", "-c", script]
    done = subprocess.run(command, cwd=site, capture_output=True, text=True, check=True)
    return done.stdout


@pytest.mark.parametrize("python", [sys.executable, *OTHERS], ids=lambda one: Path(one).name)
def test_a_users_own_modules_do_not_break_the_import(
    wheel: Path, tmp_path: Path, python: str
) -> None:
    site, own = tmp_path / "site", tmp_path / "own"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    (own / "bpf").mkdir(parents=True)
    for name in ("bpf/__init__.py", "tracing.py", "engine.py", "elf.py", "base.py", "btf.py"):
        (own / name).write_text("raise ImportError('a module of the user was imported')\n")
    script = (
        "import usdt, kprobe\n"
        "for module in (usdt, kprobe):\n"
        "    for name in module.__all__:\n"
        "        getattr(module, name)\n"
        "print(usdt.__file__)\n"
    )
    dependencies = sysconfig.get_path("purelib")
    path = f"import sys; sys.path[1:1] = [{str(site)!r}]; sys.path.append({dependencies!r})\n"
    done = subprocess.run(
        [interpreter(python), "-B", "-c", path + script],
        cwd=own,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.stderr, done.returncode) == ("", 0)
    assert Path(done.stdout.strip()) == site / "usdt" / "__init__.py"
