"""A manager of other people's programs, set up for the tests of this folder."""

from __future__ import annotations

import contextlib
import os
import shutil
import struct
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from manysites import SYNTAX, build_sites
from recorder import Tracer, tracing

from usdt.bpf import features
from usdt.bpf._uapi import MapType
from usdt.bpf.link import UprobeMethod
from usdt.bpf.maps import Map, MapSpec
from usdt.libbpf.manager import Manager
from usdt.libbpf.usdt_spec import SpecArgument, UsdtSpecLayout, decode_spec

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ("Setup", "few_sites", "managing", "pins_folder")


class Setup:
    """A manager, its maps, and a program for each way of attaching."""

    def __init__(self, specs: Map, ips: Map, via: UprobeMethod, tracer: Tracer) -> None:
        self.specs = specs
        self.ips = ips
        self.tracer = tracer
        self.program = tracer.program
        self.path = tracer.path
        self.via = via
        self.manager = Manager(specs, ips, via=via)

    def spec(self, number: int) -> tuple[tuple[SpecArgument, ...], int]:
        """Arguments and cookie of a spec ID."""
        data = self.specs.get(struct.pack("=i", number))
        assert data is not None
        spec = decode_spec(data, self.manager.layout)
        return spec.arguments, spec.cookie

    def addresses(self) -> dict[int, int]:
        """Address -> spec ID."""
        return {
            int.from_bytes(key, sys.byteorder): int.from_bytes(value, sys.byteorder)
            for key, value in self.ips.items()
        }


@contextlib.contextmanager
def managing(
    path: Path,
    via: UprobeMethod | None = None,
    *,
    entries: int = 256,
    layout: UsdtSpecLayout = UsdtSpecLayout.CLASSIC,
) -> Iterator[Setup]:
    """A manager with libbpf's maps, made by us, and a tracer's program for it.

    Raises:
        NotSupported: cookies, where no way is named or one with cookies, are not there.
    """
    if via is None:
        via = UprobeMethod.UPROBE_MULTI if features.have_uprobe_multi() else UprobeMethod.PERF_LINK
    way = {
        UprobeMethod.UPROBE_MULTI: "multi",
        UprobeMethod.PERF_LINK: "perf",
        UprobeMethod.PERF_EVENT: "ioctl",
    }[via]
    with (
        MapSpec(MapType.ARRAY, 4, layout.value, entries, "__bpf_usdt_specs").create() as specs,
        MapSpec(MapType.HASH, 8, 4, 4 * entries, "__bpf_usdt_ip_t").create() as ips,
        tracing(path, way) as tracer,
    ):
        setup = Setup(specs, ips, via, tracer)
        with setup.manager:
            yield setup


def few_sites(folder: Path) -> Path:
    """Three probes: one site, four sites of two specs, two sites of two specs."""
    return build_sites(
        folder,
        {
            "one": [f"{SYNTAX.number(7)} {SYNTAX.pointer}"],
            "four": [SYNTAX.number(1), SYNTAX.number(2)] * 2,
            "two": [SYNTAX.pointer, SYNTAX.pointed],
        },
    )


@contextlib.contextmanager
def pins_folder() -> Iterator[Path]:
    """A directory in bpffs, removed with all that is in it."""
    directory = Path(f"/sys/fs/bpf/usdt-test-{os.getpid()}")
    try:
        directory.mkdir()
    except OSError as err:
        pytest.skip(f"needs bpffs at /sys/fs/bpf: {err.strerror}")
    try:
        yield directory
    finally:
        shutil.rmtree(directory)
