"""Variables of programs by name: what is shown is what the programs print."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from fixtures import build
from skips import need_program
from symbol_programs import compiled
from tracing_tools import run_usdt, tracing
from variable_programs import RUST, SCOPES, built

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("ringbuf")

_LAYOUTS = {
    "position-independent": ("-fPIE", "-pie"),
    "at a fixed address": ("-fno-pie", "-no-pie"),
    "position-independent and static": ("-static-pie",),
    "32 bits": ("-m32", "-fPIE", "-pie"),
    "32 bits at a fixed address": ("-m32", "-fno-pie", "-no-pie"),
}


def traced(*words: object) -> tuple[list[dict[str, Any]], list[str]]:
    """The arguments of each event, and the lines that the program prints."""
    done = run_usdt("trace", "--json", *words)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    events = [json.loads(line)["args"] for line in lines if line.startswith('{"time"')]
    return events, [line for line in lines if not line.startswith("{")]


@pytest.mark.parametrize("options", _LAYOUTS.values(), ids=_LAYOUTS)
def test_values_are_what_the_program_prints(options: tuple[str, ...], tmp_path: Path) -> None:
    program = built(tmp_path, "-O1", "-g", *options)
    items = (
        "counter, state, table[1], config.a, shared, config.next->name, head->low, *head, text, "
        'text == "hello", color, ratio, lonely, &config.next - &head->next, calls, limit, '
        "*(int *)&counter - counter"
    )
    events, lines = traced("-c", program, f"uprobe:{program}:work({items})")
    assert len(events) == 3
    for event, line in zip(events, lines, strict=True):
        shown = [event[name] for name in ("counter", "state", "table[1]", "config.a", "shared")]
        assert shown == [*map(int, line.split())]
    first = events[0]
    assert (first["config.next->name"], first["head->low"], first["text"]) == ("first", 5, "hello")
    assert (first["*head"]["a"], first["*head"]["high"]) == (42, 6)
    assert (first["color"], first["ratio"], first["lonely"]) == (5, 0.5, 88)
    assert [event["calls"] for event in events] == [60, 61, 63]
    assert first["limit"] == 33
    assert {event["*(int*)&counter-counter"] for event in events} == {0}
    assert {event["&config.next-&head->next"] for event in events} == {0}


def test_parameters_precede_variables_and_files_have_their_own(tmp_path: Path) -> None:
    program = built(tmp_path, "-O1", "-g")
    probes = (f"uprobe:{program}:other(counter, state)", f"uprobe:{program}:far(counter, state)")
    events, _ = traced("-c", program, *probes)
    assert [event["counter"] for event in events] == [1, 2, 2, 4, 3, 7]
    assert [event["state"] for event in events] == [77, 78, 78, 80, 80, 83]


def test_symbols_give_addresses_without_debug_information(tmp_path: Path) -> None:
    program = built(tmp_path, "-O1")
    items = "*(int *)&counter, ((int *)&table)[1], str(&text), usym(&config)"
    probe = f"uprobe:{program}:work"
    events, lines = traced("-c", program, f"{probe}({items})")
    assert [[event["*(int*)&counter"], event["((int*)&table)[1]"]] for event in events] == [
        [*map(int, line.split())][::2][:2] for line in lines
    ]
    assert events[0]["str(&text)"] == "hello"
    assert events[0]["usym(&config)"]["symbol"] == "config"


@pytest.fixture(scope="module")
def typed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("typed"), "-O1", "-g")


def test_entry_and_return_see_the_variables_of_then(typed: Path) -> None:
    items = "n, counter, out(counter), out(head->a), head->a, counter + return, out(&counter)"
    events, _ = traced("-c", typed, f"uprobe:{typed}:work({items})")
    for n, event in enumerate(events, 1):
        assert event["n"] == n
        assert event["out(counter)"] - event["counter"] == n
        assert event["out(head->a)"] - event["head->a"] == n
    assert len({event["out(&counter)"] for event in events}) == 1


def test_inside_a_function_variables_are_known(typed: Path) -> None:
    code = need_program("objdump", "binutils")
    text = subprocess.run(
        [code, "-d", "--no-show-raw-insn", typed], capture_output=True, text=True, check=True
    ).stdout
    body = text.partition("<work>:\n")[2].splitlines()
    start, later = (int(line.partition(":")[0], 16) for line in body[:3:2])
    events, _ = traced("-c", typed, f"uprobe:{typed}:work+{later - start}(config.name, shared)")
    assert [event["shared"] for event in events] == [1000, 1001, 1003]
    assert events[0]["config.name"] == "config"


def test_predicates_keys_and_statistics(typed: Path) -> None:
    probe = f"uprobe:{typed}:work"
    events, _ = traced("-c", typed, f'{probe}(counter > 1 && head->name == "conf*", counter)')
    assert [event["counter"] for event in events] == [2, 4]
    done = run_usdt("count", "--json", "-c", typed, probe, "--by", "counter, color")
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert sorted(row["key"]["counter"] for row in rows) == [1, 2, 4]


def test_the_event_tracer_reads_them_too(typed: Path) -> None:
    items = "counter, config.next->a, *(int *)&shared"
    words = ("--via", "tracefs", "-c", typed, f"uprobe:{typed}:work({items})")
    events, lines = traced(*words)
    assert [event["counter"] for event in events] == [int(line.split()[0]) for line in lines]
    assert [event["config.next->a"] for event in events] == [7, 7, 7]


_FORKS = r"""
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
int counter, *there = &counter;
__attribute__((noinline, used)) void hit(int n) { counter += n; }
int main(int argc, char **argv)
{
    getchar();
    for (int n = 0; n < 3; n++)
        if (!fork()) {
            hit(n);
            hit(100);
            return 0;
        } else {
            wait(NULL);
        }
    hit(5);
    hit(6);
    return 0;
}
"""


def test_each_process_has_its_own(tmp_path: Path) -> None:
    program = compiled(tmp_path, _FORKS, "-O1", "-g", "-fPIE", "-pie", name="forks")
    with tracing(f"uprobe:{program}:hit(n, counter, &counter == there, &counter)") as tool:
        for _ in range(2):  # started while it is traced: each is loaded elsewhere
            subprocess.run([program], input="\n", text=True, check=True, timeout=60)
        events = tool.stop()
    by_process: dict[int, list[tuple[int, int]]] = {}
    for event in events:
        args = event["args"]
        by_process.setdefault(event["pid"], []).append((args["n"], args["counter"]))
    assert [*by_process.values()] == 2 * [
        *([(n, 0), (100, n)] for n in range(3)),
        [(5, 0), (6, 5)],
    ]
    assert len({event["args"]["&counter"] for event in events}) == 2


_LIBRARY = """
int shared = 1, unused = 2;
static int own = 3;
struct box { int a; struct box *next; } box = {5, &box};
__attribute__((noipa)) int step(int n) { box.a += n; own += n; return shared += n; }
"""
_USER = r"""
#include <stdio.h>
extern int shared, unused;
extern struct box { int a; struct box *next; } box;
int step(int n);
__attribute__((noipa)) int look(int n) { return shared + unused + box.a + n; }
int main(void)
{
    for (int n = 1; n < 4; n++) {
        shared += 100, unused += 10, box.a += 1000;
        printf("%d %d %d\n", shared, unused, box.a);
        fflush(stdout);
        look(step(n));
    }
    return 0;
}
"""


def shared_library(folder: Path, *options: str) -> tuple[Path, Path]:
    """A library, and a program that uses its variables."""
    library = compiled(folder, _LIBRARY, "-g", "-O1", "-fPIC", "-shared", name="libbox.so")
    words = ("-g", "-O1", "-Wl,--no-as-needed", *options, str(library))
    return library, compiled(folder, _USER, *words, name="user")


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(("-fPIE", "-pie"), id="the program has copies"),
        pytest.param(("-fno-pie", "-no-pie"), id="it has copies at fixed addresses"),
        pytest.param(("-fPIC", "-pie"), id="it uses the library's"),
    ],
)
def test_variables_of_libraries(options: tuple[str, ...], tmp_path: Path) -> None:
    library, program = shared_library(tmp_path, *options)
    probes = (
        f"uprobe:{library}:step(shared, box.a, box.next->a, own)",
        f"uprobe:{program}:look(shared, unused, box.a, box.next->a)",
    )
    events, lines = traced("-c", program, *probes)
    printed = [[*map(int, line.split())] for line in lines]
    total = 0
    for n, (step, look, (shared, unused, a)) in enumerate(
        zip(events[::2], events[1::2], printed, strict=True), 1
    ):
        assert step == {"shared": shared, "box.a": a, "box.next->a": a, "own": 3 + total}
        total += n
        changed = {"shared": shared + n, "unused": unused, "box.a": a + n, "box.next->a": a + n}
        assert look == changed


def test_a_library_that_is_loaded_first_has_the_variable(tmp_path: Path) -> None:
    library, program = shared_library(tmp_path, "-fPIC", "-pie")
    first = compiled(tmp_path, "int shared = 5000;", "-fPIC", "-shared", name="first.so")
    command = f"env LD_PRELOAD={first} {program}"
    events, lines = traced("-f", "-c", command, f"uprobe:{library}:step(shared)")
    assert [event["shared"] for event in events] == [int(line.split()[0]) for line in lines]
    assert events[0]["shared"] == 5100


@pytest.mark.parametrize("variant", ["default", "nopie"])
def test_variables_at_usdt_probes(variant: str) -> None:
    program = build(variant, "globals")
    probes = (
        "globals:scalars(arg0 - g_int, arg1 - g_long, g_double, g_struct.second - arg0)",
        "globals:members(g_struct.first == arg0, g_struct, arg0)",
        "globals:twin_*(twin)",
        "globals:local_*(counter - arg0)",
        "globals:text(g_text, str(arg0))",
    )
    events, _ = traced("-c", f"{program} -n 2", *probes)
    assert len(events) == 14
    for event in events:
        for name in ("arg0-g_int", "arg1-g_long", "counter-arg0"):
            assert event.get(name, 0) == 0
        assert event.get("g_text") == event.get("str(arg0)")
    assert [event["twin"] for event in events if "twin" in event] == [1000, -2000, 1001, -2001]


@pytest.mark.parametrize("variant", ["m32", "m32nopie"])
def test_addresses_at_usdt_probes_without_types(variant: str) -> None:
    program = build(variant, "globals")
    probe = "globals:scalars(*(int *)&g_int - arg0, arg0)"
    events, _ = traced("-c", f"{program} -n 2", probe, "globals:text(arg0 == *(u32 *)&g_text)")
    assert len(events) == 4
    assert {event.get("*(int*)&g_int-arg0", 0) for event in events} == {0}


def test_names_of_cxx(tmp_path: Path) -> None:
    program = compiled(tmp_path, SCOPES, "-xc++", "-std=c++17", "-O1", "-g", name="scopes")
    items = (
        "counter, ::counter, hidden, inner, total, shop::Cart::opened, Pool<int>::used, title, "
        "stock, stock[1], mode, alias, current->n, &alias == &shop::counter"
    )
    events, _ = traced("-c", program, f"uprobe:{program}:shop::Cart::add({items})")
    assert [event["counter"] for event in events] == [10, 11, 13]
    assert [event["::counter"] for event in events] == [1, 2, 4]
    assert [event["inner"] - event["hidden"] for event in events] == [18, 18, 18]
    first = events[0]
    assert (first["total"], first["shop::Cart::opened"], first["Pool<int>::used"]) == (30, 9, 4)
    assert (first["title"], first["stock"], first["stock[1]"]) == ("a title", [4, 5, 6], 5)
    assert (first["mode"], first["alias"], first["current->n"]) == (7, 10, 0)


def test_names_of_rust(tmp_path: Path) -> None:
    (tmp_path / "app.rs").write_text(RUST)
    words = [need_program("rustc"), "-g", "-O", "--edition", "2021", "app.rs"]
    subprocess.run(words, cwd=tmp_path, check=True, capture_output=True, timeout=120)
    program = tmp_path / "app"
    items = "TOTAL.v.value, HITS, crate::RAW, NAME, LIST, LIST[1], app::stats::TOTAL, stats::TOTAL"
    events, _ = traced("-c", program, f"uprobe:{program}:record({items})")
    assert [event["TOTAL.v.value"] for event in events] == [50, 51, 53]
    assert [event["crate::RAW"] for event in events] == [7, 8, 9]
    assert (events[1]["NAME"], events[1]["LIST"], events[1]["LIST[1]"]) == (
        "rusty",
        [2, 2, 3, 4],
        2,
    )
    assert events[1]["app::stats::TOTAL"] == events[1]["stats::TOTAL"] == {"v": {"value": 51}}
