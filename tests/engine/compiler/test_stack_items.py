"""``ustack(N)`` and ``kstack(N)``: how many frames are recorded, and how many shown."""

from __future__ import annotations

import pytest
from planning import plan
from support.planning import form

from usdt.base.errors import LanguageError
from usdt.engine.compiler.record.columns import StackColumn, StackCopyColumn
from usdt.engine.compiler.record.layout import BadLayout, RecordField
from usdt.engine.language.tree import MAX_FRAMES, StackKind


@pytest.mark.parametrize(
    ("item", "recorded", "shown"),
    [
        ("ustack", 127, 127),
        ("ustack(127)", 127, 127),
        ("ustack(5)", 5, 5),
        ("ustack(1)", 1, 1),
        ("kstack(5)", 13, 5),  # the tracer's own frames come first, and are not shown
        ("kstack(126)", 127, 126),
    ],
)
def test_frames(item: str, recorded: int, shown: int) -> None:
    (output,) = plan(item).outputs
    assert isinstance(output.column, StackColumn)
    assert (output.size, output.column.frames) == (8 * recorded, shown)
    assert (output.key, form(output)) == (item, item[:6])


@pytest.mark.parametrize("frames", ["0", "128", "-1", "arg0", "2+1", '"5"'])
@pytest.mark.parametrize("stack", ["ustack", "kstack"])
def test_the_number_of_frames_is_a_constant(stack: str, frames: str) -> None:
    reason = rf"{stack}\(\) takes the number of frames, a constant from 1 to 127"
    with pytest.raises(LanguageError, match=reason):
        plan(f"{stack}({frames})")


def test_a_stack_is_no_number() -> None:
    with pytest.raises(LanguageError, match=r"ustack\(\) stands alone as an item"):
        plan("ustack(2) + 1")


@pytest.mark.parametrize(
    "column",
    [
        StackColumn(StackKind.USER, 40, 5),
        StackColumn(StackKind.KERNEL, 1016),
        StackCopyColumn(168, 4096, 3),
    ],
)
def test_a_recording_says_how_many_are_shown(column: StackColumn | StackCopyColumn) -> None:
    field = RecordField("it", column, 40)
    members = field.to_json()
    assert members.get("frames", MAX_FRAMES) == column.frames
    assert RecordField.from_json(members) == field
    for wrong in (0, 128, "5", None):
        with pytest.raises(BadLayout, match="frames"):
            RecordField.from_json(members | {"frames": wrong})
