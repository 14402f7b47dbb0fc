"""``usdt spans``: calls and pairs of probes, as the program measured them."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import signal
import subprocess
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from patience import patient
from span_programs import THROWS, measured, span_program
from streams import is_about, read_events
from symbol_programs import compiled, running
from tracing_tools import USDT, one_error, run_usdt

import kprobe
import usdt

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("ringbuf")

_BEGIN, _END = "span:begin(str(arg0), arg1)", "span:end"
_BY_ID = ("--key", "arg1", "--end-key", "arg0")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return span_program(tmp_path_factory.mktemp("spans"))


def spans(
    program: Path, words: str, *options: object
) -> tuple[dict[int, int], list[dict[str, Any]], str]:
    output = program.parent / "spans.json"  # long outputs of two programs would mix
    done = run_usdt("spans", "--json", "-o", output, "-c", f"{program} {words}", *options)
    assert done.returncode == 0, done.stderr
    own, _ = measured(done)
    return own, read_events(output.read_text()), done.stderr


def by_id(found: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    return {span["args"]["arg1"]: span for span in found}


def check(found: list[dict[str, Any]], own: dict[int, int]) -> None:
    # Probes and a busy machine only add to what the program measured between them.
    assert {span["args"]["arg1"] for span in found} == own.keys()
    for span in found:
        least = own[span["args"]["arg1"]]
        assert least <= span["duration"], span
        assert span["end_args"]["arg0"] == span["args"]["arg1"]


def test_a_pair_has_the_items_of_both_ends(program: Path) -> None:
    own, found, errors = spans(program, "pair 3 2000000", _BEGIN, _END)
    check(found, own)
    for number, span in by_id(found).items():
        assert span["args"]["str(arg0)"] == f"name {number}"  # before it was overwritten
        assert (span["probe"], span["end_probe"], span["comm"]) == (
            "span:begin",
            "span:end",
            "spans",
        )
        assert span["pid"] == span["tid"]
    assert "3 events, 0 lost" in errors


def test_a_function_alone_is_its_call(program: Path) -> None:
    probe = f"uprobe:{program}:work(str(arg0), arg1, return, duration > 1ms, duration / 1000)"
    own, found, _ = spans(program, "work 3 2000000", probe)
    assert [span["args"] for span in found] == [
        {"str(arg0)": f"name {number}", "arg1": number} for number in own
    ]
    for number, span in by_id(found).items():
        assert span["end_args"] == {"return": -number, "duration/1000": span["duration"] // 1000}
        assert own[number] <= span["duration"]
        assert span["probe"] == span["end_probe"] == "uprobe:spans:work"


def test_ten_thousand_durations_are_those_of_the_program(program: Path) -> None:
    own, found, errors = spans(program, "spins 10000 400", "span:begin(arg1)", _END)
    check(found, own)
    more = sorted(span["duration"] - own[span["args"]["arg1"]] * 1.05 for span in found)
    assert "10000 events, 0 lost" in errors
    assert more[len(more) // 2] < 5000  # preemption between the clocks is not the tracer's


def test_calls_nest(program: Path) -> None:
    own, found, errors = spans(program, "nest 5 100000", "span:begin(arg1)", _END)
    check(found, own)
    assert [span["args"]["arg1"] for span in found] == [0, 1, 2, 3, 4, 5]
    assert "span was" not in errors


def test_the_deepest_of_many_replaces_the_one_before(program: Path) -> None:
    _, found, errors = spans(program, "helped 80", "span:begin(arg1)", _END)
    assert {span["args"]["arg1"] for span in found} == {0, *range(18, 81)}
    assert all(span["args"]["arg1"] == span["end_args"]["arg0"] for span in found)
    assert "17 spans were nested deeper than 64" in errors


def test_helpers_may_fire_the_probes(program: Path) -> None:
    _, found, errors = spans(program, "helped 7", "span:begin(arg1)", _END)
    assert [span["args"]["arg1"] for span in found] == [*range(8)]
    assert "span was" not in errors


def test_threads_that_share_a_place_are_told_apart(program: Path) -> None:
    _, found, errors = spans(program, "collide", _BEGIN, _END)
    assert [(span["args"]["arg1"], span["end_args"]["arg0"]) for span in found] == [
        (1, 1),
        (3, 3),
        (2, 2),
    ]
    assert [span["args"]["str(arg0)"] for span in found] == ["main", "inner", "outer"]
    assert "span was" not in errors


def test_more_calls_at_a_time_than_places(program: Path) -> None:
    _, found, errors = spans(program, "crowd 1100", f"uprobe:{program}:meet(arg0, return)")
    assert sorted(span["args"]["arg0"] for span in found) == [*range(1100)]
    assert all(span["args"]["arg0"] == span["end_args"]["return"] for span in found)
    assert {span["comm"] for span in found} == {"spans"}
    assert "span was" not in errors


@pytest.mark.parametrize("rounds", [4, 200])
def test_longjmp_loses_no_other_span(program: Path, rounds: int) -> None:
    _, found, errors = spans(program, f"jumps {rounds}", "span:begin(arg1)", _END)
    assert [span["args"]["arg1"] for span in found] == [*range(0, rounds, 2), -1]
    assert all(span["args"]["arg1"] == span["end_args"]["arg0"] for span in found)
    left = sum(int(number) for number in re.findall(r"^(\d+) spans? w", errors, re.MULTILINE))
    assert left == rounds // 2


@pytest.mark.parametrize("most", [10240, 100], ids=["in an array", "in a hash map"])
def test_longjmp_loses_no_other_call(program: Path, most: int) -> None:
    probe = f"uprobe:{program}:jump*(arg0)"
    _, found, errors = spans(program, "jumps 200", probe, "--max-open", most)
    assert [span["args"]["arg0"] for span in found] == [*range(0, 200, 2), 200]
    # The last one that was left is still in progress, as far as anybody can tell.
    assert "99 spans were left by an exception or longjmp()" in errors
    assert "1 span was begun and not ended" in errors


def test_exceptions_lose_no_other_span(tmp_path: Path) -> None:
    program = compiled(tmp_path, THROWS, "-xc++", "-O2", name="throws")
    done = run_usdt("spans", "--json", "-c", program, "span:begin", "span:end")
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert all(span["args"] == span["end_args"] for span in found)
    expected = [number + 100 * outer for number in range(0, 100, 2) for outer in (0, 1)] + [1000]
    assert [span["args"]["arg0"] for span in found] == expected
    assert "100 spans were left by an exception or longjmp()" in done.stderr


def test_refused_starts_keep_their_ends(program: Path) -> None:
    _, found, errors = spans(program, "nest 5 1000", "span:begin(arg1 % 2 == 0, arg1)", _END)
    assert [(span["args"]["arg1"], span["end_args"]["arg0"]) for span in found] == [
        (0, 0), (2, 2), (4, 4),
    ]  # fmt: skip
    assert "1 span was ended without a start" in errors


def test_a_key_pairs_what_interleaves(program: Path) -> None:
    _, found, errors = spans(program, "interleaved 5", _BEGIN, _END, *_BY_ID)
    assert [(span["args"]["arg1"], span["end_args"]["arg0"]) for span in found] == [
        (number, number) for number in range(1, 5)
    ]
    assert "1 span was begun and not ended" in errors


def test_a_key_may_be_the_address_of_a_structure_that_changes(program: Path) -> None:
    ends = (f"uprobe:{program}:take(job->id)", f"uprobe:{program}:release(job->state)")
    _, found, _ = spans(program, "jobs 3", *ends, "--key", "job")
    assert [(span["args"], span["end_args"]) for span in found] == [
        ({"job->id": number}, {"job->state": 1}) for number in range(1, 4)
    ]


def test_a_key_pairs_threads_and_kinds(program: Path) -> None:
    _, found, _ = spans(program, "threads 3", _BEGIN, _END, *_BY_ID)
    assert [span["end_args"]["arg0"] for span in found] == [1, 2, 3]
    assert all(span["duration"] >= 2_000_000 and span["pid"] == span["tid"] for span in found)
    _, found, _ = spans(program, "pair 2 1000000", _BEGIN, "syscall:clock_nanosleep(return)")
    assert [(span["args"]["arg1"], span["end_args"]["return"]) for span in found] == [
        (1, 0),
        (2, 0),
    ]


def test_a_million_of_which_ten_are_slow(program: Path) -> None:
    # A busy machine makes others slow as well.
    options = ("span:begin(arg1)", _END, "--slower", "20ms")
    _, found, errors = spans(program, "tight 1000000 10 20000000", *options)
    assert {number * 100_000 for number in range(10)} <= by_id(found).keys()
    assert len(found) < 1000
    assert all(span["duration"] >= 20_000_000 for span in found)
    assert all(span["args"]["arg1"] == span["end_args"]["arg0"] for span in found)
    assert ", 0 lost" in errors
    assert "span was" not in errors


@pytest.mark.parametrize(
    "probes",
    [("{}:span:begin", "{}:span:end"), ("uprobe:{}:helper_begin",)],
    ids=["a pair", "a call"],
)
def test_what_comes_while_probes_are_attached_and_detached_is_no_span(
    program: Path, probes: tuple[str, ...]
) -> None:
    words = [probe.format(program) for probe in probes]
    with contextlib.ExitStack() as stack:
        for _ in range(3):  # at every moment, but not in the way of the command
            process = stack.enter_context(running("nice", "-n", "10", program, "busy"))
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        done = run_usdt("spans", "--json", "--open", "--slower", "10s", "-d", "100ms", "-a", *words)
    # One of each process may be in progress when the trace begins, and when it ends.
    ended = re.search(r"^(\d+) spans? w\w+ ended without a start", done.stderr, re.MULTILINE)
    assert ended is None or int(ended[1]) <= 3, done.stderr
    pids = [json.loads(line)["pid"] for line in done.stdout.splitlines()]
    assert len(pids) == len(set(pids))
    assert not re.search("nested deeper|exception", done.stderr)


def test_what_found_no_room_is_counted(program: Path) -> None:
    done = run_usdt("spans", *_BY_ID, "--max-open", 3, "-c", f"{program} many 20", _BEGIN, _END)
    assert "3 spans were begun and not ended" in done.stderr
    assert "17 spans were not kept; a --max-open above 3 may help" in done.stderr


def test_open_spans_are_shown_when_asked(program: Path) -> None:
    words = [USDT, "spans", "--json", "--open", "-c", f"{program} hang 3", _BEGIN, _END]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as tool:
        assert tool.stdout is not None
        assert is_about(tool.stdout.readline())
        assert tool.stdout.readline() == "ready\n"
        tool.send_signal(signal.SIGUSR1)
        first = [json.loads(tool.stdout.readline()) for _ in range(3)]
        tool.send_signal(signal.SIGINT)
        rest, errors = tool.communicate(timeout=patient(100))
    last = [json.loads(line) for line in rest.splitlines()]
    assert [span["args"]["arg1"] for span in first] == [1, 2, 3]
    assert {span["comm"] for span in (*first, *last)} == {"spans"}
    assert all(before["age"] < after["age"] for before, after in zip(first, last, strict=True))
    assert "3 spans were begun and not ended" in errors


def test_open_spans_are_shown_after_each_interval(program: Path) -> None:
    words = ("--json", "--open", "-i", "100ms", "-c", f"{program} hang 3", _BEGIN, _END)
    with subprocess.Popen(
        [USDT, "spans", *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as tool:
        assert tool.stdout is not None
        lines = [line for line in (tool.stdout.readline() for _ in range(8)) if "age" in line]
        tool.send_signal(signal.SIGINT)
        tool.communicate(timeout=patient(100))
    found = [json.loads(line) for line in lines]
    assert [span["args"]["arg1"] for span in found[:6]] == [1, 2, 3, 1, 2, 3]
    assert all(
        first["age"] < later["age"] for first, later in zip(found[:3], found[3:6], strict=True)
    )


def test_the_slowest_of_each_interval(program: Path) -> None:
    options = ("span:begin(arg1)", _END, "--slowest", 1, "-i", "100ms")
    own, found, errors = spans(program, "pair 30 1000000", *options)
    numbers = [span["args"]["arg1"] for span in found]
    assert 1 < len(set(numbers)) == len(numbers)
    assert max(span["duration"] for span in found) >= max(own.values())
    assert "30 events, 0 lost" in errors


def test_trees_after_each_interval_have_all_spans(program: Path) -> None:
    options = ("span:begin(arg1)", _END, "--tree", "-i", "100ms")
    own, found, _ = spans(program, "pair 30 1000000", *options)
    assert [span["args"]["arg1"] for span in found] == [*own]
    assert all(span["self"] == span["duration"] and span["depth"] == 0 for span in found)


def test_names_of_numbers_are_told_for_each_end() -> None:
    ends = "syscall:openat(flags)", "syscall:openat(flags, return)"
    source = "import os\ntry: os.open('/none', os.O_WRONLY)\nexcept OSError: pass"
    command = f"/usr/bin/python3 -I -S -c {shlex.quote(source)}"
    done = run_usdt("spans", "--json", "-c", command, *ends)
    *_, span = (json.loads(line) for line in done.stdout.splitlines())
    assert span["names"] == {"flags": "O_WRONLY|O_CLOEXEC"}
    assert span["end_names"] == {"flags": "O_WRONLY|O_CLOEXEC", "return": "-ENOENT"}


def test_calls_that_hang_are_shown(program: Path) -> None:
    options = ("--open", "-d", "200ms", "syscall:pause")
    done = run_usdt("spans", *options, "-c", f"{program} hang")
    assert re.search(
        r" syscall:pause +\(open\)$|syscall:pause  \(open\)$", done.stdout, re.MULTILINE
    )


def test_a_tree_has_self_times(program: Path) -> None:
    _, found, _ = spans(program, "nest 3 1000000", "span:begin(arg1)", _END, "--tree")
    assert [(span["depth"], span["args"]["arg1"]) for span in found] == [
        (0, 3),
        (1, 2),
        (2, 1),
        (3, 0),
    ]
    for outer, inner in pairwise(found):
        assert outer["self"] == outer["duration"] - inner["duration"]
    done = run_usdt("spans", "--tree", "-c", f"{program} nest 2 1000", f"uprobe:{program}:nest")
    lines = [line for line in done.stdout.splitlines() if "ns" not in line.split(":")[0]]
    indents = [line.index("uprobe:") for line in lines if "uprobe:" in line]
    assert indents == [indents[0] + 2 * depth for depth in range(3)]


def test_the_slowest_come_first(program: Path) -> None:
    _, found, errors = spans(program, "spins 200 1000", "span:begin(arg1)", _END, "--slowest", 5)
    times = [span["duration"] for span in found]
    assert times == sorted(times, reverse=True)
    assert len(times) == 5
    assert "200 events, 0 lost" in errors


def test_spans_in_python(program: Path) -> None:
    words = [str(program), "pair", "3", "2000000"]
    with usdt.spans(_BEGIN, "span:end", slower="1ms", command=words) as events:
        found = list(events)
    assert [span.args for span in found] == [
        {"str(arg0)": f"name {number}", "arg1": number} for number in range(1, 4)
    ]
    assert [span.end_args for span in found] == [{"arg0": number} for number in range(1, 4)]
    assert all(span.duration >= 2_000_000 < span.start for span in found)
    with kprobe.spans("syscall:clock_nanosleep(flags, return)", command=words) as events:
        found = list(events)
    assert [(span.args, span.end_args) for span in found] == [({"flags": 0}, {"return": 0})] * 3
    assert {(span.probe, span.end_probe) for span in found} == {("syscall:clock_nanosleep",) * 2}


def test_mistakes_in_python(program: Path) -> None:
    with pytest.raises(usdt.TracingError, match="slower '5' is not a duration"):
        usdt.spans("span:begin", "span:end", slower="5", command=[str(program)])
    with pytest.raises(usdt.TracingError, match="has no return"):
        usdt.spans("span:begin", command=[str(program)])
    with pytest.raises(TypeError, match="expected a string"):
        usdt.spans(1, "span:end", command=[str(program)])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("span:begin",), "has no return: write START END"),
        (("uprobe:{}:work", "--key", "tid"), "START with END, which is missing"),
        (("span:begin", "span:end", "--key", "str(arg0)", "--end-key", "arg0"), "is a number of 8"),
        (("span:begin", "span:end", "--key", "arg0", "--end-key", "arg0, tid"), "as many"),
        (("span:begin(duration > 1ms)", "span:end"), "has no end"),
        (("span:begin", "uprobe:{}:work(arg0, return)"), "trace the function alone"),
        (("span:begin", "span:end", "--slower", "5x"), "is not a duration"),
        (("span:begin", "span:end", "-i", "1s"), "--slowest, --open or --tree"),
        (("span:begin", "span:end", "--tree", "--slowest", "3"), "exclude one another"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_mistakes_are_one_line(program: Path, options: tuple[str, ...], reason: str) -> None:
    words = [option.replace("{}", str(program)) for option in options]
    done = run_usdt("spans", "-c", program, *words)
    assert reason in one_error(done, code=2)
