"""Profiles for pprof and speedscope, and folded stacks; SVG."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest
from hostile import HOSTILE
from pictures.profiles import shop
from profile_formats import PprofSample, pprof_samples, pprof_types, speedscope_file

from usdt.base.text import printable
from usdt.pictures.folded import add_folded
from usdt.pictures.frames import frames_of, joined
from usdt.pictures.pprof import pprof
from usdt.pictures.profile import Frame, Profile
from usdt.pictures.speedscope import speedscope
from usdt.pictures.svg import flame_svg
from usdt.pictures.tree import tree_of

if TYPE_CHECKING:
    from pathlib import Path

    from browser import Browser


def _hostile() -> Profile:
    profile = Profile(title="".join(HOSTILE))
    for text in HOSTILE:
        profile.add((("comm", text), (text, text)), (Frame(text, module=text, file=text),), (1,))
    return profile


def test_go_reads_a_pprof_profile(tmp_path: Path) -> None:
    go = shutil.which("go")
    if go is None:
        pytest.skip("needs the program go: apt-get install golang-go")
    path = tmp_path / "shop.pb.gz"
    path.write_bytes(pprof(shop()))
    command = [go, "tool", "pprof", "-raw", path]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert "hits/count duration/nanoseconds[dflt]" in lines
    assert "3 3000: 1 2" in lines
    assert "comm:[shop]" in lines
    assert "1: 0x1200 M=1 total /src/shop.c:9 s=0" in lines  # both functions of one location
    assert "sell /src/shop.c:13 s=0" in lines
    assert "1: 0x0/0xffffffffffffffff/0x0 shop ab12 [FN][LN][IN]" in lines


def test_a_pprof_profile_has_all_of_a_profile() -> None:
    data = pprof(shop())
    assert pprof_types(data) == [("duration", "nanoseconds"), ("hits", "count")]
    native, python, java = pprof_samples(data)
    assert native == PprofSample(
        (3, 3000),
        {"comm": "shop"},
        (("total", "/src/shop.c", 9), ("sell", "/src/shop.c", 13), ("main", "", 0)),
        (("shop", "ab12"), ("shop", "ab12")),
    )
    assert python.frames == (("vfs_read", "", 0), ("Worker.run", "/srv/app.py", 8), ("main", "", 0))
    assert python.modules == (("[kernel]", "cd34"), ("", ""), ("shop", "ab12"))
    assert (java.values, java.frames[0]) == ((1, 2000), ("int Shop.go(int)", "", 0))


def test_hostile_texts_stay_texts_in_pprof() -> None:
    samples = pprof_samples(pprof(_hostile()))
    assert len(samples) == len(HOSTILE)
    for sample, wanted in zip(samples, map(printable, HOSTILE), strict=True):
        assert sample.frames == ((wanted, wanted, 0),)
        assert sample.modules == ((wanted, ""),)


def test_a_pprof_profile_is_the_same_each_time() -> None:
    assert pprof(shop()) == pprof(shop())


def test_speedscope_has_a_profile_for_each_weight() -> None:
    made = speedscope_file(speedscope(shop()))
    names = [frame["name"] for frame in made["shared"]["frames"]]
    assert names == ["shop", "main", "sell", "total", "Worker.run", "vfs_read", "int Shop.go(int)"]
    hits, duration = made["profiles"]
    assert (hits["unit"], duration["unit"]) == ("none", "nanoseconds")
    assert duration["weights"] == [3000, 5000, 2000]
    assert duration["endValue"] == 10000
    assert duration["samples"][0] == [0, 1, 2, 3]
    assert made["activeProfileIndex"] == 1
    frames = speedscope_file(speedscope(_hostile()))["shared"]["frames"]
    assert {frame.get("file", "") for frame in frames} >= {*map(printable, HOSTILE)}


def test_an_svg_is_searched_and_zoomed(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "flame.svg"
    path.write_text(flame_svg(tree_of(shop())))
    with browser.open(path) as page:
        page.run("window.prompt = () => 'sell|READ'")
        page.click("#search")
        assert page.run("document.getElementById('found').textContent") == "sell|READ: 80.00%"
        width = (
            "Number([...document.querySelectorAll('#boxes g')].find(g =>"
            " g.textContent.startsWith('vfs_read')).querySelector('rect').getAttribute('width'))"
        )
        assert page.run(width) == 590
        page.run(
            "[...document.querySelectorAll('#boxes g')].find(g =>"
            " g.textContent.startsWith('vfs_read')).dispatchEvent(new Event('click'))"
        )
        assert page.run(width) == 1180
        assert page.colours() > 10
        assert page.errors == []
        assert page.requests == [page.url]


def test_an_svg_of_hostile_names_is_valid() -> None:
    root = ET.fromstring(flame_svg(tree_of(_hostile())))
    scripts = root.findall("{http://www.w3.org/2000/svg}script")
    assert len(scripts) == 1


def test_folded_stacks_are_read() -> None:
    profile = Profile()
    lines = [
        "shop;main;sell (shop.c:13);total (shop.c:9)_[i] 3\n",
        "shop;main;Worker.run (app.py:8);vfs_read_[k] 2\n",
        "no number\n",
    ]
    assert add_folded(profile, lines) == 1
    one, two = profile.samples()
    assert one.labels == (("comm", "shop"),)
    assert [frame.kind for frame in one.frames] == ["native", "native", "inlined"]
    assert [frame.kind for frame in two.frames] == ["native", "python", "kernel"]
    assert two.values == (2,)


def test_frames_of_json_have_their_kinds() -> None:
    stack = [
        {"symbol": "in", "module": "a", "inlined": True, "link_address": 5, "build_id": "ab"},
        {"symbol": None, "module": "a", "link_address": 5, "build_id": "ab"},
        {"symbol": "int X.y()", "module": "perf-12.map"},
        {"symbol": "run", "file": "/a.py", "line": 3, "python": True},
        {"error": "why"},
    ]
    frames = frames_of("ustack(5)", stack)
    assert [(frame.name, frame.kind) for frame in frames] == [
        *(("[incomplete]", "note"), ("run", "python"), ("int X.y()", "jit")),
        *(("[a]", "native"), ("in", "inlined")),
    ]
    kernel = frames_of("kstack", [{"symbol": "f", "module": "[kernel]"}])
    assert joined([("kstack", kernel), ("ustack(5)", frames)])[-1] == kernel[0]
    missing = joined([("kstack", frames_of("kstack", {"error": "no frames"}))])
    assert missing == (Frame("[no kernel frames]", "note"),)


@pytest.mark.parametrize("stack", [None, 5, "x", [], [5], [{"symbol": 7, "line": -1}], {"a": 1}])
def test_any_json_may_be_a_stack(stack: object) -> None:
    assert len(frames_of("ustack", stack)) <= 1
