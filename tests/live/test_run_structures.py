"""Structures, arrays and pointers in programs of ``usdt run``."""

from __future__ import annotations

import gc
import json
import re
import subprocess
from typing import TYPE_CHECKING

import pytest

from usdt.base.errors import LanguageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from program_runs import Run

_C = """
#include <sys/sdt.h>
struct inner { char c; unsigned short s; };
struct outer {
    int a; struct inner in[2]; int grid[2][3]; unsigned long x : 3; long y : 5; char *name;
    char word[8]; struct { int u; }; struct outer *next;
};
__attribute__((noinline)) int passed(struct inner *in, char letter)
{
    __asm__ volatile("" ::: "memory");
    return in->c + letter;
}
int main(void)
{
    char name[] = "a name"; /* on the stack: a page that was not touched cannot be read */
    struct outer last = {.a = 7, .name = name, .grid = {{11}}};
    struct outer one = {-42, {{'a', 1}, {'b', 2}}, {{1, 2, 3}, {4, 5, 6}}, 5, -3, name,
                        "a word", {9}, &last};
    DTRACE_PROBE1(structures, hit, &one);
    return passed(one.in + 1, 'x') == 0;
}
"""

_TYPES = (
    "struct inner { char c; unsigned short s; } struct outer { int a; struct inner in[2];"
    " int grid[2][3]; uint64_t x : 3; int64_t y : 5; char *name; char word[8]; struct { int u; };"
    " struct outer *next; }"
)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a program with a probe that has a structure."""
    folder = tmp_path_factory.mktemp("structures")
    (folder / "structures.c").write_text(_C)
    words = ("gcc", "-g", "-o", folder / "structures", folder / "structures.c")
    subprocess.run(words, check=True)
    return folder / "structures"


@pytest.fixture
def collected() -> Iterator[None]:
    """Close the debug information of a run: a session refers to itself, and so keeps it."""
    yield
    gc.collect()


def _run(run: Run, program: Path, body: str, *, form: str = "text") -> str:
    text = f"{_TYPES} usdt:{program}:structures:hit {{ $p = (struct outer *)arg0; {body} }}"
    return run(text, command=str(program), form=form)


# What is read from a copy of *$p; a pointer in it leads to the process's memory.
_READ = {
    "$s.a": "-42",
    "$s->in[1].s": "2",
    "$s.grid[1][2]": "6",
    "$s.x": "5",
    "$s.y": "-3",
    "str($s.name)": "a name",
    "$s.word": "a word",
    "$s.u": "9",
    "$s.next->a": "7",
    "$s.next.grid[0][0]": "11",
    "$s.grid[0]": "[1,2,3]",
    "$s.grid": "[[1,2,3],[4,5,6]]",
    "$s.in[1]": "{ .c = 98, .s = 2 }",
    "$s.in": "[{ .c = 97, .s = 1 },{ .c = 98, .s = 2 }]",
}


@pytest.mark.parametrize("copy", ["$s = *$p; print(%s);", "@s = *$p; print(%s); clear(@s);"])
def test_members_of_a_kept_structure(run: Run, program: Path, copy: str) -> None:
    read = [text.replace("$s", copy[:2]) for text in _READ]
    body = copy.replace("print(%s);", " ".join(f"print({one});" for one in read))
    assert _run(run, program, body).splitlines() == [*_READ.values()]


def test_elements_of_a_kept_array(run: Run, program: Path) -> None:
    body = (
        "$g = $p->grid; @g[1] = $p->grid; $row = $g[1]; $i = 2; print($g[0][1]);"
        " print(@g[1][1][0]); print($row[$i]); $n = $p->in; print($n[1].s); clear(@g);"
        " for ($j : 1..3) { print($row[$j]); } $i = -100000; print($row[$i] * 0);"
    )
    assert _run(run, program, body) == "2\n4\n6\n2\n5\n6\n0\n"


_SHOWN = (
    "{ .a = 7, .in = [{ .c = 0, .s = 0 },{ .c = 0, .s = 0 }], .grid = [[11,0,0],[0,0,0]], .x = 0,"
    " .y = 0, .name = 0x%x, .word = , .u = 0, .next = 0x0 }"
)


def test_a_structure_in_a_map_is_shown_by_its_members(run: Run, program: Path) -> None:
    body = "@s = *$p->next; @k[$p->in[0]] = 1; print(@s.name);"
    name, *maps = _run(run, program, body).splitlines()
    assert maps == ["@k[{ .c = 97, .s = 1 }]: 1", f"@s: {_SHOWN % int(name, 16)}"]


def test_a_structure_in_json(run: Run, program: Path) -> None:
    lines = _run(run, program, "print(*$p);", form="json").splitlines()
    data = json.loads(lines[-1])["data"]
    assert (data["a"], data["in"][1], data["y"]) == (-42, {"c": 98, "s": 2}, -3)
    assert (data["grid"][1], data["word"], data["u"]) == ([4, 5, 6], "a word", 9)


@pytest.mark.usefixtures("collected")
@pytest.mark.parametrize("probe", ["usdt:{}:structures:hit", "uprobe:{}:passed"])
def test_a_structure_by_debug_information(run: Run, program: Path, probe: str) -> None:
    body = "$in = *(struct inner *)arg0; print($in.c > 0); print(sizeof($in));"
    text = f"{probe.format(program)} {{ {body} print(sizeof(struct inner)); }}"
    words = str(program)
    assert run(text, command=words).splitlines()[1:] == ["4", "4"]


@pytest.mark.usefixtures("collected")
def test_the_arguments_of_a_function_as_a_record(run: Run, program: Path) -> None:
    text = (
        f"uprobe:{program}:passed {{ $a = args; print($a.in->c); print($a.letter); print(args); }}"
    )
    letter, given, record = run(text, command=str(program)).splitlines()
    assert (letter, given) == ("98", "120")
    assert re.fullmatch(r"{ \.in = 0x[0-9a-f]+, \.letter = 120 }", record)


def test_args_without_arguments(run: Run, program: Path) -> None:
    with pytest.raises(LanguageError, match="hit has no arguments with names for args"):
        run(f"usdt:{program}:structures:hit {{ print(args); }}", command="true")


def test_a_kept_structure_of_the_kernel(run: Run) -> None:
    body = "@t = *curtask; print(@t.pid == tid); print(@t.comm == comm); clear(@t);"
    assert run(f"BEGIN {{ {body} exit(); }}") == "true\ntrue\n"


def test_a_variable_that_turns_out_to_be_signed_is_added_up_so(run: Run) -> None:
    # As in runqlen.bt: the first assignment alone makes it unsigned.
    body = "$n = ((struct s *)1)->n; $n = $n > 0 ? $n - 1 : 0; @l = lhist($n, 0, 9, 1);"
    more = "@m = min($n); @m = min($n - 5); @x = max((uint32)3); @x = max($n - 7);"
    text = f"struct s {{ unsigned n; }}; BEGIN {{ {body} {more} exit(); }}"
    printed = run(text)
    assert "@m: -5\n" in printed
    assert "@x: 3\n" in printed
    assert re.search(r"^\[0\] +1 ", printed, re.MULTILINE)


def test_a_definition_of_the_program_comes_before_the_kernels(run: Run) -> None:
    body = "print(curtask->first == *(uint64 *)curtask); print(sizeof(struct task_struct));"
    text = f"struct task_struct {{ uint64_t first; }} BEGIN {{ {body} exit(); }}"
    assert run(text) == "true\n8\n"


def test_definitions_with_types_of_the_kernel(run: Run) -> None:
    text = (
        "struct holder { int a; enum pid_type kind; struct list_head list; struct task_struct *t; }"
        " struct list_head2 { int own; } struct qstr { struct list_head2 *p; int own; }"
        " typedef struct task_struct task; struct whole { task t; }"
        " BEGIN { print((sizeof(struct holder), offsetof(struct holder, list.prev)));"
        " print(sizeof(struct qstr)); $w = (struct whole *)curtask; print($w->t.pid == pid);"
        " print(offsetof(struct whole, t.pid) == offsetof(struct task_struct, pid));"
        " $h = (struct holder *)0; print($h->t->pid); exit(); }"
    )
    assert run(text) == "(32, 16)\n16\ntrue\ntrue\n0\n"


def test_definitions_with_unknown_types(run: Run) -> None:
    with pytest.raises(LanguageError, match="struct nosuch is not defined before"):
        run("struct holder { struct list_head l; struct nosuch n; } BEGIN { exit(); }")


_FLOATS = (
    "struct floats { int n; float f; double d; float two[2]; long double l;"
    " union { int i; float g; }; float *p; }"
)


def test_members_that_are_floating_point_numbers(run: Run) -> None:
    body = "print(sizeof(struct floats)); print(*(struct floats *)0);"
    text = f"{_FLOATS} BEGIN {{ {body} exit(); }}"
    first, last = ".n = 0, .f = null, .d = null, .two = [null,null]", ".i = 0, .g = null, .p = 0x0"
    shown = f"{{ {first}, .l = null, {last} }}"
    assert run(text) == f"64\n{shown}\n"
    printed = run(text, form="json").splitlines()
    assert json.loads(printed[1])["data"]["d"] is None


@pytest.mark.parametrize(
    "used", ["print($s->f)", "$x = $s->d", "@[$s->g] = 1", 'printf("%d", $s->f)']
)
def test_a_floating_point_number_alone_is_no_value(run: Run, used: str) -> None:
    text = f"{_FLOATS} BEGIN {{ $s = (struct floats *)0; {used}; exit(); }}"
    with pytest.raises(LanguageError, match="no integer, such as a float: print"):
        run(text)


@pytest.mark.root
@pytest.mark.usefixtures("vmlinux_btf")
def test_numbers_of_the_current_task_are_those_that_are_read(run: Run, program: Path) -> None:
    # Through a variable a member is read by a helper; from curtask itself it is loaded if this
    # kernel lets programs. comm is a string, real_parent a pointer, se.exec_start is nested.
    members = ("pid", "prio", "flags", "se.exec_start", "real_parent->tgid", "comm")
    pairs = ", ".join(f"curtask->{name}, $task->{name}" for name in members)
    text = f"usdt:{program}:structures:hit {{ $task = curtask; print(({pairs})); }}"
    output = run(text, command=str(program))
    (line,) = re.findall(r"^\((.*)\)$", output, re.MULTILINE)
    values = line.split(", ")
    assert values[::2] == values[1::2]
    assert "0" not in values[:2]
