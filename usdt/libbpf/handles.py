"""Maps and programs of others, however they are given: objects, descriptors, pins."""

from __future__ import annotations

import os
import struct
from typing import Protocol

from usdt.base.errors import TargetError
from usdt.bpf._uapi import ProgType
from usdt.bpf.maps import Map
from usdt.bpf.objects import object_info
from usdt.bpf.program import Program

__all__ = ("MapLike", "ProgramLike", "as_map", "as_program", "wrong_type")

_TYPE = struct.Struct("=I")  # bpf_prog_info begins with the type


class _HasMapFd(Protocol):
    map_fd: int


class _HasFd(Protocol):
    fd: int


MapLike = Map | int | str | os.PathLike[str] | _HasMapFd
ProgramLike = Program | int | str | os.PathLike[str] | _HasFd


def as_map(given: MapLike) -> Map:
    """Return a map with a descriptor of its own.

    Raises:
        TargetError: it is not a map.
    """
    if isinstance(given, Map):
        return Map.from_fd(given.fd.fileno())
    if isinstance(given, int):
        return Map.from_fd(given)
    if isinstance(given, str | os.PathLike):
        return Map.from_pin(given)
    return Map.from_fd(given.map_fd)


def as_program(given: ProgramLike, kind: ProgType = ProgType.KPROBE) -> Program:
    """Return a program with a descriptor of its own.

    Raises:
        TargetError: it is not a program, or not of type ``kind``.
    """
    if isinstance(given, Program):
        program = Program.from_fd(given.fd.fileno())
    elif isinstance(given, int):
        program = Program.from_fd(given)
    elif isinstance(given, str | os.PathLike):
        program = Program.from_pin(given)
    else:
        program = Program.from_fd(given.fd)
    number = _TYPE.unpack(object_info(program.fd, _TYPE.size))[0]
    if number != kind:
        program.close()
        raise wrong_type(number, kind)
    return program


def wrong_type(number: int, kind: ProgType) -> TargetError:
    """Return the error that a program has another type than its probe needs."""
    known = [one for one in ProgType if one == number]
    name = f"{known[0].name} ({number})" if known else str(number)
    return TargetError(
        f"a program of type {name}: these probes run programs of type {kind.name} ({kind:d})"
    )
