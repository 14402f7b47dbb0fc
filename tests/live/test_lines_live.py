"""--lines on every command that shows stacks of processes, and in Python."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fixtures import TESTBINS
from skips import need_program, requires_root
from tracing_tools import run_usdt

import usdt

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = requires_root

PAGE = Path(__file__).resolve().parents[2] / "docs/stacks.md"


def example() -> tuple[str, list[str]]:
    """The program and the frames that docs/stacks.md shows."""
    text = PAGE.read_text().partition("## Source lines")[2].partition("\n## ")[0]
    source = text.partition("```c\n")[2].partition("```")[0]
    frames = [line.strip() for line in text.splitlines() if re.search(r"\] at \S+:\d+$", line)]
    return source, frames


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shop")
    (folder / "shop.c").write_text(example()[0])
    # Small frames, each with its pointer: it is all the kernel goes by.
    options = ["-g", "-O1", "-fno-omit-frame-pointer", "-mno-omit-leaf-frame-pointer"]
    words = [need_program("gcc"), *options, f"-I{TESTBINS}/out/include", "-o", "shop", "shop.c"]
    subprocess.run([word for word in words if _known(word)], check=True, cwd=folder, timeout=60)
    return folder / "shop"


def _known(option: str) -> bool:
    # A leaf's frame pointer is an option of some CPUs; others have it anyway.
    import platform

    return "leaf" not in option or platform.machine() in ("x86_64", "i686", "aarch64")


def run(*words: object) -> str:
    done = run_usdt(*words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def shown(text: str, shop: Path) -> list[str]:
    """The frames of the program itself, as the page has them."""
    lines = [line.strip().replace(f"{shop.parent}/", "/src/") for line in text.splitlines()]
    return [line for line in lines if "[shop]" in line]


def test_what_the_page_shows_is_what_comes(shop: Path) -> None:
    frames = [line for line in example()[1] if "[shop]" in line]
    assert len(frames) == 3
    text = run("trace", "-c", shop, "-n", 1, "--ustack", "--lines", "shop:sold")
    # The offset is the compiler's business.
    offset = re.compile(r"\+0x[0-9a-f]+")
    assert [offset.sub("+", one) for one in shown(text, shop)][:3] == [
        offset.sub("+", one) for one in frames
    ]
    assert "at " not in run("trace", "-c", shop, "-n", 1, "--ustack", "shop:sold")


def names(frames: Sequence[dict[str, object]]) -> list[tuple[object, object]]:
    return [(one["symbol"], one.get("inlined", False)) for one in frames]


CHAIN = [("price", True), ("total", True), ("sell", False)]


def test_json_folded_aggregations_and_recordings(shop: Path, tmp_path: Path) -> None:
    text = run("trace", "-c", shop, "--json", "-n", 1, "--ustack", "--lines", "shop:sold")
    frames = json.loads(text)["args"]["ustack"]
    assert names(frames)[:3] == CHAIN
    assert [one["file"] for one in frames[:3]] == [f"{shop}.c"] * 3
    assert len({one["address"] for one in frames[:3]}) == 1
    assert all(one["line"] > 0 for one in frames[:3])
    folded = re.compile(
        r"sell \(shop\.c:\d+\);total \(shop\.c:\d+\)_\[i\];price \(shop\.c:\d+\)_\[i\] 2$"
    )
    counted = run("count", "-c", shop, "--folded", "--lines", "shop:sold")
    assert folded.search(counted.strip()), counted
    counted = run("count", "-c", shop, "--by", "ustack", "--lines", "--json", "shop:sold")
    keys = [json.loads(line)["key"]["ustack"] for line in counted.splitlines()]
    assert [names(key)[:3] for key in keys] == [CHAIN, CHAIN]  # main() calls at two addresses
    recording = tmp_path / "sold.usdt"
    run("record", "-c", shop, "--ustack", "-o", recording, "shop:sold")
    reported = run("report", "--json", "--lines", recording)
    assert names(json.loads(reported.splitlines()[0])["args"]["ustack"])[:3] == CHAIN
    assert folded.search(run("report", "--folded", "--lines", recording).strip())
    assert "inlined" not in run("report", "--json", recording)


def test_python(shop: Path) -> None:
    with usdt.attach("shop:sold(ustack)", command=[str(shop)], lines=True) as events:
        stacks = [event.args["ustack"] for event in events]
    assert len(stacks) == 2
    for stack in stacks:
        assert [(one.symbol, one.inlined) for one in stack[:3]] == CHAIN
        assert stack[0].file == f"{shop}.c"


def test_it_is_about_stacks(shop: Path) -> None:
    for words in (["trace", "shop:sold"], ["count", "shop:sold"]):
        done = run_usdt(words[0], "--lines", "-c", shop, words[1])
        assert done.returncode == 2
        assert "--lines needs user stacks" in done.stderr
