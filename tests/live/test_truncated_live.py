"""Values that do not fit: every cut is marked, in text, in JSON, in reports and in Python."""

from __future__ import annotations

import csv
import io
import json
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from skips import need_program, requires_root
from tracing_tools import run_usdt

import usdt

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = requires_root

SOURCE = """
#include <cstring>
#include <string>
#include <vector>
struct part { int a; char b[60]; };
struct big { long first; int list[40]; char rest[5000]; };
static big large = {-5, {1, 2, 3}};
using namespace std;
extern "C" __attribute__((noinline)) int
take(const string &s, const vector<int> &v, const char *c, const vector<part> &p, int n, big *g)
{
    return (int)(s.size() + v.size() + std::strlen(c) + p.size()) + n + g->list[2];
}
int main(int argc, char **)
{
    int n = argc > 1 ? 3 : 300;
    std::string s(n, 's'), c(n, 'c');
    return take(s, std::vector<int>(n, 7), c.c_str(), std::vector<part>(n), n, &large) == 0;
}
"""
ITEMS = "take(s, v, str(c), buf(c, n), p)"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("truncated")
    (folder / "program.cpp").write_text(SOURCE)
    path = folder / "program"
    command = [need_program("g++"), "-g", "-O1", "-o", str(path), str(folder / "program.cpp")]
    subprocess.run(command, check=True)
    return path


def event_of(program: Path, *words: str, arguments: str = "") -> dict[str, Any]:
    command = f"{program} {arguments}".strip()
    done = run_usdt("trace", "--json", "-c", command, f"uprobe:{program}:{ITEMS}", *words)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[0])


def test_json_has_the_size_of_what_was_cut(program: Path) -> None:
    event = event_of(program)
    assert event["args"]["s"] == "s" * 128
    assert event["args"]["v"] == [7] * 32
    memory = event["memory"]
    assert memory["s"] == {"bytes": 128, "size": 300}
    assert memory["v"] == {"bytes": 128, "size": 1200}
    assert memory["str(c)"] == {"truncated": True}
    assert memory["buf(c,n)"] == {"bytes": 128, "size": 300}
    assert memory["p"]["size"] == 64 * 300
    assert memory["p"]["bytes"] == 64 * len(event["args"]["p"])


def test_what_fits_has_no_mark(program: Path) -> None:
    event = event_of(program, arguments="few")
    assert event["args"]["s"] == "sss"
    assert set(event.get("memory", {})) <= {"p"}
    assert "bytes" not in event.get("memory", {}).get("p", {})


def test_text_marks_every_cut(program: Path, tmp_path: Path) -> None:
    probe = f"uprobe:{program}:{ITEMS}"
    text = run_usdt("trace", "-c", program, probe).stdout
    path = tmp_path / "run.usdt"
    run_usdt("record", "-o", path, "-c", program, probe)
    for shown in (text, run_usdt("report", path).stdout):
        assert "s=" + '"' + "s" * 128 + '"...' in shown
        assert "7, ...]" in shown
        assert f'str(c)="{"c" * 128}"...' in shown
        assert f'buf(c,n)="{"c" * 128}"...' in shown
        assert shown.count("...") == 5


def test_csv_marks_every_cut(program: Path, tmp_path: Path) -> None:
    path = tmp_path / "run.usdt"
    run_usdt("record", "-o", path, "-c", program, f"uprobe:{program}:{ITEMS}")
    [row] = csv.DictReader(io.StringIO(run_usdt("report", "--csv", path).stdout))
    assert row["s"] == "s" * 128 + "..."
    assert row["v"].endswith("7, ...]")
    assert row["str(c)"] == row["buf(c,n)"] == "c" * 128 + "..."
    assert row["p"].endswith("}, ...]")


def test_events_in_python_have_types_that_say_so(program: Path) -> None:
    with usdt.attach(f"uprobe:{program}:{ITEMS}", command=[str(program)]) as events:
        [event] = list(events)
    for key in ("s", "str(c)", "buf(c,n)"):
        assert isinstance(event.args[key], usdt.TruncatedStr)
    for key in ("v", "p"):
        assert isinstance(event.args[key], usdt.TruncatedList)


# ---------------------------------------------------------------- structures and arrays


def test_a_structure_that_was_cut_is_marked_everywhere(program: Path, tmp_path: Path) -> None:
    probe, path = f"uprobe:{program}:take(*g)", tmp_path / "run.usdt"
    assert "/* 4096 bytes of 5168 */" in run_usdt("trace", "-c", program, probe).stdout
    run_usdt("record", "-o", path, "-c", program, probe)
    [row] = csv.DictReader(io.StringIO(run_usdt("report", "--csv", path).stdout))
    assert row["*g"].endswith(", ...}")
    shown = json.loads(row["*g"].replace(", ...}", "}"))
    assert (shown["first"], shown["list"][:3]) == (-5, [1, 2, 3])
    with usdt.attach(probe, command=[str(program)]) as events:
        [event] = list(events)
    assert isinstance(event.args["*g"], usdt.TruncatedDict)
    assert event.args["*g"] == shown


def test_csv_shows_arrays_and_structures_whole(program: Path, tmp_path: Path) -> None:
    probe, path = f"uprobe:{program}:take(g->list, *g)", tmp_path / "run.usdt"
    run_usdt("record", "--max-struct", "8192", "-o", path, "-c", program, probe)
    [row] = csv.DictReader(io.StringIO(run_usdt("report", "--csv", path).stdout))
    numbers = [1, 2, 3, *[0] * 37]
    assert json.loads(row["g->list"]) == numbers
    assert json.loads(row["*g"]) == {"first": -5, "list": numbers, "rest": ""}
