"""The harness itself, without a virtual machine: archives, the console's protocol, the verdict."""

from __future__ import annotations

import base64
import json
import signal
import stat
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path
from typing import Any

import pytest
from house import ROOT
from skips import need_program
from tracing_tools import until
from vm import machine
from vm.archive import Entry, directory, file, read_tree, symlink, write_archive
from vm.bytecode import compile_sources
from vm.machine import Run, problem_of, take
from vm.matrix import CELLS, CPUS, FEATURES, QUICK, USERLANDS, cell_named, quick_tests
from vm.userland import skeleton
from vm.verdict import failures, features_that_differ, trouble

from usdt.bpf import features

MAKE = Path(__file__).parent / "guest" / "make"
CELL = cell_named("6.1", "amd64")


def test_an_archive_is_what_cpio_reads(tmp_path: Path) -> None:
    cpio = need_program("cpio")
    tree = {
        "a/b/c": file("text", 0o640, 1_000_000),
        "a/odd\udcff": file(b"x" * 4097),
        "link": symlink("a/b/c"),
        "empty": directory(0o700),
        "pipe": Entry(stat.S_IFIFO | 0o600),
    }
    with (tmp_path / "archive").open("wb") as archive:
        write_archive(archive, tree)
    with (tmp_path / "archive").open("rb") as archive:
        subprocess.run([cpio, "-idm", "--quiet", "-D", tmp_path / "out"], stdin=archive, check=True)
    out = tmp_path / "out"
    assert (out / "a/b/c").read_text() == "text"
    assert (out / "a/b/c").stat().st_mode == stat.S_IFREG | 0o640
    assert int((out / "a/b/c").stat().st_mtime) == 1_000_000
    assert (out / "a/odd\udcff").stat().st_size == 4097
    assert str((out / "link").readlink()) == "a/b/c"
    assert stat.S_ISFIFO((out / "pipe").stat().st_mode)
    assert {path for path, _ in read_tree(out, "")} == {
        *("/a", "/a/b", "/a/b/c", "/a/odd\udcff", "/link", "/empty")
    }


def test_compiled_modules_are_what_python_would_write() -> None:
    tree = {
        "usr/lib/python3/dist-packages/m.py": file("x = 1\n"),
        "usr/lib/python3/x.py": symlink("y"),
    }
    ((path, entry),) = compile_sources(tree, "{}.{}".format(*sys.version_info)).items()
    assert path == f"usr/lib/python3/dist-packages/__pycache__/m.{sys.implementation.cache_tag}.pyc"
    assert entry.data[4:8] == b"\1\0\0\0"  # checked by hash, and not even that
    assert compile_sources(tree, "3.0") == {}


def test_32_bit_programs_find_their_loader_in_a_userland_that_has_one() -> None:
    name = "usr/lib/ld-linux.so.2"
    assert skeleton({"usr/lib32/ld-linux.so.2"})[name] == symlink("/lib32/ld-linux.so.2")
    assert name not in skeleton(set())


def test_the_table_holds_together() -> None:
    names = {name.removeprefix("have_") for name in features.__all__ if name.startswith("have_")}
    assert set(FEATURES) == names
    assert len({cell.name for cell in CELLS}) == len(CELLS)
    assert all(
        cell.offers <= names and cell.cpu in CPUS and cell.cpu in USERLANDS for cell in CELLS
    )


@pytest.mark.parametrize(
    ("cell", "suites"),
    [
        pytest.param(("5.10", "amd64"), "bullseye bullseye-security", id="one version on amd64"),
        pytest.param(("6.12", "riscv64"), "trixie trixie-security sid forky", id="newer ones"),
        pytest.param(("sid", "ppc64el"), "sid forky bookworm bookworm-security", id="older ones"),
        pytest.param(("6.1+bcc", "amd64"), "bookworm", id="nothing beside packages of its own"),
    ],
)
def test_which_kernels_stand_in(cell: tuple[str, str], suites: str) -> None:
    assert [kernel.suite for kernel in cell_named(*cell).kernels] == suites.split()


def test_a_kernel_that_stands_in_offers_what_it_does_in_its_own_row() -> None:
    cell, own = cell_named("6.12", "riscv64"), cell_named("sid", "riscv64")
    assert cell.with_kernel(own.kernels[0]).offers == own.offers != cell.offers
    assert own.kernels[0] in cell.kernels


def test_the_quick_tests_exist() -> None:
    words = [sys.executable, "-m", "pytest", "--collect-only", "-q", *QUICK]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


def test_every_quick_test_runs_on_every_cpu_or_in_every_kernel() -> None:
    often = [cell for cell in CELLS if cell.often]
    for name in QUICK:
        of = {cell.name for cell in often if name in quick_tests(cell)}
        kernels = {cell.name for cell in often if cell.cpu == "amd64"}
        assert kernels <= of or {cell.cpu for cell in often if cell.name in of} >= CPUS.keys(), name


def test_a_cell_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(LookupError, match=r"no cell amd64-2\.6; there are amd64-5\.10, "):
        cell_named("2.6", "amd64")


def line(number: int, **fields: Any) -> bytes:
    packed = base64.b64encode(zlib.compress(json.dumps(fields).encode()))
    return b"@usdt %d %08x %s\r" % (number, zlib.crc32(packed), packed)


SILENT = "silent for 400 s"
START = {"kind": "start", "release": "6.1", "features": {}}
BEGIN = {"kind": "begin", "test": "t"}
PASSED = {"kind": "test", "test": "t", "outcome": "passed", "why": ""}
END = {"kind": "end", "code": 0, "complaints": ""}


def taken(*lines: bytes) -> Run:
    found = Run()
    for one in lines:
        take(found, one, lambda _: None)
    return found


def numbered(*results: dict[str, Any]) -> list[bytes]:
    return [line(number, **result) for number, result in enumerate(results)]


@pytest.mark.parametrize(
    ("lines", "hung", "problem"),
    [
        pytest.param(numbered(START, BEGIN, PASSED, END), "", "", id="a whole run"),
        pytest.param(
            [], "silent for 120 s", "no word of the guest: silent for 120 s", id="a hang at boot"
        ),
        pytest.param([b"Kernel panic"], "", "the machine ended at boot", id="a panic at boot"),
        pytest.param(numbered(START, BEGIN), SILENT, "silent for 400 s, in t", id="a test hangs"),
        pytest.param(numbered(START, BEGIN), "", "the machine ended in t", id="a panic in a test"),
        pytest.param(
            numbered(START, BEGIN, PASSED),
            SILENT,
            "silent for 400 s, between tests",
            id="pytest hangs",
        ),
        pytest.param(
            numbered(START, {"kind": "broken", "why": "x"}),
            "",
            "the guest's runner failed: x",
            id="the runner fails",
        ),
        pytest.param(
            [*numbered(START), b"@usdt 1 00000000 AAAA", *numbered(START, BEGIN, END)[2:]],
            "",
            "1 results were garbled on the console",
            id="a line with other bytes in it",
        ),
    ],
)
def test_what_is_said_of_a_run(lines: list[bytes], hung: str, problem: str) -> None:
    assert problem_of(taken(*lines), hung) == problem


def test_words_between_results_are_kept() -> None:
    found = taken(b"[1.0] message", *numbered(START), b"words\r")
    assert found.console == ["[1.0] message", "words"]
    assert [result["kind"] for result in found.results] == ["start"]


def test_a_machine_that_goes_on_for_too_long_is_ended() -> None:
    with tempfile.TemporaryFile() as initrd:
        command = ("sh", "-c", "while :; do echo on and on; sleep 0.1; done")
        found = machine._once(command, initrd.fileno(), lambda _: None, 1.0)
    assert found.problem == "no word of the guest: not done in 1 s"
    assert set(found.console) == {"on and on"}


_STARTER = """
import sys
sys.path.insert(0, "tests")
from vm import machine, watch
machine._once((*watch.TIED, "sleep", "1000"), 0, lambda _: None, 1000.0)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_machine_ends_with_whoever_started_it(number: int) -> None:
    need_program("setpriv", "util-linux")
    with subprocess.Popen(
        [sys.executable, "-c", _STARTER], cwd=ROOT, stderr=subprocess.DEVNULL
    ) as starter:
        children = Path(f"/proc/{starter.pid}/task/{starter.pid}/children")
        until(lambda: _name(children.read_text().strip()) == "sleep", "the machine to start")
        machine_id = children.read_text().strip()
        starter.send_signal(number)
    until(lambda: _name(machine_id) != "sleep", "the machine to end")


def _name(pid: str) -> str:
    try:
        status = Path(f"/proc/{pid}/status").read_text() if pid else ""
    except OSError:
        return ""
    return "" if "\nState:\tZ" in status else status.partition("\n")[0].removeprefix("Name:\t")


def skipped(why: str) -> Run:
    return taken(*numbered(START, {**PASSED, "outcome": "skipped", "why": why}, END))


@pytest.mark.parametrize(
    ("why", "wrong"),
    [
        pytest.param("a BPF cookie needs Linux 5.15 or newer", True, id="6.1 has cookies"),
        pytest.param("uprobe_multi needs Linux 6.6 or newer", False, id="but no uprobe_multi"),
        pytest.param("needs the program psql", False, id="a program is no feature"),
    ],
)
def test_a_skip_must_not_contradict_the_table(why: str, wrong: bool) -> None:
    assert bool(failures(CELL, skipped(why))) is wrong


def test_failures_are_named_before_they_are_told() -> None:
    failed = {**PASSED, "outcome": "failed", "why": "assert 0"}
    found = failures(CELL, taken(*numbered(START, failed, {**failed, "test": "u"}, END)))
    assert found[:2] == ["FAILED amd64-6.1 t", "FAILED amd64-6.1 u"]
    assert all("assert 0" in text for text in found[2:])


def test_features_are_compared_both_ways() -> None:
    offered = dict.fromkeys(FEATURES, False) | dict.fromkeys(CELL.offers, True)
    found = [
        *({**START, "features": offered}, {**START, "features": {**offered, "cookies": False}}),
        {**START, "features": {**offered, "uprobe_multi": True, "ringbuf": "EPERM"}},
    ]
    texts = [features_that_differ(CELL, taken(line(0, **one))) for one in found]
    assert [len(text) for text in texts] == [0, 1, 2]


def test_a_run_in_which_nothing_passed_is_no_success() -> None:
    assert trouble(skipped("anything")) == ["no test passed in the guest"]
    assert not trouble(taken(*numbered(START, PASSED, END)))


@pytest.mark.parametrize(
    ("words", "code"),
    [
        pytest.param(["VARIANTS=default", "default/args"], 0, id="a program that is there"),
        pytest.param(["VARIANTS=default", "default/other"], 2, id="one that is not"),
        pytest.param(["VARIANTS=default", "usable-default"], 0, id="a variant that is there"),
        pytest.param(["VARIANTS=clang", "usable-clang"], 2, id="one that is not built"),
        pytest.param(["VARIANTS=default", "out/include/sys/sdt.h"], 0, id="the header"),
    ],
)
def test_the_guests_make(words: list[str], code: int, tmp_path: Path) -> None:
    (tmp_path / "out" / "default").mkdir(parents=True)
    (tmp_path / "out" / "default" / "args").touch()
    command = ["sh", str(MAKE), "--no-print-directory", "-C", str(tmp_path), *words]
    assert subprocess.run(command, capture_output=True, check=False).returncode == code
