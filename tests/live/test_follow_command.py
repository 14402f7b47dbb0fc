"""``-c``: a command is traced from its first instruction, its libraries' constructors included."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from fixtures import TESTBINS, build
from patience import patient
from skips import need_program
from streams import read_events
from tracing_tools import one_error, run_usdt, tracing

pytestmark = pytest.mark.usefixtures("ringbuf")

_LIBRARY = """
#include <sys/sdt.h>
__attribute__((constructor)) static void begin(void) { DTRACE_PROBE1(NAME, constructor, 7); }
__attribute__((destructor)) static void end(void) { DTRACE_PROBE1(NAME, destructor, 8); }
void NAME_called(void) { DTRACE_PROBE1(NAME, called, 9); }
"""

# Fires before main: by an address in .preinit_array, the first of a program's own code to run.
_PROGRAM = """
#include <dlfcn.h>
#include <sys/sdt.h>
void early_called(void);
static void before(int argc) { DTRACE_PROBE1(starter, before, argc); }
__attribute__((section(".preinit_array"), used)) static void (*first)(int) = before;
int main(int argc, char **argv)
{
    DTRACE_PROBE1(starter, main, argc);
    early_called();
    void (*called)(void) = (void (*)(void))dlsym(dlopen(LATE, RTLD_NOW), "late_called");
    called();
    return 0;
}
"""

_EARLY = ["early:constructor", "starter:before", "starter:main", "early:called"]
_LATE = ["late:constructor", "late:called", "late:destructor"]


def _compile(source: str, target: Path, *words: str) -> Path:
    command = [need_program("gcc"), "-O1", "-w", f"-I{TESTBINS}/out/include", "-x", "c", "-"]
    done = subprocess.run(
        [*command, "-o", str(target), *words],
        input=source,
        capture_output=True,
        text=True,
        check=False,
        timeout=patient(100),
    )
    assert done.returncode == 0, done.stderr
    return target


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program, a library that it needs and one that it opens."""
    build("default", "args")  # for <sys/sdt.h>
    found = tmp_path_factory.mktemp("start")
    for name in ("early", "late"):
        source = _LIBRARY.replace("NAME", name)
        _compile(source, found / f"lib{name}.so", "-shared", "-fPIC")
    words = (f'-DLATE="{found}/liblate.so"', f"-L{found}", "-learly", f"-Wl,-rpath,{found}", "-ldl")
    _compile(_PROGRAM, found / "starter", *words)
    return found


def probes_of(folder: Path, command: str, *probes: str) -> list[str]:
    """What is traced of a command, in order."""
    output = folder / "events"
    with tracing("-c", command, "-o", output, *probes) as tool:
        assert tool.wait_all() == 0
    events: list[dict[str, Any]] = read_events(output.read_text())
    for event in events:
        expected = {"constructor": 7, "destructor": 8, "called": 9}
        name = event["probe"].partition(":")[2]
        assert event["args"] == {"arg0": expected.get(name, 1)}
    return [event["probe"] for event in events]


def test_constructors_and_what_comes_before_them_are_traced(folder: Path) -> None:
    found = probes_of(folder, f"{folder}/starter", "starter:*", "early:*")
    # The program's own first code comes before the constructors of its libraries.
    expected = ["starter:before", "early:constructor", "starter:main", "early:called"]
    assert found == [*expected, "early:destructor"]
    assert sorted(found[:4]) == sorted(_EARLY)


def test_a_library_opened_at_once_is_traced_from_its_constructor_if_it_is_named(
    folder: Path,
) -> None:
    found = probes_of(folder, f"{folder}/starter", f"{folder}/liblate.so:late:*")
    assert found == _LATE


def test_a_program_held_before_it_is_executed_loses_nothing(folder: Path) -> None:
    # One with set-user-ID is never traced by ptrace.
    copy = Path(shutil.copy(folder / "starter", folder / "privileged"))
    copy.chmod(0o4755)
    found = probes_of(folder, str(copy), "starter:*", "early:*", f"{folder}/liblate.so:late:*")
    assert sorted(found) == sorted([*_EARLY, "early:destructor", *_LATE])


def test_a_script_is_traced_in_its_interpreter(folder: Path) -> None:
    script = folder / "script"
    script.write_text(f"#!{folder}/starter -x\n")
    script.chmod(0o755)
    output = folder / "events"
    with tracing("-c", str(script), "-o", output, "starter:main(arg0)") as tool:
        assert tool.wait_all() == 0
    (event,) = read_events(output.read_text())
    assert event["args"] == {"arg0": 3}  # the interpreter, its word and the script


def test_preloaded_libraries_are_traced(folder: Path) -> None:
    command = f"env LD_PRELOAD={folder}/liblate.so {folder}/starter"
    words = ("-f", f"{folder}/liblate.so:late:*")
    output = folder / "events"
    with tracing("-c", command, "-o", output, *words) as tool:
        assert tool.wait_all() == 0
    events = read_events(output.read_text())
    assert [event["probe"] for event in events] == _LATE


def test_a_command_that_ends_at_once_ends_the_trace(folder: Path) -> None:
    done = run_usdt("trace", "-f", "-c", "true", f"{folder}/starter:starter:*")
    assert done.returncode == 0, done.stderr
    assert "0 events, 0 lost" in done.stderr


@pytest.mark.parametrize(
    ("command", "message"),
    [
        pytest.param("nosuchcommand", "nosuchcommand: command not found", id="not found"),
        pytest.param("/etc/passwd", "/etc/passwd: not executable", id="not executable"),
        pytest.param("true", "true: no USDT probes, so no nosuch:probe", id="nowhere"),
    ],
)
def test_what_stands_against_it_is_one_line(command: str, message: str) -> None:
    done = run_usdt("trace", "-f", "-c", command, f"{os.path.realpath('/bin/true')}:nosuch:probe")
    assert message in one_error(done)
