"""What a guest gets for one run, in an archive that is added to its userland: the job.

The checkout is at ``/usdt``: the packages, the tests and testbins/ as the host built them. Beside
it is ``/usdt/.venv``, an environment as ``make setup`` makes it, of the same distributions that
this Python has: the guest's pytest is the host's.
"""

from __future__ import annotations

import importlib.metadata
import io
import json
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

from vm.archive import directory, file, read_tree, symlink, write_archive

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from vm.archive import Entry

__all__ = ("ROOT", "job")

ROOT = Path(__file__).resolve().parents[2]

_HERE = Path(__file__).parent
_FOLDERS = ("bpf", "kprobe", "tracing", "usdt", "tests", "testbins")
_FILES = ("pyproject.toml",)
# Pure Python all: what the toolkit needs and what runs its tests.
_DISTRIBUTIONS = (
    *("usdt-toolkit", "click", "pyelftools"),
    *("pytest", "iniconfig", "packaging", "pluggy", "pygments"),
)
_PYTHON = "3.11"  # of the userland
_VENV = "usdt/.venv"
_PACKAGES = f"{_VENV}/lib/python{_PYTHON}/site-packages"
_COMMAND = "#!/{venv}/bin/python3\nfrom {name}.cli import main\n\nmain()\n"


def job(words: Sequence[str], *, shell: bool = False) -> bytes:
    """The archive: pytest with these words, or a shell."""
    tree = {**dict(_checkout()), **dict(_environment()), **dict(_guest())}
    tree["job.json"] = file(json.dumps({"pytest": list(words)}))
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


def _checkout() -> Iterator[tuple[str, Entry]]:
    # __pycache__ comes along: it spares the guest compiling, if its Python is the host's.
    for name in _FOLDERS:
        yield from read_tree(ROOT / name, f"usdt/{name}")
    for name in _FILES:
        yield f"usdt/{name}", file((ROOT / name).read_bytes())


def _environment() -> Iterator[tuple[str, Entry]]:
    yield f"{_VENV}/pyvenv.cfg", file("home = /usr/bin\ninclude-system-site-packages = false\n")
    for name in ("python", "python3"):
        yield f"{_VENV}/bin/{name}", symlink(f"/usr/bin/python{_PYTHON}")
    for name in ("usdt", "kprobe"):
        yield f"{_VENV}/bin/{name}", file(_COMMAND.format(venv=_VENV, name=name), 0o755)
    yield f"{_PACKAGES}/usdt.pth", file("/usdt\n")
    for name in _DISTRIBUTIONS:
        yield from _distribution(name)


def _distribution(name: str) -> Iterator[tuple[str, Entry]]:
    # Not by importlib.metadata.files(): in a checkout that finds the checkout's own egg-info.
    home = sysconfig.get_path("purelib")
    for found in importlib.metadata.distributions(name=name, path=[home]):
        for path in found.files or ():
            at = Path(home, path)
            # Not the commands, which lie outside; nor the host's way to its own checkout.
            if ".." not in path.parts and path.suffix != ".pth" and at.is_file():
                entry = file(at.read_bytes(), mtime=int(at.stat().st_mtime))
                yield f"{_PACKAGES}/{path}", entry
