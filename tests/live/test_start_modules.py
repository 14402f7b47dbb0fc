"""What a short trace loads: a start costs mostly imports."""

from __future__ import annotations

import subprocess
import sys

from fixtures import build
from processes import running

from usdt.bpf.features import have_uprobe_multi, links_filter_processes

PROGRAM = """
import contextlib, io, sys
from usdt.cli import main
with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
    sys.argv = ["usdt", "trace", *sys.argv[1:]]
    main()
print(*sorted(sys.modules))
"""
UNUSED = (
    "array",
    "dataclasses",
    "elftools",
    "encodings.ascii",
    "fnmatch",
    "heapq",
    "json",
    "math",
    "signal",
    "usdt.btf.reader",
    "usdt.cpython.layouts",
    "usdt.dwarf.info",
    "usdt.elf.debug_files",
    "usdt.elf.got_slots",
    "usdt.elf.symbol_table",
    "usdt.elf.symbol_tables",
    "usdt.engine.aggregate",
    "usdt.engine.cli.aggregate_options",
    "usdt.engine.cli.completion.values",
    "usdt.engine.compiler.codegen.entry_state",
    "usdt.engine.compiler.codegen.expressions.arithmetic",
    "usdt.engine.compiler.codegen.expressions.strings",
    "usdt.engine.compiler.entry_return",
    "usdt.engine.language.rendering",
    "usdt.engine.output.cgroup_names",
    "usdt.engine.output.formatters.event",
    "usdt.engine.output.formatters.event_records",
    "usdt.engine.output.formatters.json",
    "usdt.engine.output.socket_addresses",
    "usdt.engine.output.streams.header",
    "usdt.engine.output.streams.json_stream",
    "usdt.runtimes.hotspot",
    "usdt.symbolize.symbolizer",
    "usdt.unwind.unwinder",
    "usdt.uprobes.unsafe_instructions",
    "kprobe",
    "shlex",
    "usdt.engine.run.protocols",
)
# Without uprobe_multi, many sites may be an event of tracefs.
UNUSED_NOW = (
    "fcntl",
    "pathlib",
    "usdt.bpf.kprobes",
    "usdt.bpf.objects",
    "usdt.tracefs.uprobe_event",
)
# Where no older feature need be tried.
UNUSED_NOW_WITH_SESSIONS = ("usdt.btf.writer",)
UNUSED_WITHOUT_ITEMS = (
    "usdt.elf.dynamic",
    "usdt.engine.compiler.constant_folding",
    "usdt.engine.compiler.resolve.expressions",
    "usdt.targets.search.target_files",
    "zlib",
)


def loaded_by(*words: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert "1 event, 0 lost" in done.stderr
    loaded = set(done.stdout.split())
    assert "usdt.engine.runtime.session" in loaded
    return loaded


def unused_now() -> tuple[str, ...]:
    newest = UNUSED_NOW_WITH_SESSIONS if links_filter_processes() else ()
    return UNUSED + newest + (UNUSED_NOW if have_uprobe_multi() else ())


def test_a_trace_of_integers_loads_only_what_it_needs() -> None:
    loaded = loaded_by("-c", f"{build('default', 'loop')} -n 1", "loop:hit(arg0, arg1 > -1)")
    assert [name for name in unused_now() if name in loaded] == []


def test_a_trace_without_items_loads_even_less() -> None:
    with running(build("default", "loop"), "-n", "100000000", "-s", "1000") as loop:
        loaded = loaded_by("-p", str(loop.pid), "loop:hit", "-n", "1")
    unused = unused_now() + UNUSED_WITHOUT_ITEMS
    assert [name for name in unused if name in loaded] == []
