"""What a guest gets for one run, in an archive that is added to its userland: the job.

The checkout is at ``/usdt``: the packages, the tests and testbins/ as the host built them. Beside
it is ``/usdt/.venv``, an environment as ``make setup`` makes it, of the same distributions that
this Python has: the guest's pytest is the host's.
"""

from __future__ import annotations

import compileall
import functools
import importlib.metadata
import io
import json
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

from vm.archive import directory, file, read_tree, symlink, write_archive
from vm.bytecode import compile_sources
from vm.matrix import CPUS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from vm.archive import Entry
    from vm.matrix import Cell

__all__ = ("ROOT", "job")

ROOT = Path(__file__).resolve().parents[2]

_HERE = Path(__file__).parent
_FOLDERS = ("kprobe", "usdt", "tests", "examples", "docs", "contrib")
_FILES = ("pyproject.toml", "README.md", "LICENSE")
_BUILT = "testbins/out"
_NATIVE = "amd64"  # whose programs are there and not in testbins/cross/
# Pure Python all: what the toolkit needs and what runs its tests.
_DISTRIBUTIONS = (
    *("usdt-toolkit", "click", "pyelftools", "prometheus-client"),
    *("pytest", "iniconfig", "packaging", "pluggy", "pygments"),
)
_VENV = "usdt/.venv"
_COMMAND = "#!/{venv}/bin/python3\nfrom {name}.cli import main\n\nmain()\n"


def job(cell: Cell, python: str, words: Sequence[str], *, shell: bool = False) -> bytes:
    """The archive: pytest with these words, or a shell. ``python`` is the guest's, "3.11"."""
    compiled = _bytecode(python)
    tree = {**dict(_checkout()), **dict(_environment(python)), **compiled}
    tree.update({**dict(_testbins(cell.cpu)), **dict(_guest())})
    tree["job.json"] = file(json.dumps({"pytest": list(words)}))
    tree["etc/sysctl.conf"] = file("".join(f"{line}\n" for line in CPUS[cell.cpu].settings))
    if shell:
        tree["shell"] = file("")
    archive = io.BytesIO()
    write_archive(archive, tree)
    return archive.getvalue()


def _guest() -> Iterator[tuple[str, Entry]]:
    yield "init", file((_HERE / "guest" / "init").read_bytes(), 0o755)
    yield "guest/run.py", file((_HERE / "guest" / "run.py").read_bytes())
    yield "usr/local/bin/make", file((_HERE / "guest" / "make").read_bytes(), 0o755)
    yield "usr/local/lib/busybox", directory()


@functools.cache
def _bytecode(python: str) -> dict[str, Entry]:
    # Those of the host's version lie beside the sources, unless an environment variable keeps
    # Python from writing them. Tests are compiled by pytest.
    if python == "{}.{}".format(*sys.version_info):
        for name in ("kprobe", "usdt", "tests/support"):
            compileall.compile_dir(ROOT / name, quiet=2)
        return {}
    tree = {**dict(_checkout()), **dict(_environment(python))}
    return compile_sources({p: e for p, e in tree.items() if "/test_" not in p}, python)


def _checkout() -> Iterator[tuple[str, Entry]]:
    # __pycache__ comes along: it spares the guest compiling, if its Python is the host's.
    for name in _FOLDERS:
        yield from read_tree(ROOT / name, f"usdt/{name}")
    for name in _FILES:
        yield f"usdt/{name}", file((ROOT / name).read_bytes())
    for script in Path("/usr/sbin").glob("*.bt"):  # of the package bpftrace, if it is here
        yield f"usr/sbin/{script.name}", file(script.read_bytes())


def _testbins(cpu: str) -> Iterator[tuple[str, Entry]]:
    # Sources, and what the host built for this CPU where the guest's make looks for it.
    built = ROOT / (_BUILT if cpu == _NATIVE else f"testbins/cross/{cpu}")
    yield f"usdt/{_BUILT}", directory()
    for source in (ROOT / "testbins").iterdir():
        if source.is_file():
            yield f"usdt/testbins/{source.name}", file(source.read_bytes())
    for path, entry in read_tree(built, f"usdt/{_BUILT}"):
        if not path.endswith((".o", ".d")):
            yield path, entry


def _environment(python: str) -> Iterator[tuple[str, Entry]]:
    packages = f"{_VENV}/lib/python{python}/site-packages"
    yield f"{_VENV}/pyvenv.cfg", file("home = /usr/bin\ninclude-system-site-packages = false\n")
    for name in ("python", "python3"):
        yield f"{_VENV}/bin/{name}", symlink(f"/usr/bin/python{python}")
    for name in ("usdt", "kprobe"):
        yield f"{_VENV}/bin/{name}", file(_COMMAND.format(venv=_VENV, name=name), 0o755)
    yield f"{packages}/usdt.pth", file("/usdt\n")
    for name in _DISTRIBUTIONS:
        for path, entry in _distribution(name):
            yield f"{packages}/{path}", entry


def _distribution(name: str) -> Iterator[tuple[str, Entry]]:
    # Not by importlib.metadata.files(): in a checkout that finds the checkout's own egg-info.
    home = sysconfig.get_path("purelib")
    for found in importlib.metadata.distributions(name=name, path=[home]):
        for path in found.files or ():
            at = Path(home, path)
            # Not the commands, which lie outside; nor the host's way to its own checkout.
            if ".." not in path.parts and path.suffix != ".pth" and at.is_file():
                entry = file(at.read_bytes(), mtime=int(at.stat().st_mtime))
                yield str(path), entry
