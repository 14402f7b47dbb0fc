"""Addresses of living processes, and of those that are not what they were."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from processes import until
from skips import need_program, requires_root
from symbol_programs import TELLER, compiled, running, told

from usdt.demangle.demangle import demangle
from usdt.engine.output.frames import Frame
from usdt.procfs.maps import read_maps
from usdt.symbolize import FileSymbols, Symbolizer, file_symbols
from usdt.symbolize.perfmap import PerfMap


@pytest.fixture(scope="module")
def teller(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("teller"), TELLER, "-O0")


def check(symbolizer: Symbolizer, pid: int, known: dict[str, int], module: str) -> None:
    for word, name in (("exported", "exported_function"), ("hidden", "hidden_function")):
        address = known[word] + 5
        frame = symbolizer.frame(pid, address)
        assert (frame.address, frame.symbol, frame.offset) == (address, name, 5)
        assert frame.module == module
        assert frame.link_address & 0xFFF == address & 0xFFF
        assert frame.file_id


@pytest.mark.parametrize("options", [("-no-pie",), ("-pie",), ("-static",), ("-static-pie",)])
def test_functions_of_a_program_however_it_is_linked(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    program = compiled(tmp_path, TELLER, "-O0", *options)
    with running(program) as process, Symbolizer() as symbolizer:
        check(symbolizer, process.pid, told(process), "teller")


def test_functions_of_the_c_library(teller: Path) -> None:
    with running(teller) as process, Symbolizer() as symbolizer:
        known = told(process)
        frame = symbolizer.frame(process.pid, known["qsort"] + 1)
        assert (frame.symbol, frame.offset) == ("qsort", 1)
        assert frame.module.startswith("libc")


def test_functions_of_the_vdso(teller: Path) -> None:
    with running(teller) as process, Symbolizer() as symbolizer:
        base = told(process)["vdso"]
        with Path(f"/proc/{process.pid}/mem").open("rb", buffering=0) as memory:
            memory.seek(base)
            image = memory.read(8192)
        symbol = FileSymbols.from_bytes(image, "[vdso]")
        starts = [one for one in range(8192) if (f := symbol.find(one)) and f.address == one]
        assert starts, "the vDSO has functions"
        frame = symbolizer.frame(process.pid, base + starts[0])
        assert frame.module == "[vdso]"
        assert frame.symbol
        symbol.close()


def test_memory_without_a_file(teller: Path) -> None:
    with running(teller) as process, Symbolizer() as symbolizer:
        address = told(process)["anonymous"] + 16
        assert symbolizer.frame(process.pid, address) == Frame(address, "", 0, "[anon]")
        assert symbolizer.frame(process.pid, 0x10) == Frame(0x10)


def test_a_return_address_behind_the_last_instruction_belongs_to_the_caller(teller: Path) -> None:
    with running(teller) as process, Symbolizer() as symbolizer:
        known = told(process)
        # hidden_function follows exported_function: its first byte is where a call at the very
        # end of exported_function would return to.
        inner, outer = symbolizer.frames(process.pid, [known["hidden"], known["hidden"]])
        assert inner.symbol == "hidden_function"
        assert outer.symbol == "exported_function"
        assert outer.offset == known["hidden"] - known["exported"]


@requires_root
def test_a_return_address_at_a_start_behind_no_function_belongs_to_it(teller: Path) -> None:
    # The kernel gives the start of a signal's trampoline as the return address of its handler.
    with running(teller) as process, Symbolizer() as symbolizer, FileSymbols(str(teller)) as file:
        start = told(process)["exported"]
        bias = start - symbolizer.frame(process.pid, start).link_address
        near = range(start - bias - 0x400, start - bias + 0x400)
        firsts = [one for one in near if (f := file.find(one)) and f.address == one]
        alone = [one for one in firsts if file.find(one - 1) is None]
        assert alone, "a function behind padding"
        addresses = [start + 4, *(bias + one for one in alone)]
        _, *found = symbolizer.frames(process.pid, addresses)
        assert [(one.symbol, one.offset, one.link_address) for one in found] == [
            (symbol.name, 0, one) for one in alone if (symbol := file.find(one))
        ]


@pytest.mark.parametrize("blocks", [1 << 8, 1 << 18], ids=["blocks that share places", "many"])
def test_frames_do_not_depend_on_what_was_looked_up_before(
    blocks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_symbols, "_MAX_BLOCKS", blocks)
    chance = random.Random(5)
    code = [one for one in read_maps(os.getpid()) if one.executable and one.inode]
    sizes = [one.end - one.start for one in code]
    chosen = chance.choices(code, sizes, k=3000)
    # Near each other, so that some are at the ends of functions and on both sides of them
    starts = [chance.randrange(one.start + 1, one.end - 33) for one in chosen]
    addresses = [0, *(start + step for start in starts for step in (0, 1, 16, 33))]
    with Symbolizer() as symbolizer, contextlib.ExitStack() as stack:
        _, *found = symbolizer.frames(os.getpid(), addresses)
        for _ in range(6):  # some of them are kept
            assert symbolizer.frames(os.getpid(), addresses)[1:] == found
        paths = {Path(one.path).name: one.path for one in code}
        files = {name: stack.enter_context(FileSymbols(path)) for name, path in paths.items()}
        for address, frame in zip(addresses[1:], found, strict=True):
            assert frame.address == address
            file, link = files[frame.module], frame.link_address
            symbol = file.find(link - 1) or file.find(link)
            name, start = ("", 0) if symbol is None else (demangle(symbol.name), symbol.address)
            assert (frame.symbol, frame.offset) == (name, link - start)


def test_a_deleted_program(tmp_path: Path) -> None:
    program = compiled(tmp_path, TELLER, "-O0")
    with running(program) as process, Symbolizer() as symbolizer:
        known = told(process)
        program.unlink()
        check(symbolizer, process.pid, known, "teller")


@requires_root
def test_a_program_that_was_replaced_on_disk(tmp_path: Path) -> None:
    program = compiled(tmp_path, TELLER, "-O0")
    with running(program) as process, Symbolizer() as symbolizer:
        known = told(process)
        other = compiled(tmp_path, "int x; int f(void) { return 1; }" + TELLER, "-O3", name="other")
        other.rename(program)
        check(symbolizer, process.pid, known, "teller")


_REMAP = """
import ctypes, mmap, sys
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
where = None
for path in sys.stdin:
    file = open(path.strip(), "rb")
    fixed = 0x10 if where else 0
    flags = mmap.MAP_PRIVATE | fixed
    where = libc.mmap(ctypes.c_void_p(where), 0x1000, 5, flags, file.fileno(), ctypes.c_long(0))
    print(where, flush=True)
"""


@requires_root
@pytest.mark.parametrize("tracked", [False, True])
def test_a_file_in_the_place_of_another(teller: Path, tmp_path: Path, *, tracked: bool) -> None:
    # With reports of mappings, a process is read again when there is one.
    other = tmp_path / "other"
    shutil.copy(teller, other)
    words = [sys.executable, "-c", _REMAP]
    with (
        Symbolizer(track_mappings=tracked) as symbolizer,
        subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        for path in (teller, other, teller):
            process.stdin.write(f"{path}\n")
            process.stdin.flush()
            address = int(process.stdout.readline())
            time.sleep(0.06)  # longer than a look is believed
            for _ in range(3):  # the third is a kept one
                *_, frame = symbolizer.frames(process.pid, [address, address + 16])
                assert (frame.module, frame.link_address) == (path.name, 16)
        process.stdin.close()


def test_a_process_that_has_ended_since_it_was_seen(teller: Path) -> None:
    with Symbolizer() as symbolizer:
        with running(teller) as process:
            known = told(process)
            assert symbolizer.observe(process.pid)
        time.sleep(0.06)  # longer than a look is believed
        check(symbolizer, process.pid, known, "teller")
        assert not symbolizer.notices


def test_a_process_that_nobody_saw_is_said_once(teller: Path) -> None:
    with running(teller) as process:
        known = told(process)
    with Symbolizer() as symbolizer:
        for _ in range(3):
            assert symbolizer.frame(process.pid, known["main"]) == Frame(known["main"])
        assert len(symbolizer.notices) == 1
        assert "ended before its mappings could be read" in symbolizer.notices[0]


@requires_root
def test_a_process_that_ended_at_once_was_noted(teller: Path) -> None:
    with Symbolizer(track_mappings=True) as symbolizer:
        assert not symbolizer.notices
        with running(teller) as process:
            known = told(process)
        check(symbolizer, process.pid, known, "teller")
        frame = symbolizer.frame(process.pid, known["qsort"])
        assert frame.symbol == "qsort"
        assert not symbolizer.notices


@requires_root
def test_a_child_that_only_forked_has_its_parents_functions(tmp_path: Path) -> None:
    source = TELLER.replace(
        "getchar();",
        "int child = fork(); if (!child) _exit(0); waitpid(child, 0, 0);"
        ' printf("child %x\\nend -\\n", child); fflush(stdout); getchar();',
    )
    program = compiled(
        tmp_path, "#include <unistd.h>\n#include <sys/wait.h>\n" + source, "-O0", name="forker"
    )
    with Symbolizer(track_mappings=True) as symbolizer, running(program) as process:
        known = told(process)
        child = told(process)["child"]
        check(symbolizer, child, known, "forker")


@requires_root
def test_a_process_in_a_mount_namespace_of_its_own(teller: Path, tmp_path: Path) -> None:
    folder = tmp_path / "inside"
    folder.mkdir()
    script = f"mount -t tmpfs none {folder} && cp {teller} {folder}/hidden && exec {folder}/hidden"
    with running(need_program("unshare"), "-m", "sh", "-c", script) as process:
        known = told(process)
        assert not (folder / "hidden").exists()
        with Symbolizer() as symbolizer:
            check(symbolizer, process.pid, known, "hidden")


def test_a_program_that_becomes_another(teller: Path, tmp_path: Path) -> None:
    second = compiled(tmp_path, TELLER, "-O0", "-no-pie", name="second")
    script = f"echo 'start 0'; echo 'end -'; read x; exec {second}"
    with running("sh", "-c", script) as process, Symbolizer() as symbolizer:
        told(process)
        symbolizer.observe(process.pid)
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
        known = told(process)
        time.sleep(0.06)
        check(symbolizer, process.pid, known, "second")


def test_a_snapshot_names_the_functions_when_the_process_is_gone(tmp_path: Path) -> None:
    program = compiled(tmp_path, TELLER, "-O0", "-Wl,--build-id")
    with Symbolizer() as symbolizer, running(program) as process:
        known = told(process)
        kept = json.loads(json.dumps(symbolizer.snapshot(process.pid)))
    with Symbolizer() as later:
        later.restore(process.pid, kept)
        check(later, process.pid, known, "teller")
    build_id = next(row[4] for row in kept["mappings"] if row[3] == str(program))
    folder = tmp_path / ".build-id" / build_id[:2]
    folder.mkdir(parents=True)
    debug = folder / f"{build_id[2:]}.debug"
    objcopy = need_program("objcopy", "binutils")
    subprocess.run([objcopy, "--only-keep-debug", program, debug], check=True, timeout=60)
    program.unlink()
    with Symbolizer(debug_root=str(tmp_path)) as later:  # what a distribution keeps of it
        later.restore(process.pid, kept)
        check(later, process.pid, known, "teller")
    compiled(tmp_path, TELLER + "int changed;", "-O0", "-g", "-Wl,--build-id")
    with Symbolizer() as later:  # another build: no wrong names
        later.restore(process.pid, kept)
        assert not later.frame(process.pid, known["main"]).symbol


@pytest.mark.parametrize(
    "snapshot",
    [{}, {"mappings": 1}, {"mappings": [[1, 2]]}, {"mappings": [[2, 1, 0, "/x", None]]}, []],
)
def test_a_damaged_snapshot_is_refused(snapshot: object) -> None:
    with Symbolizer() as symbolizer, pytest.raises(ValueError, match="snapshot"):
        symbolizer.restore(1, snapshot)  # type: ignore[arg-type]


# ---------------------------------------------------------------- perf maps


def test_a_perf_map_names_the_code_of_a_compiler(teller: Path) -> None:
    with running(teller) as process, Symbolizer() as symbolizer:
        address = told(process)["anonymous"]
        path = Path(f"/tmp/perf-{process.pid}.map")
        try:
            path.write_text(f"{address:x} 40 compiled one\n{address + 0x40:x} 20 two\n")
            frame = symbolizer.frame(process.pid, address + 8)
            assert frame == Frame(address + 8, "compiled one", 8, path.name)
            path.write_text(f"{address:x} 40 compiled one\n{address:x} 20 again\n")
            # After a rest, which is longer if the machine was busy while it was read.
            until(
                lambda: symbolizer.frame(process.pid, address + 8).symbol == "again",
                "the file to be read again",
            )
        finally:
            path.unlink()


@requires_root
def test_a_perf_map_of_a_stranger_is_not_used(teller: Path) -> None:
    with running(teller) as process:
        path = Path(f"/tmp/perf-{process.pid}.map")
        try:
            path.write_text("1000 40 evil\n")
            os.chown(path, 12345, 12345)
            perf_map = PerfMap(process.pid)
            assert not perf_map.refresh()
            assert "belongs to uid 12345" in perf_map.notices[0]
        finally:
            path.unlink()


def test_a_perf_map_that_is_a_link_or_a_fifo_is_not_used(teller: Path, tmp_path: Path) -> None:
    (tmp_path / "real").write_text("1000 40 evil\n")
    with running(teller) as process:
        path = Path(f"/tmp/perf-{process.pid}.map")
        for make in (lambda: path.symlink_to(tmp_path / "real"), lambda: os.mkfifo(path)):
            make()
            try:
                assert not PerfMap(process.pid).refresh()
            finally:
                path.unlink()


def test_lines_of_a_perf_map_that_make_no_sense_are_left_out() -> None:
    perf_map = PerfMap(1)
    perf_map.load(
        b"\n\0\xff\nzz 10 a\n1000\n1000 10\n-5 10 b\n2000 0 none\n"
        b"3000 10 "
        + b"x" * 10_000
        + b"\nffffffffffffffffffff 1 far\n4000 10 good name\n\xc3\x28 1 1\n5000 10 \xff\xfe"
    )
    assert perf_map.find(0x4008) == (0x4000, "good name")
    assert perf_map.find(0x5000) == (0x5000, "\udcff\udcfe")
    assert [perf_map.find(one) for one in (0, 0x1000, 0x2000, 0x3000, 0x4010)] == [None] * 5


def test_code_of_the_java_virtual_machine(tmp_path: Path) -> None:
    java, jcmd = need_program("java", "default-jdk"), need_program("jcmd", "default-jdk")
    source = tmp_path / "Loop.java"
    source.write_text(
        "class Loop { public static void main(String[] a) throws Exception {"
        ' System.out.println("end -"); System.out.flush(); System.in.read(); } }'
    )
    javac = shutil.which("javac")
    if javac is None:
        pytest.skip("needs the program javac: apt-get install default-jdk")
    subprocess.run([javac, "-d", str(tmp_path), str(source)], check=True, timeout=120)
    with running(java, "-Xint", "-cp", tmp_path, "Loop") as process:
        told(process)
        path = Path(f"/tmp/perf-{process.pid}.map")
        try:
            words = [jcmd, str(process.pid), "Compiler.perfmap"]
            subprocess.run(words, check=True, capture_output=True, timeout=60)
            if not path.exists():
                pytest.skip("needs jcmd Compiler.perfmap: Java 17 or newer")
            rows = [line.split(None, 2) for line in path.read_text().splitlines()]
            start, _, name = next(row for row in rows if row[2] == "Interpreter")
            with Symbolizer() as symbolizer:
                frame = symbolizer.frame(process.pid, int(start, 16) + 2)
            assert (frame.symbol, frame.offset, frame.module) == (name, 2, path.name)
        finally:
            path.unlink(missing_ok=True)
