"""Time attaching to many sites, and detaching from them, beside libbpf.

The same compiled program (``tests/peers/libbpf``) is attached by both to the same file, which a
process runs meanwhile. libbpf attaches site by site unless it is new and had loaded the program for
uprobe_multi, and detaches one after the other: it is measured with a hundred sites.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from usdt.libbpf.manager import Manager

    Detach = Callable[[], object]
    Attach = Callable[[str], Detach]

ROOT = Path(__file__).resolve().parent.parent
PEER = ROOT / "tests/peers/libbpf"
VERSION = Path("/usr/include/bpf/libbpf_version.h")
SITES = {"many": 10_000, "few": 100}
NEEDED = {"gcc": "gcc", "clang": "clang"}


def missing() -> str:
    """Return what this machine lacks for the comparison, or ""."""
    lacking = [package for name, package in NEEDED.items() if not shutil.which(name)]
    lacking += [] if VERSION.exists() else ["libbpf-dev"]
    return f"apt-get install {' '.join(lacking)}" if lacking else ""


def _libbpf() -> str:
    found = re.findall(r"_VERSION (\d+)$", VERSION.read_text(), re.MULTILINE)
    return f"libbpf {'.'.join(found)}"


def _compile(folder: Path) -> Path:
    bodies = [
        f"void {name}{part}(void)\n{{\n{f'    STAP_PROBE1(bench, {name}, 7);' * 100}\n}}\n"
        for name, number in SITES.items()
        for part in range(number // 100)
    ]
    source = "#include <sys/sdt.h>\n#include <unistd.h>\n" + "".join(bodies)
    source += "int main(void)\n{\n    char byte;\n    return (int)read(0, &byte, 1);\n}\n"
    program = folder / "sites"
    clang = ["clang", "-target", "bpf", "-O2", "-g", "-D__TARGET_ARCH_x86", f"-I{PEER}"]
    clang += ["-I/usr/include/x86_64-linux-gnu", "-c", str(PEER / "events.bpf.c")]
    _run(["gcc", "-O1", "-x", "c", "-", "-o", str(program)], source)
    _run(["gcc", "-O1", str(PEER / "attacher.c"), "-o", str(folder / "attacher"), "-lbpf"])
    _run([*clang, "-o", str(folder / "events.o")])
    return program


def _run(command: list[str], text: str = "") -> None:
    subprocess.run(command, input=text, text=True, check=True)


class _Attacher:
    """The libbpf side, which also loads and pins the program."""

    def __init__(self, folder: Path, pins: Path, *words: str) -> None:
        command = [str(folder / "attacher"), str(folder / "events.o"), *words]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._answer()
        self.say(f"pin {pins}")

    def _answer(self) -> str:
        if self._process.stdout is None:
            raise OSError("libbpf's side has no output")
        return self._process.stdout.readline().strip()

    def say(self, line: str) -> str:
        """Send a command; raise unless the answer is good."""
        if self._process.stdin is None:
            raise OSError("libbpf's side has no input")
        print(line, file=self._process.stdin, flush=True)
        answer = self._answer()
        if not answer.startswith("ok"):
            raise OSError(f"libbpf's side: {line}: {answer or 'it ended'}")
        return answer

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()


@contextlib.contextmanager
def _attachers(folder: Path, program: Path, pins: Path) -> Iterator[dict[str, Attach]]:
    from usdt.bpf.link import UprobeMethod  # noqa: PLC0415 - --help does not pay for it
    from usdt.libbpf import manager  # noqa: PLC0415

    with contextlib.ExitStack() as stack:
        made: dict[str, Attach] = {}
        for name, words, via in (
            ("usdt, uprobe_multi", ["multi"], UprobeMethod.UPROBE_MULTI),
            ("usdt, perf links", [], UprobeMethod.PERF_LINK),
        ):
            own = pins / via.name
            own.mkdir()
            stack.callback(_Attacher(folder, own, *words).close)
            maps = own / "__bpf_usdt_specs", own / "__bpf_usdt_ip_to_spec_id"
            made[name] = _ours(
                stack.enter_context(manager.Manager(*maps, via=via)), own / "on_hit", program
            )
        own = pins / "libbpf"
        own.mkdir()
        theirs = _Attacher(folder, own)
        stack.callback(theirs.close)
        made[_libbpf()] = _theirs(theirs, program)
        yield made


def _ours(manager: Manager, pin: Path, program: Path) -> Attach:
    return lambda name: manager.attach(pin, program, "bench", name).close


def _theirs(attacher: _Attacher, program: Path) -> Attach:
    def attach(name: str) -> Detach:
        number = attacher.say(f"attach -1 {program} bench {name} 0").split()[1]
        return lambda: attacher.say(f"detach {number}")

    return attach


@contextlib.contextmanager
def _bpffs(folder: Path) -> Iterator[Path]:
    # Use an own bpffs: others may unmount the usual one.
    pins = folder / "pins"
    pins.mkdir()
    subprocess.run(["mount", "-t", "bpf", "bpf", pins], check=True)
    try:
        yield pins
    finally:
        subprocess.run(["umount", pins], check=True)


def _timed(attach: Attach, name: str) -> tuple[float, float]:
    began = time.monotonic()
    detach = attach(name)
    attached = time.monotonic()
    detach()
    return attached - began, time.monotonic() - attached


def attaching(rounds: int) -> None:
    """Measure, and print the results."""
    if lacking := missing():
        print(f"attach and detach: left out; {lacking}")
        return
    print(f"attach and detach, one running process: median of {rounds} rounds")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        program = _compile(folder)
        with (
            _bpffs(folder) as pins,
            subprocess.Popen([program], stdin=subprocess.PIPE) as running,
            _attachers(folder, program, pins) as attachers,
        ):
            for title, attach in attachers.items():
                for name in ("many", "few") if "multi" in title else ("few",):
                    times = [_timed(attach, name) for _ in range(rounds)]
                    on, off = (statistics.median(t) * 1000 for t in zip(*times, strict=True))
                    print(f"  {title:20} {SITES[name]:6,} sites {on:9.1f} ms {off:9.1f} ms")
            running.kill()
