"""Where breakpoints may be set: programs of this machine's kind, and no Thumb code."""

from __future__ import annotations

import pytest
from fixtures import CROSS, cross

from usdt.base.errors import TargetError
from usdt.base.machine import KERNEL_MACHINE
from usdt.elf.file import ElfFile
from usdt.probes.probe import Probe, read_probes
from usdt.probes.sites import foreign_reason, points_of, unsupported_code_reason


def probes_of(cpu: str, variant: str) -> list[Probe]:
    paths = [path for path in cross(cpu) if path.parent.name == variant and path.name != "oddnotes"]
    return [probe for path in paths for probe in read_probes(str(path)).probes]


@pytest.mark.parametrize("cpu", CROSS)
def test_programs_of_other_machines_are_left_alone(cpu: str) -> None:
    runs_here = {"i386": ("x86_64", "i386"), "armhf": ("arm",), "arm64": ("aarch64",)}
    runs_here |= {"ppc64el": ("ppc64le",)}
    for probe in probes_of(cpu, "default"):
        reason = foreign_reason(probe)
        assert (reason is None) == (KERNEL_MACHINE in runs_here.get(cpu, (cpu,)))
        assert reason is None or probe.machine in reason or "ARM" in reason


@pytest.mark.parametrize(("variant", "thumb"), [("default", False), ("O0", False), ("thumb", True)])
def test_thumb_code_is_told_from_arm_code(variant: str, thumb: bool) -> None:
    probes = probes_of("armhf", variant)
    assert len(probes) > 100
    for probe in probes:
        with ElfFile(probe.path) as elf:
            for site in probe.sites:
                assert (unsupported_code_reason(elf, probe, site) is not None) is thumb


def test_no_point_is_made_in_thumb_code() -> None:
    probe = probes_of("armhf", "thumb")[0]
    with pytest.raises(TargetError, match="Thumb code"):
        list(points_of(probe, probe.path))


@pytest.mark.parametrize("cpu", [cpu for cpu in CROSS if cpu != "armhf"])
def test_other_cpus_have_no_such_code(cpu: str) -> None:
    for probe in probes_of(cpu, "O0"):
        assert list(points_of(probe, probe.path))
