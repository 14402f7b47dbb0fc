"""A profile as JSON of speedscope: https://www.speedscope.app/file-format-schema.json."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from usdt.base.text import printable
from usdt.base.version import VERSION

if TYPE_CHECKING:
    from usdt.pictures.profile import Frame, Profile, Weight

__all__ = ("speedscope",)

_UNITS = {"nanoseconds": "nanoseconds", "bytes": "bytes"}


def speedscope(profile: Profile) -> str:
    """Return the text of a file, with a profile for each weight; the last one is shown first.

    Labels are the outermost frames. Stacks whose number is not positive are left out.
    """
    frames: dict[tuple[str, str, int], int] = {}
    samples = profile.samples()
    stacks = [[_index(frames, frame) for frame in sample.path()] for sample in samples]
    made: dict[str, Any] = {
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "exporter": f"usdt-toolkit@{VERSION}",
        "name": printable(profile.title),
        "activeProfileIndex": len(profile.weights) - 1,
        "shared": {"frames": [_frame_json(*frame) for frame in frames]},
        "profiles": [
            _sampled(
                weight,
                [
                    (stack, sample.values[index])
                    for stack, sample in zip(stacks, samples, strict=True)
                ],
            )
            for index, weight in enumerate(profile.weights)
        ],
    }
    return json.dumps(made) + "\n"


def _index(frames: dict[tuple[str, str, int], int], frame: Frame) -> int:
    return frames.setdefault(
        (printable(frame.name), printable(frame.file), frame.line), len(frames)
    )


def _frame_json(name: str, file: str, line: int) -> dict[str, Any]:
    where: dict[str, Any] = {"file": file} if file else {}
    return {"name": name} | where | ({"line": line} if line else {})


def _sampled(weight: Weight, stacks: list[tuple[list[int], int]]) -> dict[str, Any]:
    shown = [(stack, value) for stack, value in stacks if value > 0]
    return {
        "type": "sampled",
        "name": printable(weight.name),
        "unit": _UNITS.get(weight.unit, "none"),
        "startValue": 0,
        "endValue": sum(value for _, value in shown),
        "samples": [stack for stack, _ in shown],
        "weights": [value for _, value in shown],
    }
