"""Rows of Parquet beside the JSON lines of the same recording: the same values, typed."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any

import pytest
from bpfmachine import Machine
from parquet_rows import check_same, rows_of, types_of
from planning import argument, plan
from recordings import CASES, header, make, many, record
from typedthings import thing, typed_plan

from usdt.arch.locations import Unreadable
from usdt.base.frozen import replace
from usdt.engine.cli.merge import MergeOptions, run_merge
from usdt.engine.cli.report import ReportOptions, run_report
from usdt.engine.compiler.codegen.model import ProgramVariant, TaskFilter
from usdt.engine.compiler.codegen.program import generate
from usdt.engine.output.decode import record_format
from usdt.engine.runtime.session import Lost
from usdt.symbolize import Symbolizer

if TYPE_CHECKING:
    from pathlib import Path

    from usdt.engine.compiler.plan import ProbePlan


def same(tmp_path: Path, content: bytes) -> Path:
    """Report a recording as Parquet and as JSON, and compare; return the Parquet file."""
    recording, found = tmp_path / "it.usdt", tmp_path / "it.parquet"
    recording.write_bytes(content)
    run_report(str(recording), ReportOptions("parquet", output=str(found)), Symbolizer)
    lines = tmp_path / "it.json"
    run_report(str(recording), ReportOptions("json", output=str(lines)), Symbolizer)
    assert check_same(found, lines.read_text().splitlines())
    return found


def packed(made: ProbePlan, values: tuple[Any, ...], **context: Any) -> bytes:
    """A record of a plan's layout, with its bitmap if it has one."""
    whole = bytearray(record_format(made.layout).pack(0, bytes(32), *values))
    return record(bytes(whole[48:]), **context)


def test_records_of_several_probes(tmp_path: Path) -> None:
    numbers = [1, 2, 1, 1, 3, 2, 2, 4, 4, 5, 1, 3, 3, 3, 4, 1, 2, 5, 5, *[1] * 40, *[3, 1] * 30]
    found = same(tmp_path, make(CASES, many(numbers), lost=[Lost("p:one", 3, 0)]))
    types = types_of(found)
    assert types["arg6"] == "int64"
    assert types["arg7"] == "uint64"
    assert types["str(arg7,15)"] == "string"
    assert types["buf(arg7,5)"] == "binary"
    assert types["arg10"] == "double"
    assert types["arg11"] == "binary"
    assert [row["time"] for row in rows_of(found)] == [*range(len(numbers))]


def test_the_time_of_day_is_that_of_the_recording(tmp_path: Path) -> None:
    found = same(tmp_path, make(CASES, many([1, 1])))
    assert [row["timestamp"] for row in rows_of(found)] == [500_000_000, 500_000_001]
    assert {row["host"] for row in rows_of(found)} == {"here"}


@pytest.mark.parametrize("value", [0, 1, -1, (1 << 63) - 1, -1 << 63])
def test_numbers_at_their_limits(tmp_path: Path, value: int) -> None:
    items = "arg6, arg7, hex(arg7), arg9"
    made = plan(items)
    real = [0.1, float("inf"), float("-inf"), float("nan"), -0.0][value % 5]
    unsigned = value % (1 << 64)
    same(tmp_path, make([(1, "p:q", made)], [packed(made, (0, value, unsigned, unsigned, real))]))


def test_values_that_could_not_be_read(tmp_path: Path) -> None:
    made = plan("arg8, arg9, arg12, str(arg7, 15), buf(arg7, 5)")
    failed = packed(made, (3, 0, 0.0, -14, b"", -6, b""))
    fine = packed(made, (0, 5, 0.5, 3, b"ab\0", 2, b"\xff\0"))
    found = same(tmp_path, make([(1, "p:q", made)], [failed, fine]))
    first, second = rows_of(found)
    assert first["arg8"] is None
    assert dict(first["errors"])["str(arg7,15)"] == "memory not readable"
    assert (second["arg8"], second["buf(arg7,5)"]) == (5, b"\xff\0")
    assert dict(second["errors"]) == {"arg12": "thread-local"}


def test_text_that_is_not_utf_8(tmp_path: Path) -> None:
    made = plan("str(arg7, 15)")
    data = [packed(made, (len(text) + 1, text + b"\0")) for text in (b"a\xff\\", "é€".encode())]
    odd, plain = rows_of(same(tmp_path, make([(1, "p:q", made)], data)))
    assert odd["str(arg7,15)"] == r"a\xff" + "\\"
    assert dict(odd["errors"]) == {"str(arg7,15)": "not UTF-8: 61ff5c"}
    assert (plain["str(arg7,15)"], plain["errors"]) == ("é€", None)


def test_names_of_threads_and_probes_that_are_not_utf_8(tmp_path: Path) -> None:
    data = [record(struct.pack("q", 1), comm=b"\xfe\x1b[2J")]
    (row,) = rows_of(same(tmp_path, make([(1, "p:\udc80", plan("arg6"))], data)))
    assert row["comm"] == "\\xfe\x1b[2J"
    assert row["probe"] == "p:\\x80"


def test_what_was_cut_is_said(tmp_path: Path) -> None:
    made = plan("str(arg7, 7), buf(arg7, 5)")
    data = [packed(made, (8, b"1234567\0", 99, b"12345"))]
    (row,) = rows_of(same(tmp_path, make([(1, "p:q", made)], data)))
    assert json.loads(row["memory"])["buf(arg7,5)"] == {"bytes": 5, "size": 99}


def test_structures_are_json_text(tmp_path: Path) -> None:
    made = typed_plan("t, *t, t->in")
    context = struct.pack("=Qi4xQ", 0x7F0000001000, 0, 0).ljust(168, b"\0")
    machine = Machine(context=context, user={0x7F0000001000: thing()})
    machine.run(generate([ProgramVariant(1, 0, made)], TaskFilter(), sleepable=False))
    data = [struct.pack("=II", len(one), 0) + one for one in machine.records]
    (row,) = rows_of(same(tmp_path, make([(1, "rawtp:q", made)], data)))
    assert json.loads(row["t->in"]) == {"a": 11, "b": -12}


def test_stacks_are_lists_of_frames(tmp_path: Path) -> None:
    made = plan("ustack, kstack")
    words = struct.pack("3Q", 0x401000, 0x402000, 0)
    data = [packed(made, (16, words, -14, b"")), packed(made, (-14, b"", 0, b""))]
    found = same(tmp_path, make([(1, "p:q", made)], data))
    first, second = rows_of(found)
    assert [frame["address"] for frame in first["ustack"]] == [0x401000, 0x402000]
    assert second["ustack"] is None


_UNSIGNED, _SIGNED, _REAL, _ABSENT = (
    plan("arg0", (argument(0, "u64"),)),
    plan("arg0", (argument(0, "s32"),)),
    plan("arg0", (argument(0, "f64"),)),
    plan("arg0", (argument(0, "u64", Unreadable("thread-local")),)),
)


@pytest.mark.parametrize(
    ("plans", "kind"),
    [
        pytest.param([_UNSIGNED, _ABSENT], "uint64", id="one cannot be read"),
        pytest.param([_UNSIGNED, _SIGNED], "decimal128(38, 0)", id="signed and unsigned"),
        pytest.param([_UNSIGNED, _REAL], "string", id="a number and a float: JSON text"),
        pytest.param([_ABSENT], "string", id="none can be read"),
    ],
)
def test_one_item_with_several_types(tmp_path: Path, plans: list[ProbePlan], kind: str) -> None:
    cases = [(number, f"p:{number}", one) for number, one in enumerate(plans, 1)]
    values = {id(_UNSIGNED): (1 << 63,), id(_SIGNED): (-1,), id(_REAL): (0.5,), id(_ABSENT): ()}
    data = [packed(one, values[id(one)], case=number) for number, _, one in cases]
    assert types_of(same(tmp_path, make(cases, data)))["arg0"] == kind


def test_items_with_the_names_of_columns(tmp_path: Path) -> None:
    made = plan("pid, comm, cpu + 0")
    data = [packed(made, (5, 6))]
    found = same(tmp_path, make([(1, "p:q", made)], data))
    assert {"args.pid", "args.comm", "cpu+0"} <= types_of(found).keys()


def test_several_recordings_and_streams(tmp_path: Path) -> None:
    for name, probe in (("1", "p:one"), ("2", "p:two")):
        about = replace(header(), host=name, stream=replace(header().stream, host=name))
        content = make([(1, probe, plan("arg6"))], many([1] * 3), about=about)
        (tmp_path / name).write_bytes(content)
    files = [str(tmp_path / name) for name in ("1", "2")]
    found, stream = tmp_path / "it.parquet", tmp_path / "it.json"
    run_merge(files, MergeOptions(output=str(found)), Symbolizer)
    run_merge(files, MergeOptions(output=str(stream), as_json=True), Symbolizer)
    assert check_same(found, stream.read_text().splitlines()) == 6
    rows = rows_of(found)
    assert [row["host"] for row in rows] == ["1", "2"] * 3
    assert all(row["time"] == row["timestamp"] for row in rows)
    run_merge([str(stream)], MergeOptions(output=str(found)), Symbolizer)
    assert rows_of(found) == rows
