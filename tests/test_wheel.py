"""An installed wheel: two packages, and no clash with a user's own modules."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
from house import ROOT

#: Pythons that must import the wheel, as far as this machine has them.
_PYTHONS = ("python3.11", "python3.12", "python3.13", "python3.14")
_IGNORED = (".git", ".venv", "testbins", "tests", "build", "*.egg-info", "__pycache__", ".*_cache")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of a copy of this checkout, so that nothing is written into it."""
    source = tmp_path_factory.mktemp("source") / "checkout"
    shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(*_IGNORED))
    out = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", out, source],
        check=True,
        timeout=300,
    )
    (found,) = out.glob("*.whl")
    return found


def test_a_wheel_installs_two_packages(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    top = {name.partition("/")[0] for name in names}
    assert {name for name in top if not name.endswith(".dist-info")} == {"kprobe", "usdt"}
    assert len(top) == 3
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / "usdt").rglob("*.py")}
    assert modules <= set(names)
    assert {"usdt/py.typed", "kprobe/py.typed"} <= set(names)


def test_an_installed_wheel_shows_the_examples(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    dependencies = sysconfig.get_path("purelib")
    path = f"import sys; sys.path[:1] = [{str(tmp_path)!r}]; sys.path.append({dependencies!r})\n"

    def examples(*words: str) -> str:
        script = (
            f"{path}import usdt.cli; sys.argv = {['usdt', 'examples', *words]}; usdt.cli.main()"
        )
        command = [sys.executable, "-S", "-c", script]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        return done.stdout

    programs = sorted((ROOT / "examples").glob("*.py"))
    assert [line.split()[0] for line in examples().splitlines()] == [one.stem for one in programs]
    for program in programs:
        assert examples(program.stem) == program.read_text()


def _pythons() -> list[str]:
    """One interpreter for each version; pyenv keeps them off PATH."""
    home = os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv"
    found = {}
    for name in _PYTHONS:
        kept = Path(home, "versions").glob(f"{name.removeprefix('python')}.*/bin/{name}")
        for path in (*kept, shutil.which(name)):
            if path and not subprocess.run([path, "-c", ""], check=False).returncode:
                found.setdefault(name, str(path))
    return list(found.values())


@pytest.mark.parametrize("python", _pythons() or [sys.executable])
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
        [python, "-B", "-c", path + script],
        cwd=own,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.stderr, done.returncode) == ("", 0)
    assert Path(done.stdout.strip()) == site / "usdt" / "__init__.py"
