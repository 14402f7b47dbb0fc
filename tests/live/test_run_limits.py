"""Programs that are larger than what the kernel, or an instruction, takes: each has one error."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from skips import need_program

from usdt.base.errors import ProgramError, SyscallError

if TYPE_CHECKING:
    from program_runs import Run

_COMMAND = Path(sys.executable).with_name("usdt")
_LONG = "a" * 40000

# Program → where its error is, and the beginning of it.
_TOO_LARGE = {
    f'BEGIN {{ print("{_LONG}"); exit(); }}': "-e:1:1: begin: what one call prints has 40024 bytes",
    f'BEGIN {{ $x = "{_LONG}"; @a = $x; exit(); }}': "-e:1:1: begin: its values have 40016 bytes",
    "config = { max_strlen = 16384 }\nEND { $s = str(0); @t = ($s, $s, $s); }": (
        "-e:2:1: end: its values have"
    ),
    "struct A { int x[7000]; } BEGIN { $a = *(struct A *)0; print(($a, $a)); exit(); }": (
        "-e:1:27: begin: what one call prints has 56016 bytes"
    ),
}


@pytest.mark.parametrize("text", _TOO_LARGE)
def test_values_beyond_the_reach_of_instructions(run: Run, text: str) -> None:
    with pytest.raises(ProgramError) as caught:
        run(text)
    assert str(caught.value).startswith(_TOO_LARGE[text])
    assert "at most 32768: set max_strlen, or divide the values" in str(caught.value)


def test_values_that_instructions_just_reach(run: Run) -> None:
    text = "a" * 32000
    assert run(f'BEGIN {{ $x = "{text}"; print($x); exit(); }}') == f"{text}\n"


def test_a_program_of_more_instructions_than_the_kernel_takes(run: Run) -> None:
    text = "a" * 20000  # three instructions for eight characters
    with pytest.raises(SyscallError) as caught:
        run(f'BEGIN {{ unroll(70) {{ print("{text}"); print("{text}"); }} exit(); }}')
    assert "instructions; the kernel takes at most 1000000" in str(caught.value)


@pytest.mark.parametrize(
    "probe", ["BEGIN", "END", "iter:task", "uprobe:libc:malloc", "interval:ms:1"]
)
def test_jumps_that_are_longer_than_an_instruction_takes(run: Run, probe: str) -> None:
    body = "@a[$x] = $x; " * 1500
    with pytest.raises(ProgramError) as caught:
        run(f"BEGIN {{ $x = 1; }}\n {probe} {{ $x = 2; if ($x == 2) {{ {body} }} exit(); }}")
    reason = "a jump of its code passes more than 32767 instructions"
    assert str(caught.value).startswith(f"-e:2:2: {probe.lower()}: {reason}: divide the body")


@pytest.mark.parametrize("given", ["a file", "standard input"])
def test_a_script_without_an_end(given: str) -> None:
    with open("/dev/zero", "rb") as zeros:  # noqa: PTH123 - beside the other spelling, "-"
        command = [_COMMAND, "run", "/dev/zero" if given == "a file" else "-"]
        done = subprocess.run(command, stdin=zeros, capture_output=True, text=True, check=False)
    name = "/dev/zero" if given == "a file" else "standard input"
    error = f"Error: {name}:1:1: a program has at most 1048576 characters, this one has more"
    assert done.stderr.splitlines()[-1] == error
    assert done.returncode == 2


@pytest.mark.parametrize("given", ["a file", "standard input"])
def test_a_byte_order_mark_is_no_part_of_a_script(given: str, tmp_path: Path) -> None:
    script = tmp_path / "script.bt"
    script.write_text('BEGIN { printf("read\\n"); exit(); }', encoding="utf-8-sig")
    with script.open("rb") as file:
        command = [_COMMAND, "run", "-q", "-" if given == "standard input" else script]
        done = subprocess.run(command, stdin=file, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[0] == "read", done.stderr


def test_a_map_larger_than_memory(run: Run) -> None:
    # Half a terabyte in few entries: the kernel makes the table of all keys first.
    settings = "config = { max_strlen = 16000; max_map_keys = 16777216 }"
    text = f"{settings}\nBEGIN {{ @a[1] = (str(0), str(0)); exit(); }}"
    with pytest.raises(ProgramError) as caught:
        run(text)
    assert str(caught.value).startswith(
        "-e:2:9: @a does not fit into memory: it has 16777216 entries"
    )


def test_a_loop_ends_after_as_many_rounds_as_the_kernel_allows(run: Run) -> None:
    text = "BEGIN { for ($i : 0..100000000) { $last = $i; } print($last); exit(); }"
    assert run(text) == f"{(1 << 23) - 1}\n"


def test_a_closed_standard_input_has_no_script() -> None:
    command = ["sh", "-c", 'exec "$0" run - <&-', _COMMAND]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stderr == "Error: standard input is closed: there is no script\n"
    assert done.returncode == 1


def test_a_signal_ends_the_attachment_of_many_probes(tmp_path: Path) -> None:
    script = tmp_path / "script.bt"
    script.write_text(
        "\n".join(f"interval:s:{9 + index} {{ @ = {index}; }}" for index in range(3000))
    )
    # The signal comes in a system call of the attachment, however fast that is.
    signalled = "inject=perf_event_open:signal=INT:when=100"
    command = [need_program("strace"), "-f", "-qq", "-o", tmp_path / "calls", "-e", signalled]
    done = subprocess.run(
        [*command, _COMMAND, "run", script], stdout=subprocess.PIPE, text=True, check=False
    )
    assert done.returncode == 0
    attached = re.match(r"Attached (\d+) probes\n", done.stdout)
    assert attached, done.stdout
    assert int(attached[1]) < 3000


@pytest.mark.parametrize("conversion", ["%99999999999999999999s", "%.16385s", "%-16385d"])
def test_widths_without_bounds(run: Run, conversion: str) -> None:
    with pytest.raises(ProgramError, match="widths and precisions are at most 16384"):
        run(f'BEGIN {{ printf("{conversion}", "a"); exit(); }}')


def test_the_largest_width(run: Run) -> None:
    assert run('BEGIN { printf("%16384s\\n", "a"); exit(); }') == f"{'a':>16384}\n"
