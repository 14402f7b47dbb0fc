"""A profile as pprof's ``profile.proto``, compressed as its files are.

Functions have names already, so that pprof needs no files; mappings have build IDs, so that it can
find them. Frames that were inlined are lines of one location, as the format has it.
"""

from __future__ import annotations

import gzip
from itertools import count
from typing import TYPE_CHECKING

from usdt.base.protobuf import message, packed, signed, text, unsigned
from usdt.base.text import printable
from usdt.base.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Iterator

    from usdt.pictures.profile import Frame, Profile, Sample

__all__ = ("pprof",)

# Field numbers of the messages of profile.proto.
_SAMPLE_TYPE, _SAMPLE, _MAPPING, _LOCATION, _FUNCTION, _STRING = 1, 2, 3, 4, 5, 6
_COMMENT, _DEFAULT_TYPE = 13, 14


def pprof(profile: Profile) -> bytes:
    """Return the bytes of a ``.pb.gz`` file."""
    return gzip.compress(b"".join(_Profile().fields(profile)), 6, mtime=0)


class _Profile:
    # Numbers of what has been met: texts from 0, all else from 1.
    def __init__(self) -> None:
        self.texts: dict[str, int] = {"": 0}
        self.mappings: dict[tuple[str, str], int] = {}
        self.functions: dict[tuple[str, str], int] = {}
        self.locations: dict[tuple[Frame, ...], int] = {}

    def text(self, value: str) -> int:
        return self.texts.setdefault(printable(value), len(self.texts))

    def fields(self, profile: Profile) -> Iterator[bytes]:
        """Yield the fields of the message."""
        for weight in profile.weights:
            name, unit = self.text(weight.name), self.text(weight.unit or "count")
            yield message(_SAMPLE_TYPE, signed(1, name), signed(2, unit))
        for sample in profile.samples():
            yield self._sample(sample)
        yield from map(self._location, self.locations, count(1))
        for (module, build_id), number in self.mappings.items():
            file, build = self.text(module), self.text(build_id)
            about = signed(5, file) + signed(6, build) + unsigned(7, 1) + unsigned(9, 1)
            yield message(
                _MAPPING, unsigned(1, number), unsigned(3, (1 << 64) - 1), about, unsigned(10, 1)
            )
        for (name_of, source), number in self.functions.items():
            name, file = self.text(name_of), self.text(source)
            yield message(
                _FUNCTION, unsigned(1, number), signed(2, name), signed(3, name), signed(4, file)
            )
        comments = [self.text(one) for one in (f"usdt-toolkit {VERSION}", profile.title) if one]
        shown = self.text(profile.weights[-1].name)
        yield from (text(_STRING, value) for value in self.texts)
        yield packed(_COMMENT, comments)
        yield signed(_DEFAULT_TYPE, shown)

    def _sample(self, sample: Sample) -> bytes:
        numbers = [self._number(frames) for frames in _locations(sample.frames[::-1])]
        labels = [
            message(3, signed(1, self.text(name)), signed(2, self.text(value)))
            for name, value in sample.labels
        ]
        return message(_SAMPLE, packed(1, numbers), packed(2, sample.values), *labels)

    def _number(self, frames: tuple[Frame, ...]) -> int:
        known = self.locations.get(frames)
        if known is None:
            known = self.locations[frames] = len(self.locations) + 1
        return known

    def _location(self, frames: tuple[Frame, ...], number: int) -> bytes:
        last = frames[-1]
        mapping = 0
        if last.module:
            key = last.module, last.build_id
            mapping = self.mappings.setdefault(key, len(self.mappings) + 1)
        lines = [
            message(4, unsigned(1, self._function(frame)), signed(2, frame.line))
            for frame in frames
        ]
        return message(
            _LOCATION, unsigned(1, number), unsigned(2, mapping), unsigned(3, last.address), *lines
        )

    def _function(self, frame: Frame) -> int:
        return self.functions.setdefault((frame.name, frame.file), len(self.functions) + 1)


def _locations(frames: tuple[Frame, ...]) -> Iterator[tuple[Frame, ...]]:
    # Frames are innermost first: inlined ones come before the function that contains them.
    waiting: list[Frame] = []
    for frame in frames:
        waiting.append(frame)
        if frame.kind != "inlined":
            yield (*waiting,)
            waiting.clear()
    if waiting:
        yield (*waiting,)
