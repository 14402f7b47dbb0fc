"""Profiles of other tools' formats, read by what the formats say of themselves.

pprof: the messages of ``profile.proto``. speedscope: a schema of what its ``file-format-spec.ts``
says of sampled profiles, and the rules that its comments give.
"""

from __future__ import annotations

import functools
import gzip
import json
from typing import Any, NamedTuple

import pytest
from protobuf_messages import message_types

__all__ = ("PprofSample", "pprof_samples", "pprof_types", "speedscope_file")

_PPROF = {
    "ValueType": ["int64 type = 1;", "int64 unit = 2;"],
    "Label": ["int64 key = 1;", "int64 str = 2;", "int64 num = 3;", "int64 num_unit = 4;"],
    "Sample": [
        "repeated uint64 location_id = 1;",
        "repeated int64 value = 2;",
        "repeated message Label label = 3;",
    ],
    "Mapping": [
        "uint64 id = 1;",
        "uint64 memory_start = 2;",
        "uint64 memory_limit = 3;",
        "uint64 file_offset = 4;",
        "int64 filename = 5;",
        "int64 build_id = 6;",
        "bool has_functions = 7;",
        "bool has_filenames = 8;",
        "bool has_line_numbers = 9;",
        "bool has_inline_frames = 10;",
    ],
    "Line": ["uint64 function_id = 1;", "int64 line = 2;"],
    "Location": [
        "uint64 id = 1;",
        "uint64 mapping_id = 2;",
        "uint64 address = 3;",
        "repeated message Line line = 4;",
        "bool is_folded = 5;",
    ],
    "Function": [
        "uint64 id = 1;",
        "int64 name = 2;",
        "int64 system_name = 3;",
        "int64 filename = 4;",
        "int64 start_line = 5;",
    ],
    "Profile": [
        "repeated message ValueType sample_type = 1;",
        "repeated message Sample sample = 2;",
        "repeated message Mapping mapping = 3;",
        "repeated message Location location = 4;",
        "repeated message Function function = 5;",
        "repeated string string_table = 6;",
        "repeated int64 comment = 13;",
        "int64 default_sample_type = 14;",
    ],
}
_UNITS = ["none", "nanoseconds", "microseconds", "milliseconds", "seconds", "bytes"]
_NUMBER = {"type": "integer", "minimum": 0}
_SPEEDSCOPE = {
    "type": "object",
    "additionalProperties": False,
    "required": ["$schema", "shared", "profiles"],
    "properties": {
        "$schema": {"const": "https://www.speedscope.app/file-format-schema.json"},
        "exporter": {"type": "string"},
        "name": {"type": "string"},
        "activeProfileIndex": _NUMBER,
        "shared": {
            "type": "object",
            "additionalProperties": False,
            "required": ["frames"],
            "properties": {"frames": {"type": "array", "items": {"$ref": "#/$defs/frame"}}},
        },
        "profiles": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/profile"}},
    },
    "$defs": {
        "frame": {
            "type": "object",
            "additionalProperties": False,
            "required": ["name"],
            "properties": {
                "name": {"type": "string"},
                "file": {"type": "string"},
                "line": _NUMBER,
                "col": _NUMBER,
            },
        },
        "profile": {
            "type": "object",
            "additionalProperties": False,
            "required": ["type", "name", "unit", "startValue", "endValue", "samples", "weights"],
            "properties": {
                "type": {"const": "sampled"},
                "name": {"type": "string"},
                "unit": {"enum": _UNITS},
                "startValue": {"type": "number"},
                "endValue": {"type": "number"},
                "samples": {"type": "array", "items": {"type": "array", "items": _NUMBER}},
                "weights": {"type": "array", "items": {"type": "number"}},
            },
        },
    },
}


class PprofSample(NamedTuple):
    """A stack of a profile of pprof.

    Attributes:
        values: a number for each type of the profile.
        labels: name → text.
        frames: (function, file, line) of each, innermost first; inlined ones before their caller.
        modules: (file, build ID) of each location, innermost first; ("", "") without a mapping.
    """

    values: tuple[int, ...]
    labels: dict[str, str]
    frames: tuple[tuple[str, str, int], ...]
    modules: tuple[tuple[str, str], ...]


@functools.cache
def _profile_type() -> Any:
    return message_types(_PPROF)["Profile"]


def _parsed(data: bytes) -> Any:
    raw = gzip.decompress(data)
    profile = _profile_type().FromString(raw)
    unknown = pytest.importorskip("google.protobuf.unknown_fields").UnknownFieldSet
    parts = (*profile.sample, *profile.mapping, *profile.location, *profile.function)
    assert not [one for one in (profile, *parts) if len(unknown(one))]
    assert profile.string_table[0] == ""
    assert len({*profile.string_table}) == len(profile.string_table)
    return profile


def pprof_types(data: bytes) -> list[tuple[str, str]]:
    """The types of a ``.pb.gz`` file and their units, the one that is shown first."""
    profile = _parsed(data)
    texts = profile.string_table
    shown = profile.default_sample_type
    types = sorted(profile.sample_type, key=lambda one: one.type != shown)
    assert types[0].type == shown
    return [(texts[one.type], texts[one.unit]) for one in types]


def pprof_samples(data: bytes) -> list[PprofSample]:
    """The samples of a ``.pb.gz`` file; what its numbers refer to must be there once."""
    profile = _parsed(data)
    texts = profile.string_table
    mappings, locations, functions = map(
        _by_id, (profile.mapping, profile.location, profile.function)
    )
    found = []
    for sample in profile.sample:
        assert len(sample.value) == len(profile.sample_type)
        places = [locations[number] for number in sample.location_id]
        lines = [(functions[line.function_id], line.line) for one in places for line in one.line]
        used = [mappings[one.mapping_id] if one.mapping_id else None for one in places]
        for place, mapping in zip(places, used, strict=True):
            assert mapping is None or (
                mapping.memory_start <= place.address <= mapping.memory_limit
            )
        found.append(
            PprofSample(
                (*sample.value,),
                {texts[label.key]: texts[label.str] for label in sample.label},
                (*((texts[one.name], texts[one.filename], line) for one, line in lines),),
                (
                    *(
                        ("", "") if m is None else (texts[m.filename], texts[m.build_id])
                        for m in used
                    ),
                ),
            )
        )
    return found


def _by_id(messages: Any) -> dict[int, Any]:
    found = {one.id: one for one in messages}
    assert len(found) == len(messages)
    assert 0 not in found
    return found


def speedscope_file(text: str) -> dict[str, Any]:
    """The content of a file for speedscope, which must have its format."""
    jsonschema = pytest.importorskip("jsonschema", reason="needs jsonschema")
    made: dict[str, Any] = json.loads(text)
    jsonschema.Draft202012Validator(_SPEEDSCOPE).validate(made)
    assert made.get("activeProfileIndex", 0) < len(made["profiles"])
    frames = len(made["shared"]["frames"])
    for profile in made["profiles"]:
        assert len(profile["samples"]) == len(profile["weights"])
        assert all(index < frames for stack in profile["samples"] for index in stack)
        assert profile["endValue"] - profile["startValue"] == sum(profile["weights"])
    return made
