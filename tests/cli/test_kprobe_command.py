"""``kprobe info``, ``list``, ``dump`` and ``btf`` as users run them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fork_server import run as run_command
from tracing_tools import one_error

import kprobe
from kprobe.functions.symbols import FtraceFunctions, Kallsyms, have_kprobes, read_ftrace_functions
from usdt.base.errors import BtfError
from usdt.btf.files import KERNEL
from usdt.btf.format import Encoding, Kind
from usdt.btf.writer import BtfWriter

KPROBE = str(Path(sys.executable).with_name("kprobe"))

need_vmlinux = pytest.mark.skipif(
    not Path(KERNEL).exists(), reason="needs CONFIG_DEBUG_INFO_BTF: /sys/kernel/btf/vmlinux"
)


def run(*words: object, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return run_command([KPROBE, *map(str, words)], given=stdin, timeout=120)


def output(*words: object, stdin: str = "") -> str:
    done = run(*words, stdin=stdin)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Raw BTF: int (1), struct point (2), char (3), struct named (5), enum (6)."""
    out = BtfWriter()
    number = out.integer("int", 4, Encoding.SIGNED)
    out.composite(Kind.STRUCT, "point", 8, [("x", number, 0, 0), ("y", number, 32, 0)])
    name = out.array(out.integer("char", 1, Encoding.SIGNED), 4)
    out.composite(Kind.STRUCT, "named", 8, [("name", name, 0, 0), ("n", number, 32, 0)])
    out.enum("color", 4, [("RED", 1)])
    out.composite(Kind.STRUCT, "\033[31m", 4, [("x", number, 0, 0)])
    path = tmp_path / "btf"
    path.write_bytes(out.data())
    return path


# ---------------------------------------------------------------- dump

POINT = "01000000feffffff"


def test_a_value_as_text(file: Path) -> None:
    words = ("dump", "--btf", file, "struct point", "--hex", POINT)
    assert output(*words) == "(struct point){\n\t.x = (int)1,\n\t.y = (int)-2,\n}\n"
    assert output(*words, "--compact") == "(struct point){.x = (int)1,.y = (int)-2,}\n"
    assert output(*words, "--compact", "--skip-names") == "{1,-2,}\n"
    assert output(*words, "--indent", 2).startswith("(struct point){\n  .x")
    assert output(*words, "--json") == '{"x": 1, "y": -2}\n'
    assert output(*words, "--concise") == "{x=1, y=-2}\n"
    assert output("dump", "--btf", file, "2", "--hex", "00 00 00 00\n00000000", "--emit-zeroes")
    strings = ("dump", "--btf", file, "struct named", "--hex", "6162000001000000", "--emit-strings")
    assert '.name = (char[4])"ab",\n' in output(*strings)
    assert '\t"ab"\t' in output(*strings, "--compat", "libbpf")


def test_data_that_is_too_short(file: Path) -> None:
    done = run("dump", "--btf", file, "struct point", "--hex", POINT[:8], "--compact")
    assert done.stdout == "(struct point){.x = (int)1,\n"
    assert "4 bytes of data: too few (E2BIG)" in one_error(done)


def test_batches(file: Path) -> None:
    requests: list[Any] = [
        {"type": "struct point", "data": POINT, "compact": True},
        {"type": 2, "data": POINT, "indent": "  ", "indent_level": 1},
        {"type": "2", "data": POINT[:8], "compact": True, "skip_names": True},
        {"type": "enum color", "data": "00000000", "compat": "libbpf"},
        {"type": "struct point", "data": "0" * 16, "emit_zeroes": True, "compact": True},
        {"type": "struct nothing", "data": ""},
        {"type": "struct point", "data": "xy"},
        {"type": "struct point", "data": POINT, "colour": 1},
        {"type": "struct point", "data": POINT, "compact": "yes"},
        {"type": "struct point", "data": POINT, "compat": "gdb"},
        {"type": None},
        7,
    ]
    text = "\n".join(map(json.dumps, requests)) + "\nno JSON\n\n"
    answers = [
        json.loads(line)
        for line in output("dump", "--batch", "--btf", file, stdin=text).splitlines()
    ]
    assert answers[:5] == [
        {"text": "(struct point){.x = (int)1,.y = (int)-2,}", "size": 8},
        {"text": "  (struct point){\n    .x = (int)1,\n    .y = (int)-2,\n  }", "size": 8},
        {"text": "{1,", "error": "E2BIG"},
        {"text": "(enum color)0", "size": 4},
        {"text": "(struct point){.x = (int)0,.y = (int)0,}", "size": 8},
    ]
    assert len(answers) == len(requests) + 1
    for answer in answers[5:]:
        assert (answer["text"], answer["error"]) == ("", "EINVAL")
        assert answer["message"]


def test_options_are_the_defaults_of_a_batch(file: Path) -> None:
    text = json.dumps({"type": 2, "data": POINT}) + "\n"
    answer = json.loads(output("dump", "--batch", "--btf", file, "--compact", stdin=text))
    assert answer["text"] == "(struct point){.x = (int)1,.y = (int)-2,}"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["dump"], 2),
        (["dump", "struct point"], 2),
        (["dump", "--batch", "struct point"], 2),
        (["dump", "struct point", "--hex", "00", "--compat", "gdb"], 2),
        (["dump", "struct point", "--hex", "xy"], 1),
        (["dump", "struct pont", "--hex", "00"], 1),
        (["info"], 2),
        (["btf", "--format", "yaml"], 2),
        (["btf", "/no/such/file"], 1),
        (["btf", "/bin/sh"], 1),
        (["btf", "--base", "/etc/passwd"], 1),
        (["list", "no_such_function_*"], 1),
    ],
    ids=lambda part: " ".join(part) if isinstance(part, list) else str(part),
)
@need_vmlinux
def test_errors_are_one_line(words: list[str], code: int) -> None:
    one_error(run(*words), code=code)


def test_names_reach_no_terminal_unescaped(file: Path) -> None:
    text = output("dump", "--btf", file, "7", "--hex", "01000000")
    assert r"struct \x1b[31m" in text
    for words in ([], ["--format", "c"], ["--format", "json"]):
        text += output("btf", file, *words)
    assert "\033" not in text


# ---------------------------------------------------------------- btf


def test_types_of_a_file_in_three_formats(file: Path) -> None:
    raw = output("btf", file)
    assert raw.splitlines()[1:3] == [
        "[2] STRUCT 'point' size=8 vlen=2",
        "\t'x' type_id=1 bits_offset=0",
    ]
    found = json.loads(output("btf", file, "--format", "json"))
    assert [one["kind"] for one in found["types"]][:3] == ["INT", "STRUCT", "INT"]
    assert "struct point {\n\tint x;\n\tint y;\n};\n" in output("btf", file, "--format", "c")


def test_types_on_a_base(file: Path, tmp_path: Path) -> None:
    base = kprobe.types(str(file)).btf
    out = BtfWriter(first=base.end, strings_before=base.strings_end)
    out.pointer(2)
    split = tmp_path / "split"
    split.write_bytes(out.data())
    assert output("btf", split, "--base", file) == f"[{base.end}] PTR '(anon)' type_id=2\n"


@need_vmlinux
def test_a_closed_pipe_ends_quietly() -> None:
    done = subprocess.run(
        ["sh", "-c", '"$1" btf | head -n 1', "sh", KPROBE],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    assert done.stdout.startswith("[1] ")


# ---------------------------------------------------------------- info and list


@need_vmlinux
def test_prototypes_in_c() -> None:
    done = run("info", "tcp_sendmsg", "do_mmap", "_printk")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert lines[0] == "int tcp_sendmsg(struct sock *sk, struct msghdr *msg, size_t size);"
    assert lines[1].count(",") >= 7  # all of its arguments
    assert "int _printk(const char *fmt, ...);" in lines
    assert ("no kprobes" in done.stderr) is not have_kprobes()


@need_vmlinux
def test_functions_as_json() -> None:
    found = json.loads(output("info", "--json", "vprintk"))
    assert (found["name"], found["module"], found["return"]) == ("vprintk", None, "int")
    assert found["parameters"][0] == {"name": "fmt", "type": "const char *"}
    assert found["variadic"] is False
    assert len(found["addresses"]) == 1


@need_vmlinux
def test_globs_and_modules() -> None:
    names = re.findall(r"(\w+)\(", output("info", "tcp_sendm*"))
    assert {"tcp_sendmsg", "tcp_sendmsg_locked"} <= set(names)
    assert output("info", "vmlinux:tcp_sendmsg") == output("info", "kprobe:tcp_sendmsg")
    assert "nearest is tcp_sendmsg" in one_error(run("info", "tcp_sendmsgg"))
    one_error(run("info", "no_such_module:tcp_sendmsg"))


def test_a_function_without_a_name_is_none() -> None:
    assert Kallsyms(b"ffffffff81000000 t .E_copy\n").name_and_variants("") == ([], [])


@need_vmlinux
def test_inlined_and_renamed_functions_say_so() -> None:
    text = Path("/proc/kallsyms").read_bytes()
    renamed = re.search(rb" t (?!__pfx_)(\w+)\.(isra|constprop|part)\.\d+$", text, re.MULTILINE)
    if renamed and b" t " + renamed[1] + b"\n" not in text:
        name = renamed[1].decode()
        shown = output("info", name)
        assert f"{name}.{renamed[2].decode()}" in shown
    known = {name.decode() for name in re.findall(rb" [tTwW] (\S+)", text)}
    names = [name for _, name in kprobe.types().btf.named(Kind.FUNC)]
    for gone in [name for name in names if name not in known][:1]:
        assert f"/* {gone}: cannot be attached: " in output("info", gone)
    reach = read_ftrace_functions()
    if not reach.problem:
        hidden = next(name for name in names if name in known and name not in reach)
        assert f"/* {hidden}: cannot be attached: notrace" in output("info", hidden)
        assert "tcp_sendmsg" in reach
        assert output("info", "tcp_sendmsg").count("\n") == 1


@need_vmlinux
def test_definitions_of_types() -> None:
    assert output("info", "--type", "struct list_head", "--type", "u32") == (
        "struct list_head {\n\tstruct list_head *next;\n\tstruct list_head *prev;\n};\n"
        "typedef __u32 u32;\n"
    )
    needed = output("info", "--type", "struct hlist_head", "--needed")
    assert needed.index("struct hlist_node") < needed.index("struct hlist_head {")
    assert output("info", "--type", "runqueues") == "extern struct rq runqueues;\n"
    variable = output("info", "--type", "runqueues", "--needed")
    assert variable.index("struct rq {") < variable.index("extern struct rq runqueues;")
    assert "nearest is struct sk_buff" in one_error(run("info", "--type", "struct skbuf"))


def test_functions_are_listed() -> None:
    every = output("list", "tcp_send*").splitlines()
    assert "tcp_sendmsg" in every
    assert all(line.startswith("tcp_send") for line in every)
    assert every == sorted(every)
    assert not [line for line in output("list").splitlines() if line.startswith("__pfx_")]
    record = json.loads(output("list", "--json", "tcp_sendmsg"))
    assert record == {"kind": "function", "name": "tcp_sendmsg", "module": None}


# ---------------------------------------------------------------- the parts


KALLSYMS = b"""\
ffffffff81000000 T start
ffffffff81000010 t twice
ffffffff81000020 t twice
ffffffff81000030 t gone.isra.0
ffffffff81000040 t gone.isra.0.cold
ffffffff81000050 T __pfx_start
ffffffff81000060 D start_data
ffffffffc0000000 t helper\t[mod]
ffffffffc0000010 t a_start
ffffffffc0000020 W start_again
"""


def test_symbols_by_name() -> None:
    known = Kallsyms(KALLSYMS)
    assert [one.address & 0xFF for one in known.named("twice")] == [0x10, 0x20]
    assert [one.address & 0xFF for one in known.named("start")] == [0]
    assert known.named("start_data") == known.named("gone") == known.named("nothing") == []
    assert [one.module for one in known.named("helper")] == ["mod"]
    assert [one.name for one in known.variants("gone")] == ["gone.isra.0"]
    assert known.families() == {"gone": ["gone.isra.0"]}
    names = [one.name for one in known.functions()]
    assert names == ["start", "twice", "twice", "gone.isra.0", "helper", "a_start", "start_again"]


def test_traceable_functions() -> None:
    known = FtraceFunctions(b"one\ntwo [mod]\n")
    assert "one" in known
    assert "two" in known
    assert "on" not in known
    assert [(one.name, one.module) for one in known.functions()] == [("one", ""), ("two", "mod")]
    assert bool(read_ftrace_functions().functions()) is not bool(read_ftrace_functions().problem)


# ---------------------------------------------------------------- Python


def test_types_from_python(file: Path) -> None:
    point = kprobe.types(str(file))["struct point"]
    data = bytes.fromhex(POINT)
    assert (point.id, point.size) == (2, 8)
    assert point.declaration == "struct point {\n\tint x;\n\tint y;\n};\n"
    assert point.render(data, compact=True) == "(struct point){.x = (int)1,.y = (int)-2,}"
    assert point.rendered(data).size == 8
    assert point.value(data) == {"x": 1, "y": -2}
    assert point.line(data) == "{x=1, y=-2}"
    with pytest.raises(ValueError, match="compat"):
        point.render(data, compat="gdb")
    with pytest.raises(TypeError):
        point.render(data, color=True)
    with pytest.raises(BtfError):
        kprobe.types(str(file))["struct line"]


@need_vmlinux
def test_the_kernels_types_from_python() -> None:
    buffer = kprobe.types()["struct sk_buff"]
    assert buffer.render(bytes(buffer.size), compact=True) == "(struct sk_buff){}"
    assert ".len = (unsigned int)4294967295," in buffer.render(b"\xff" * buffer.size, compact=True)


def test_a_fifo_without_a_writer_holds_nobody_up(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    assert str(fifo) in one_error(run("btf", fifo))


def test_a_file_of_a_terabyte_is_refused_by_its_size(tmp_path: Path) -> None:
    path = tmp_path / "sparse"
    with path.open("wb") as sparse:
        sparse.truncate(1 << 40)
    limit = f"--as={512 << 20}"
    limited = ["prlimit", limit, "--", sys.executable, "-m", "kprobe", "btf", str(path)]
    done = subprocess.run(limited, capture_output=True, text=True, check=False, timeout=100)
    assert "more than 1024 MiB" in one_error(done)


@pytest.mark.parametrize("command", ["info", "list"])
def test_what_traces_nothing_takes_no_options_of_traces(command: str) -> None:
    code = (
        f"import sys; sys.argv = ['kprobe', {command!r}, '--help']\n"
        "import atexit\n"
        "atexit.register(lambda: print(*sys.modules, file=sys.stderr))\n"
        "from kprobe.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "--btf" in done.stdout
    assert "usdt.engine.cli.options" not in done.stderr.split()
