"""What is fuzzed: each target has seeds and a way to run a mutant, mostly through a command.

Commands run whole, since what they promise is what counts: they read the mutant from a file, find
the format themselves, and turn what is wrong with it into an error.
"""

from __future__ import annotations

import functools
import json
import struct
import subprocess
import tempfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from cpython_target import cpython_seeds, run_cpython
from debug_programs import C_SOURCE, CXX_SOURCE
from elfwriter import CODE, DATA, FORMATS, Section, note, probe_elf, symbols
from places_target import PLACE_SEEDS, run_places
from planning import EVERY_TYPE
from program_target import program_seeds, run_program
from recordings import CASES, make, many
from unwind_target import frame_ranges, run_unwind

from usdt.base.errors import BtfError, LanguageError, TracingError
from usdt.btf.format import Kind
from usdt.btf.reader import Btf
from usdt.btf.writer import BtfWriter
from usdt.elf.file import ElfFile

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from harness import Capture

__all__ = ("TARGETS", "Target")


_MAX_TYPES = 24  # of each mutant of BTF whose values are shown


class Target(NamedTuple):
    """A parser that takes bytes from outside.

    Attributes:
        seeds: returns inputs that are right.
        run: runs one input; what it raises, and what the harness measures, are findings.
        ranges: returns the parts of a seed that are worth mutating; None for all of it. Parts keep
            their length.
        repair: returns a mutant whose checksums are right again, where they would end its life.
    """

    seeds: Callable[[], Sequence[bytes]]
    run: Callable[[Capture, bytes], None]
    ranges: Callable[[bytes], Sequence[tuple[int, int]]] | None = None
    repair: Callable[[bytes], bytes] | None = None


def _usdt(capture: Capture, size: int, *arguments: str) -> None:
    from usdt.cli import main

    capture.command(main, ["usdt", *arguments], size)


def _kprobe(capture: Capture, size: int, *arguments: str) -> None:
    from kprobe.cli import main

    capture.command(main, ["kprobe", *arguments], size)


def _file(capture: Capture, data: bytes) -> str:
    capture.input.write_bytes(data)
    return str(capture.input)


def _text(data: bytes) -> str:
    # What a shell can pass: any bytes but NUL, as Python decodes the command line.
    return data.replace(b"\0", b" ").decode("utf-8", "surrogateescape")


def _check_message(error: TracingError) -> None:
    assert str(error).isprintable(), repr(str(error))


def _lines(texts: str) -> list[bytes]:
    return [line.encode() for line in texts.strip().splitlines()]


# ------------------------------------------------------------------------------ ELF, notes


def _elf_seeds() -> list[bytes]:
    seeds = []
    for fmt in FORMATS:
        notes = b"".join(
            (
                note(b"one", b"8@%rax", location=CODE, semaphore=DATA, fmt=fmt),
                note(b"two", b"-4@%eax 8@sv(%rip)", location=CODE + 1, fmt=fmt),
                note(b"three", location=CODE + 3, semaphore=DATA + 2, fmt=fmt),
            )
        )
        table = symbols([(1, 1, 2, DATA + 8)], fmt)
        sections = (Section(b".strtab", 3, b"\0sv\0"), Section(b".symtab", 2, table, link=5))
        seeds.append(probe_elf(notes, *sections, fmt=fmt))
    return seeds


def _run_elf(capture: Capture, data: bytes) -> None:
    path = _file(capture, data)
    _usdt(capture, len(data), "list", path)
    _usdt(capture, len(data), "info", f"{path}:*:*")
    _usdt(capture, len(data), "list", f"uprobe:{path}:*")


_ARGSPECS = """
-4@%eax 8@-24(%rbp) 8@sv(%rip) 4@$-7 8f@%xmm0 2@sv+4(%rip) 8@8(%rdi,%rax,4) 1@%ah
-4@tls@tpoff(%fs:0) 4@x0 -8@[sp, 16] 8@[x29, x1, lsl 3] 4@#12 8@[x0, w1, sxtw]
8@r3 -4@[r11, #-16] 4@#0 8@r31 4@8(31) 8@i12 8@-24(s0) 8@160(%r15) 4@%r2 8@$a0,8 -4@16($sp)
"""


def _run_argspec(capture: Capture, data: bytes) -> None:
    text = _text(data)
    for machine in ("x86_64", "aarch64", "armv7l", "ppc64le", "s390x", "riscv64", "mips64", "i686"):
        _usdt(capture, len(data), "decode", "--machine", machine, "--", text)


# ------------------------------------------------------------------------------ DWARF


@functools.cache
def _compiled(command: str, source: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        name = "x.cc" if "++" in command else "x.c"
        Path(folder, name).write_text(source)
        subprocess.run(
            [*command.split(), "-w", "-o", "x", name], cwd=folder, check=True, timeout=120
        )
        return Path(folder, "x").read_bytes()


def _dwarf_seeds() -> list[bytes]:
    return [
        _compiled("gcc -g -O1", C_SOURCE),
        _compiled("gcc -g -O1 -gdwarf-4", C_SOURCE),
        _compiled("g++ -g -O1", CXX_SOURCE),
        _compiled("g++ -g -O1 -fuse-ld=gold -Wl,--gdb-index", CXX_SOURCE),
        _compiled("clang++ -g -O1 -gdwarf-5 -gpubnames", CXX_SOURCE),
    ]


@functools.cache
def _debug_ranges(data: bytes) -> list[tuple[int, int]]:
    with ElfFile.from_bytes(data, "seed") as elf:
        return [
            (section.offset, section.offset + section.size)
            for section in elf.sections
            if section.name.startswith((".debug_", ".gdb_index")) and section.size
        ]


def _run_dwarf(capture: Capture, data: bytes) -> None:
    path = _file(capture, data)
    _usdt(capture, len(data), "info", f"uprobe:{path}:*")
    _usdt(capture, len(data), "check", f"uprobe:{path}:walk(n->at.x, return)")
    _usdt(capture, len(data), "check", f"uprobe:{path}:main(fl.n, shop::Thing::counter_, nothing)")
    cast = "((shop::Toy *)arg1)->age_, ((shop::Thing::Inner *)arg1)->l"  # types by name
    _usdt(capture, len(data), "check", f"uprobe:{path}:main({cast})")


def _run_lines(capture: Capture, data: bytes) -> None:
    from usdt.symbolize.file_symbols import FileSymbols

    path = _file(capture, data)
    try:
        with FileSymbols(path, debug_root="/nonexistent") as file:
            for address in range(0x1000, 0x1400, 0x10):
                file.find(address)
                file.locations(address)
            for notice in file.take_notices():
                assert notice.isprintable(), notice
    except TracingError as err:
        _check_message(err)


# ------------------------------------------------------------------------------ BTF


def _btf_seeds() -> list[bytes]:
    seeds = []
    for order in ("little", "big"):
        btf = BtfWriter(order)
        number = btf.integer("int", 4, 1)
        char = btf.integer("char", 1, 2)
        text = btf.array(char, 16)
        color = btf.enum("color", 4, [("RED", 0), ("BLUE", 5)])
        wide = btf.enum64("wide", 8, [("A", 1 << 40), ("B", -1)], signed=True)
        inner = btf.composite(Kind.UNION, "", 8, [("u", number, 0, 0), ("w", wide, 0, 0)])
        node = btf.composite(
            Kind.STRUCT,
            "node",
            64,
            [
                ("next", number + 7, 0, 0),
                ("a", number, 64, 3),
                ("b", number, 67, 9),
                ("name", text, 128, 0),
                ("", inner, 256, 0),
                ("c", color, 320, 0),
            ],
        )
        pointer = btf.pointer(node)
        btf.record(Kind.TYPEDEF, "node_t", node)
        btf.record(Kind.CONST, "", node)
        prototype = btf.prototype(number, [("n", pointer), ("", 0)])
        btf.record(Kind.FUNC, "walk", prototype, items=1)
        variable = btf.record(Kind.VAR, "here", node, [1])
        btf.section(".data", 64, [(variable, 0, 64)])
        btf.record(Kind.FLOAT, "double", 8)
        btf.record(Kind.DECL_TAG, "user", node, [-1])
        seeds.append(btf.data())
    return seeds


def _run_btf(capture: Capture, data: bytes) -> None:
    path = _file(capture, data)
    for format_ in ("raw", "c", "json"):
        _kprobe(capture, len(data), "btf", "--format", format_, path)
    for options in (["--compact"], ["--json"], ["--concise"], ["--compat", "libbpf"], []):
        content = bytes(range(96)).hex()
        arguments = ["--btf", path, "--hex", content, "--emit-zeroes", *options]
        _kprobe(capture, len(data), "dump", *arguments, "struct node")


def _size(btf: Btf, number: int) -> int:
    try:
        return btf.size_of(number)
    except BtfError:
        return 0


def _run_values(_: Capture, data: bytes) -> None:
    from usdt.btf.values import Options, Renderer, render_libbpf
    from usdt.btf.values.compact import CompactFormatter
    from usdt.btf.values.json_codegen import JsonCodegen
    from usdt.btf.values.read_plan import ReadPlans, max_text

    value = bytes(range(96))
    try:
        btf = Btf(data, name="input")
        for number in range(btf.first, min(btf.end, btf.first + _MAX_TYPES)):
            for show in (
                lambda one: Renderer(btf).render(one, value).text,
                lambda one: Renderer(btf, Options(emit_zeroes=True)).render(one, value[:7]).text,
                lambda one: render_libbpf(btf, one, value).text,
                lambda one: CompactFormatter(btf).line(one, value),
                lambda one: json.dumps(ReadPlans(btf).read(one, value)),
                lambda one: str(JsonCodegen(btf, text=True).function(one)),
            ):
                try:
                    text = show(number)
                except BtfError as err:
                    _check_message(err)
                else:
                    size = _size(btf, number)
                    assert len(text) <= 8 * max_text(max(size, len(value))), len(text)
    except BtfError as err:
        _check_message(err)


# ------------------------------------------------------------------------------ recordings


def _recording_seeds() -> list[bytes]:
    numbers = [case for case, _, _ in CASES]
    return [make(CASES, many(numbers * 4)), make(CASES, many(numbers), close=False)]


def _repair_recording(data: bytes) -> bytes:
    # Blocks: kind, length, records, CRC of the content, CRC of the start.
    fixed, position = bytearray(data), 8
    while position + 24 <= len(fixed):
        length = struct.unpack_from("<I", fixed, position + 4)[0]
        content = bytes(fixed[position + 24 : position + 24 + length])
        struct.pack_into("<I", fixed, position + 12, zlib.crc32(content))
        start = bytes(fixed[position : position + 20])
        struct.pack_into("<I", fixed, position + 20, zlib.crc32(start))
        position += 24 + length
    return bytes(fixed)


def _run_recording(capture: Capture, data: bytes) -> None:
    path = _file(capture, data)
    for form in ([], ["--json"], ["--csv"], ["--chrome"], ["--folded"], ["--header"]):
        _usdt(capture, len(data), "report", path, *form)


# ------------------------------------------------------------------------------ texts

_PROBES = """
postgresql:query__start(str(arg0), arg1 > 5 && pid != 7, comm, ustack)
uprobe:libc:malloc(arg0 + return * 2, buf(arg0, 16), *(int *)arg0)
/usr/bin/x:p*:n?(ts, (unsigned long)arg1 >> 3, arg2 ~ 4, sp->a.b[3]->c, -1 ? 2 : 3)
kprobe:vfs_*(file->f_path.dentry->d_name.name, hex(arg1), "a\\x00b\\n" == str(arg2), return)
tracepoint:sched:sched_switch(prev_comm, next_pid, args, cpu, nsecs / 1000000 % 60)
(struct sk_buff *)arg0, ((struct a *)arg1)->b[2], &x->y, !z, ~w, sizeof(int), 'c', 0x7fu, arrayed[1]
"""


def _run_language(capture: Capture, data: bytes) -> None:
    from usdt.engine.compiler.plan import make_plan
    from usdt.engine.language import parse_items, parse_probe, render

    text = data.decode("utf-8", "surrogateescape")
    try:
        items = parse_probe(text).items
    except LanguageError as err:
        _check_message(err)
        return
    for item in items:
        shown = render(item.expression)
        assert render(parse_items(shown)[0].expression) == shown
    try:
        make_plan(items, EVERY_TYPE, text=text, probe="p:n", declared=0)
    except TracingError as err:
        _check_message(err)


_MANGLED = """
_ZNSt6vectorIiSaIiEE9push_backERKi
_Z1fIA30_cEvRKT_
_ZN4shop3putERNS_3ToyEONS_5PriceERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEENS_4KindE
_ZZ4mainENKUlT_E_clIiEEDaS_
_Z3barIXadL_Z3fooiEEEvDTcl1gfp_EE
_RNvNtCs1234_7mycrate3foo3bar
_RINvNtC3std3mem8align_ofNtNtC3foo3bar3BazE
_ZN4core3fmt9Formatter9write_str17h0123456789abcdefE
_GLOBAL__sub_I__ZN1a1bE
"""


def _run_demangle(capture: Capture, data: bytes) -> None:
    from usdt.demangle.demangle import demangle

    demangle.cache_clear()
    name = data.decode("latin-1")
    assert len(demangle(name)) <= 4096 + 64 * len(name)


_EVENTS = """
p:grp/ev do_sys_openat2 name=+0($arg2):ustring mode=%cx:u32 st=$stack2 c=$comm
r8:x vfs_read $retval:x64 +8(+16(%di)):s32[4]
p vfs_write+0x10 file=file->f_path.dentry->d_name.name:string buf count:b4@2/32
f:ff vfs_read%return ret=$retval
e:ee sched.sched_switch p=$prev_comm:string
-:grp/ev
t:tt sched_switch prev->pid
"""


def _run_event(capture: Capture, data: bytes) -> None:
    _kprobe(capture, len(data), "event", "define", "--dry-run", "--", _text(data))


_FORMAT = b"""name: sched_switch
ID: 316
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

\tfield:char prev_comm[16];\toffset:8;\tsize:16;\tsigned:0;
\tfield:long prev_state;\toffset:24;\tsize:8;\tsigned:1;
\tfield:__data_loc char[] name;\toffset:32;\tsize:4;\tsigned:0;

print fmt: "prev=%s state=%s%-4d %pS name=%s", REC->prev_comm, (REC->prev_state & ((((0x1 | 0x2) + \
1) << 1) - 1)) ? __print_flags(REC->prev_state & 3, "|", { 0x1, "S" }, { 2, "D" }) : "R", \
(int)REC->common_pid * 2, (void *)0x10, __get_str(name)
"""


def _run_format(capture: Capture, data: bytes) -> None:
    from usdt.tracefs.format import parse_format
    from usdt.tracefs.format.fields import read
    from usdt.tracefs.format.named_values import named_fields
    from usdt.tracefs.format.print_fmt import Printer

    try:
        form = parse_format(data.decode("utf-8", "replace"))
        record = memoryview(bytes(range(64)))
        values = {field.name: read(record, field) for field in form.fields}
        named_fields(form)
        shown = Printer(form).text(values)
    except TracingError as err:
        _check_message(err)
        return
    assert len(shown) <= 8192 + 64 * len(data)


def _batch_seeds() -> list[bytes]:
    orders = [
        {"type": "struct list_head", "data": "00" * 16, "compact": True},
        {"type": "u32", "data": "0a000000", "indent_level": 2, "emit_zeroes": True},
        {"type": "struct path *", "data": "ff" * 8, "skip_names": True},
    ]
    return ["".join(json.dumps(order) + "\n" for order in orders).encode()]


def _run_batch(capture: Capture, data: bytes) -> None:
    with capture.standard_input(data):
        _kprobe(capture, len(data), "dump", "--batch")


def _ldcache_seeds() -> list[bytes]:
    return [Path("/etc/ld.so.cache").read_bytes()[:8192]]


def _run_ldcache(capture: Capture, data: bytes) -> None:
    from usdt.targets.search.ldcache import parse_cache

    parse_cache(data)


def _sideband_seeds() -> list[bytes]:
    body = struct.pack("=IIQQQIIQII", 7, 7, 0x1000, 0x2000, 0, 8, 1, 99, 5, 2)
    body += b"/usr/lib/libc.so.6\0\0\0\0\0\0" + bytes(24)
    return [struct.pack("=IHH", 10, 0, 8 + len(body)) + body]


def _run_sideband(capture: Capture, data: bytes) -> None:
    from usdt.bpf.perf.sideband import parse_records

    for _ in parse_records(data):
        pass


def _page_seeds() -> list[bytes]:
    # Time stamp, bytes in use, then an event of 12 bytes, a long one, an extension of the time.
    events = struct.pack("=I8s", 2 | 100 << 5, b"\1\0\0\0abcd") + struct.pack(
        "=II8s", 0, 12, b"x" * 8
    )
    events += struct.pack("=II", 30 | 5 << 5, 7) + struct.pack("=II", 29 | 1 << 5, 4)
    return [struct.pack("=QQ", 1 << 40, len(events) | flags) + events for flags in (0, 3 << 30)]


def _run_page(_: Capture, data: bytes) -> None:
    from usdt.tracefs.pages import PageLayout, read_page

    for layout in (PageLayout(8, 8, 16, 4096), PageLayout(8, 4, 12, 4096)):
        for _, record in read_page(data, layout).events:
            assert len(record) <= len(data)


def _perf_map_seeds() -> list[bytes]:
    return [b"7f0012340000 40 py::main:/srv/app.py\n7f0012340040 1c0 lambda (x)\n0x10 0x20 a b c\n"]


def _run_perf_map(_: Capture, data: bytes) -> None:
    from usdt.symbolize.perfmap import PerfMap

    jit = PerfMap(1)
    jit.load(data)
    for address in (0, 0x10, 0x7F0012340041, (1 << 64) - 1):
        jit.find(address)


def _split(lines: list[bytes]) -> Callable[[], list[bytes]]:
    return lambda: lines


#: Name → target.
TARGETS: dict[str, Target] = {
    "elf": Target(_elf_seeds, _run_elf),
    "argspec": Target(_split(_lines(_ARGSPECS)), _run_argspec),
    "dwarf": Target(_dwarf_seeds, _run_dwarf, ranges=_debug_ranges),
    "places": Target(
        lambda: [_compiled(*seed) for seed in PLACE_SEEDS], run_places, ranges=_debug_ranges
    ),
    "lines": Target(_dwarf_seeds, _run_lines, ranges=_debug_ranges),
    "unwind": Target(_dwarf_seeds, run_unwind, ranges=frame_ranges),
    "cpython": Target(cpython_seeds, run_cpython),
    "values": Target(_btf_seeds, _run_values),
    "btf": Target(_btf_seeds, _run_btf),
    "recording": Target(_recording_seeds, _run_recording, repair=_repair_recording),
    "language": Target(_split(_lines(_PROBES)), _run_language),
    "program": Target(program_seeds, run_program),
    "demangle": Target(_split(_lines(_MANGLED)), _run_demangle),
    "event": Target(_split(_lines(_EVENTS)), _run_event),
    "format": Target(_split([_FORMAT]), _run_format),
    "json": Target(_batch_seeds, _run_batch),
    "ldcache": Target(_ldcache_seeds, _run_ldcache),
    "page": Target(_page_seeds, _run_page),
    "perfmap": Target(_perf_map_seeds, _run_perf_map),
    "sideband": Target(_sideband_seeds, _run_sideband),
}
