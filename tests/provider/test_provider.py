"""Providers: the object they make, against readelf and elflint; names, types, and not firing."""

from __future__ import annotations

import asyncio
import inspect
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from cross import assembly_of
from house import ROOT
from skips import need_program

from usdt import Provider, ProviderError, list_probes
from usdt.arch.stubs import STUBS
from usdt.probes.argspec import parse_arguments
from usdt.provider.image import ProbeImage, build
from usdt.provider.probe import TYPES

if TYPE_CHECKING:
    from pathlib import Path

EVERY = tuple(TYPES.values())
PROBES = (
    ProbeImage("every", EVERY[:12]),
    ProbeImage("rest", EVERY[12:]),
    ProbeImage("none", ()),
    ProbeImage("twelve", (TYPES["s32"],) * 12),
)
#: What gcc puts into the notes of <sys/sdt.h> for parameters in these places.
LAST = {
    "x86_64": "-4@48(%rsp)",
    "aarch64": "-4@[sp, 24]",
    "s390x": "-4@212(%r15)",
    "ppc64le": "-4@120(1)",
    "riscv64": "-4@24(sp)",
}


@pytest.fixture(params=STUBS)
def machine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def image(machine: str, tmp_path: Path) -> Path:
    path = tmp_path / "image.so"
    path.write_bytes(build("shop", PROBES, STUBS[machine]).data)
    return path


def test_readelf_finds_nothing_wrong(image: Path) -> None:
    need_program("readelf", "binutils")
    result = subprocess.run(["readelf", "-aW", image], capture_output=True, text=True, check=True)
    assert not result.stderr
    assert "warning" not in result.stdout.lower()


def test_elflint_finds_nothing_wrong(image: Path) -> None:
    lint = need_program("eu-elflint", "elfutils")
    result = subprocess.run([lint, "--gnu-ld", image], capture_output=True, text=True, check=False)
    # It does not know the notes of SystemTap, in no object.
    unknown = "unknown object file note type 3 with owner name 'stapsdt'"
    said = [line for line in result.stdout.splitlines() if unknown not in line]
    assert said in ([], ["No errors"])


def test_notes_are_what_readelf_reads(image: Path, machine: str) -> None:
    need_program("readelf", "binutils")
    text = subprocess.run(["readelf", "-nW", image], capture_output=True, text=True, check=True)
    found = dict(re.findall(r"Name: (\w+)\n.*\n\s+Arguments: ?(.*)", text.stdout))
    assert list(found) == ["every", "rest", "none", "twelve"]
    assert not found["none"]
    assert len(found["every"].split("@")) == 13
    assert found["twelve"].endswith(LAST[machine])


def test_arguments_are_where_a_compiler_has_them(machine: str) -> None:
    parameters = ", ".join(f"long a{n}" for n in range(11))
    source = f"""void f({parameters}, int last)
    {{ __asm__ volatile("@FIRST %0\\n@LAST %1" :: "r"(a0), "m"(last)); }}"""
    text = assembly_of(machine, source)
    first, last = re.findall(r"@(?:FIRST|LAST) (.*)", text)
    assert first == STUBS[machine].operand(0, 8)
    assert f"-4@{last}" == LAST[machine]


def test_every_argument_is_understood(image: Path, machine: str) -> None:
    probes = list_probes(str(image))
    assert {probe.name for probe in probes} == {"every", "none", "rest", "twelve"}
    for probe in probes:
        (site,) = probe.sites
        assert site.semaphore
        for operand in parse_arguments(site.args, machine):
            assert operand.error is None, operand


def test_probes_lie_apart(image: Path) -> None:
    sites = [probe.sites[0] for probe in list_probes(str(image))]
    assert len({site.address for site in sites}) == len({s.semaphore for s in sites}) == 4


@pytest.mark.parametrize(
    ("make", "says"),
    [
        pytest.param(lambda p: Provider("a:b"), "'a:b' cannot name a provider", id="a colon"),
        pytest.param(lambda p: Provider(""), "'' cannot name a provider", id="no name"),
        pytest.param(lambda p: Provider("x" * 129), "128 at most", id="a long name"),
        pytest.param(lambda p: p.probe("é"), "cannot name a probe", id="not ASCII"),
        pytest.param(lambda p: p.probe("a\n"), "cannot name a probe", id="a line end"),
        pytest.param(lambda p: p.probe("x", list), "no type <class 'list'>", id="no such type"),
        pytest.param(lambda p: p.probe("x", "u7"), "no type 'u7'; there are u8", id="no such size"),
        pytest.param(lambda p: p.probe("x", []), r"no type \[\]", id="not hashable"),
        pytest.param(lambda p: p.probe("x", *[int] * 13), "13 arguments; at most 12", id="13"),
        pytest.param(lambda p: p.load(), "p has no probes", id="nothing to load"),
        pytest.param(
            lambda p: (p.probe("x"), p.probe("x")), "p:x is defined already", id="defined twice"
        ),
        pytest.param(
            lambda p: (p.probe("x"), p.load(), p.probe("y")), "define probes before", id="too late"
        ),
        pytest.param(
            lambda p: (p.probe("x"), p.load(path="/nowhere/x.so")),
            "/nowhere/x.so: cannot be made for the probes: No such file",
            id="a file that cannot be",
        ),
    ],
)
def test_what_is_wrong_is_said(make: object, says: str) -> None:
    provider = Provider("p")
    try:
        with pytest.raises(ProviderError, match=says) as caught:
            make(provider)  # type: ignore[operator]
    finally:
        provider.unload()
    assert "\n" not in str(caught.value)


def test_nothing_fires_before_load_and_after_unload() -> None:
    provider = Provider("quiet")
    probe = provider.probe("it", int, str)
    for _ in range(2):
        assert not probe.enabled
        probe.fire(1, "x")
        with provider:
            assert provider.loaded
            assert not probe.enabled
            probe.fire(1, "x")
        assert not provider.loaded


def test_too_few_values_are_told_even_untraced() -> None:
    probe = Provider("quiet").probe("it", int, str)
    with pytest.raises(TypeError, match="quiet:it takes 2 values, not 1"):
        probe.fire(1)
    provider = Provider("single")
    with pytest.raises(TypeError, match="single:it takes 1 value, not 2"):
        provider.probe("it", int).fire(1, 2)
    assert repr(provider) == "<provider single, 1 probe, not loaded>"


def test_nothing_remains_after_unload(tmp_path: Path) -> None:
    def mapped() -> str:
        with open("/proc/self/maps") as maps:  # noqa: PTH123
            return maps.read()

    provider = Provider("passing")
    provider.probe("it")
    before = set(os.listdir("/proc/self/fd"))  # noqa: PTH208
    provider.load()
    assert "/memfd:usdt-passing" in mapped()
    provider.unload()
    assert "usdt-passing" not in mapped()
    assert set(os.listdir("/proc/self/fd")) <= before  # noqa: PTH208
    path = tmp_path / "passing.so"
    provider.load(path=str(path))
    assert str(path) in mapped()
    provider.unload()
    assert str(path) not in mapped()
    assert not path.exists()


def test_two_loaded_at_once_are_two() -> None:
    one, other = Provider("one"), Provider("other")
    one.probe("first")
    other.probe("second")
    with one, other:
        names = {probe.full_name for probe in list_probes(pid=os.getpid(), pattern="o*:*")}
    assert names == {"one:first", "other:second"}


def test_a_span_leaves_functions_as_they_are() -> None:
    provider = Provider("shop")
    span = provider.span("request")
    assert provider.span("request") is span

    @span
    def double(number: int) -> int:
        """Twice."""
        return 2 * number

    @span
    async def later(number: int) -> int:
        await asyncio.sleep(0)
        return number + 1

    @span
    def fails() -> None:
        raise KeyError("x")

    assert (double(4), double.__name__, double.__doc__) == (8, "double", "Twice.")
    assert inspect.iscoroutinefunction(later)
    assert asyncio.run(later(1)) == 2
    with pytest.raises(KeyError):
        fails()
    with pytest.raises(ValueError, match="inside"), span, span:
        raise ValueError("inside")


def test_a_cpu_without_a_stub_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    provider = Provider("p")
    provider.probe("x")
    monkeypatch.setattr("usdt.provider.provider.PROCESS_MACHINE", "sparc64")
    known = ", ".join(STUBS)
    with pytest.raises(ProviderError, match=f"CPU sparc64; for {known} they can"):
        provider.load()


def test_importing_does_nothing() -> None:
    script = "import usdt, sys; usdt.Provider; print('usdt.bpf._syscall' in sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert result.stdout == "False\n"
