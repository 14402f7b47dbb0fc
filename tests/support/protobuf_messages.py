"""Classes of Protocol Buffers, made of a few lines of their language, without its compiler."""

from __future__ import annotations

import re
from typing import Any

import pytest

__all__ = ("message_types",)

_LINE = re.compile(r"(repeated )?(message )?([\w.]+) (\w+) = (\d+);")


def message_types(messages: dict[str, list[str]]) -> dict[str, Any]:
    """Classes by name, from the lines of their fields: ``repeated sint64 a = 1;``.

    A field of another message is ``message NAME field = 1;``. An enum is an int32.
    """
    needs = "needs protobuf (pip install protobuf)"
    pb = pytest.importorskip("google.protobuf.descriptor_pb2", reason=needs)
    pool = pytest.importorskip("google.protobuf.descriptor_pool", reason=needs).DescriptorPool()
    factory = pytest.importorskip("google.protobuf.message_factory", reason=needs)
    kinds = pb.FieldDescriptorProto
    file = pb.FileDescriptorProto(name="test.proto", syntax="proto3", package="test")
    for name, lines in messages.items():
        made = file.message_type.add(name=name)
        for line in lines:
            match = _LINE.fullmatch(line)
            assert match, line
            repeated, other, kind, field, number = match.groups()
            made.field.add(
                name=field,
                number=int(number),
                label=kinds.LABEL_REPEATED if repeated else kinds.LABEL_OPTIONAL,
                type=kinds.TYPE_MESSAGE if other else kinds.Type.Value(f"TYPE_{kind.upper()}"),
                type_name=f".test.{kind}" if other else None,
            )
    pool.Add(file)
    return {
        name: factory.GetMessageClass(pool.FindMessageTypeByName(f"test.{name}"))
        for name in messages
    }
