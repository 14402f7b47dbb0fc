"""What both commands share: sizes, errors as one line, exit codes, commands loaded on demand."""

from __future__ import annotations

import os
import subprocess
import sys

import click
import pytest
from house import ROOT

from usdt.base.text import printable
from usdt.engine.cli.click_group import SIZE, LazyGroup


@pytest.mark.parametrize(
    ("text", "size"),
    [
        pytest.param("65536", 65536, id="bytes"),
        pytest.param("64K", 65536, id="kibibytes"),
        pytest.param("64k", 65536, id="in small letters"),
        pytest.param("8M", 8 << 20, id="mebibytes"),
        pytest.param("1G", 1 << 30, id="gibibytes"),
        pytest.param("8MB", 8 << 20, id="with a B"),
        pytest.param("8MiB", 8 << 20, id="with iB"),
        pytest.param(" 16K ", 16384, id="between blanks"),
        pytest.param("0", 0, id="nothing"),
        pytest.param(4096, 4096, id="a number, as defaults are"),
    ],
)
def test_sizes(text: str | int, size: int) -> None:
    assert SIZE.convert(text, None, None) == size


@pytest.mark.parametrize(
    "text",
    ["", "K", "-1", "+1", "1.5M", "8 M", "0x10", "1_000", "8T", "eight", "٣", "²", "9" * 5000],
    ids=lambda text: text[:10] or "nothing",
)
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(click.BadParameter, match=r"is not a size; write 65536, 64K or 8M\."):
        SIZE.convert(text, None, None)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param("plain: é漢", "plain: é漢", id="what shows"),
        pytest.param("a\nb\tc", "a\\nb\\tc", id="one line stays one line"),
        pytest.param("\x1b[2J\x9b", "\\x1b[2J\\x9b", id="control sequences"),
        pytest.param("\u202e\u2028", "\\u202e\\u2028", id="directions and separators"),
        pytest.param("\udcff\ud800", "\\udcff\\ud800", id="surrogates"),
        pytest.param("\U000e0001", "\\U000e0001", id="tags"),
    ],
)
def test_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown


_PROGRAM = """
import errno, os, sys
import click
from usdt.engine.cli.click_group import LazyGroup, run
from usdt.base import errors

@click.command()
@click.option("-n", type=int)
def main(n):
    {body}

sys.argv.insert(1, "go")
run(LazyGroup("tool", commands_at={{"go": ("__main__:main", "")}}), "tool")
"""


def program(body: str, *words: str) -> subprocess.CompletedProcess[str]:
    """A command with this body, run by run()."""
    return subprocess.run(
        [sys.executable, "-c", _PROGRAM.format(body=body), *words],
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


_ENDS = {
    "done": ("print('x')", 0, ""),
    "a code of its own": ("return 3", 3, ""),
    "an exit code by click": ("click.get_current_context().exit(4)", 4, ""),
    "an error of ours": (
        "raise errors.TargetError('no process 5')",
        1,
        "Error: no process 5\n",
    ),
    "a refused call": (
        "raise errors.SyscallError(errno.EPERM, 'bpf(BPF_PROG_LOAD)', 'run as root')",
        1,
        "Error: bpf(BPF_PROG_LOAD): Operation not permitted (run as root)\n",
    ),
    "an error of several lines": (
        "raise errors.ElfError('odd\\nname \\x1b[2J')",
        1,
        "Error: odd\\nname \\x1b[2J\n",
    ),
    "a file": ("open('/nowhere/at/all')", 1, "Error: /nowhere/at/all: No such file or directory\n"),
    "an error without a file": (
        "raise OSError(errno.EIO, os.strerror(errno.EIO))",
        1,
        "Error: Input/output error\n",
    ),
    "a probe that cannot be understood": (
        "raise errors.LanguageError('p:q(a =)', 6, 'found \\x1b')",
        2,
        "p:q(a =)\n      ^\nError: found \\x1b, at column 7\n",
    ),
    "endless recursion": (
        "f = lambda: f(); f()",
        1,
        "Error: the input is nested too deeply\n",
    ),
    "no thread": (
        'raise RuntimeError("can\'t start new thread")',
        1,
        "Error: can't start new thread: too little memory or too many threads (ulimit -v, -u)\n",
    ),
    "no memory": ("raise MemoryError", 1, "Error: out of memory\n"),
    "a broken pipe": ("raise BrokenPipeError", 0, ""),
    "a pipe broken below": ("raise OSError(errno.EPIPE, 'x')", 0, ""),
    "control-C": ("raise KeyboardInterrupt", 130, ""),
}


_INTERRUPTED = """
from usdt.base.interrupts import note_interrupts; import signal
    note_interrupts()
    class Descriptor:
        def __set_name__(self, owner, name):
            signal.raise_signal(signal.SIGINT)
    def class_(): type("Made", (), {"member": Descriptor()})
    def closed():
        try:
            signal.raise_signal(signal.SIGINT)
        finally:
            raise ValueError("a half-made thing cannot be closed")
    """


# Python 3.11 raises RuntimeError from a class that is being made; newer ones the interrupt itself,
# for which click begins a new line.
@pytest.mark.parametrize("what", ["class_()", "closed()"])
def test_what_an_interrupt_becomes_shows_no_traceback(what: str) -> None:
    done = program(_INTERRUPTED.strip() + "\n    " + what)
    assert (done.returncode, done.stdout, done.stderr.strip()) == (130, "", "")


@pytest.mark.parametrize(("body", "code", "error"), _ENDS.values(), ids=_ENDS)
def test_ends(body: str, code: int, error: str) -> None:
    done = program(body)
    assert done.stderr.strip() == error.strip()
    assert done.returncode == code
    if error:
        assert done.stdout == ""


def test_a_usage_error_is_2() -> None:
    done = program("pass", "-n", "x")
    assert done.returncode == 2
    assert "'x' is not a valid integer" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_closed_stream_is_no_trap(number: int) -> None:
    body = "print('x'); print(min(os.open('/', os.O_RDONLY), 9), file=sys.stderr)"
    script = f'exec "$0" "$@" {number}>&-'
    done = subprocess.run(
        ["/bin/sh", "-c", script, sys.executable, "-c", _PROGRAM.format(body=body)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    if number != 2:
        assert int(done.stderr) > 2, "no file of ours gets the number of a standard stream"


def test_a_reader_that_has_enough_ends_it_quietly() -> None:
    body = "[print('y' * 100) for _ in range(100000)]"
    reader, writer = os.pipe()
    with subprocess.Popen(
        [sys.executable, "-c", _PROGRAM.format(body=body)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        os.close(writer)
        os.read(reader, 100)
        os.close(reader)
        _, errors = process.communicate(timeout=100)
    assert (process.returncode, errors) == (0, "")


def test_names_that_the_output_cannot_show_are_escaped() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM.format(body="print('\\u00e9\\u6f22')")],
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == b"\\xe9\\u6f22\n"


# ------------------------------------------------------------------ commands on demand

_TABLE = {
    "known": ("tests_no_such_module:main", "A command."),
    "escape": ("html:escape", "Another."),
}


def _group() -> LazyGroup:
    return LazyGroup("tool", commands_at=_TABLE)


def test_commands_are_listed_without_importing_them() -> None:
    from click.testing import CliRunner

    found = CliRunner().invoke(_group(), ["--help"])
    assert found.exit_code == 0
    assert "known" in found.output
    assert "A command." in found.output
    assert _group().list_commands(click.Context(_group())) == ["known", "escape"]


def test_a_command_is_imported_when_it_is_run() -> None:
    import html

    context = click.Context(_group())
    assert _group().get_command(context, "escape") is html.escape
    with pytest.raises(ModuleNotFoundError):
        _group().get_command(context, "known")
    assert _group().get_command(context, "unknown") is None


@pytest.mark.parametrize(
    ("word", "message"),
    [
        pytest.param("knwon", "No such command 'knwon'. Did you mean 'known'?", id="misspelt"),
        pytest.param("zzzzz", "No such command 'zzzzz'.", id="nothing alike"),
    ],
)
def test_a_command_that_does_not_exist(word: str, message: str) -> None:
    from click.testing import CliRunner

    found = CliRunner().invoke(_group(), [word])
    assert found.exit_code == 2
    assert message in found.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["trace", "-c", 'x "unclosed', "a:b"], "No closing quotation"),
        (["trace", "-c", "", "a:b"], "-c: the command is empty"),
        (["hist", "--linear", "0:1", "/bin/sh:a:b(arg0)"], "expected LO:HI:STEP"),
        (["hist", "--linear", "9:1:1", "/bin/sh:a:b(arg0)"], "expected LO < HI"),
    ],
)
def test_values_that_are_parsed_late_are_usage_errors(words: list[str], message: str) -> None:
    argv = [sys.executable, "-c", "from usdt.cli import main; main()", *words]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert message in done.stderr


def _answer(*words: str, module: str = "kprobe") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", module, *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


@pytest.mark.parametrize(
    ("short", "full"),
    [
        (("-h",), ("--help",)),
        (("help",), ("--help",)),
        (("event", "define", "-h"), ("event", "define", "--help")),
        (("help", "event", "define"), ("event", "define", "--help")),
        (("ev", "def", "-h"), ("event", "define", "--help")),
        (("-V",), ("--version",)),
    ],
    ids=" ".join,
)
def test_short_ways_to_help_commands_and_the_version(
    short: tuple[str, ...], full: tuple[str, ...]
) -> None:
    expected, answer = _answer(*full), _answer(*short)
    assert answer.stdout == expected.stdout
    assert answer.returncode == expected.returncode == 0


def test_the_beginning_of_several_commands_names_them() -> None:
    answer = _answer("re", "x", module="usdt")
    assert answer.returncode == 2
    assert "No such command 're'. It could be record or report." in answer.stderr
