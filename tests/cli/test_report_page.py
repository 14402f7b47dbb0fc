"""``usdt report --html``: recordings, streams and merged results as pages, in a browser."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fork_server import run
from hostile import HOSTILE
from recordings import CASES, make, many

if TYPE_CHECKING:
    from collections.abc import Iterable

    from browser import Browser, Page

_USDT = str(Path(sys.executable).with_name("usdt"))
_DAY = 1_764_000_000_000_000_000
_SECTIONS = "[...document.querySelectorAll('section')].map(one => one.id)"
_ELEMENTS = "main img, main svg:not(.flame-chart svg), main svg image, main svg script"
_INJECTED = f"document.title.startsWith('Report') && !document.querySelector('{_ELEMENTS}')"


def usdt(*words: object, code: int = 0, given: str = "") -> str:
    """Run the command; return what it says."""
    done = run([_USDT, *map(str, words)], given=given)
    assert "Traceback" not in done.stderr
    assert done.returncode == code, done.stderr
    return done.stderr


def stream(path: Path, command: str, objects: Iterable[dict[str, Any]], **more: Any) -> Path:
    """Write a stream of JSON lines."""
    clock = {"monotonic": 1_000_000, "realtime": _DAY, "error": 20}
    header = {"usdt": 1, "host": "web1", "boot_id": "5f0c", "machine_id": None, "kernel": "6.18.5"}
    header |= {"machine": "x86_64", "cpus": 4, "version": "0.1.0", "command": command}
    header |= {"probes": ["shop:*"], "clock": clock} | more
    path.write_text("".join(json.dumps(one) + "\n" for one in (header, *objects)))
    return path


def queries(number: int) -> Iterable[dict[str, Any]]:
    """Spans of four threads; that of the number 17 is the longest."""
    chance = random.Random(5)
    for n in range(number):
        about = {"pid": 100, "tid": 100 + n % 4, "cpu": 0, "comm": "shop"}
        duration = 9_000_000 if n == 17 else int(chance.expovariate(1 / 200_000))
        args = {"str(arg0)": f"SELECT {n}"}
        start = {"time": 2_000_000 + n * 1_000_000, **about, "args": args}
        yield start | {"probe": "shop:query__start"}
        end = {"time": start["time"] + duration, **about, "args": {"arg0": n}}
        yield end | {"probe": "shop:query__done"}
        if n % 10 == 0:
            yield start | {"probe": "shop:tick"}
    yield {"lost": 3, "probe": "shop:query__done"}


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a stream of events."""
    folder = tmp_path_factory.mktemp("page")
    found = stream(folder / "shop.json", "trace", queries(400))
    said = usdt("report", found, "--html", folder / "shop.html")
    assert said.splitlines() == [
        "shop:query__done: 3 hits lost",
        "840 events of 1 stream from 1 host, 3 lost",
    ]
    return folder / "shop.html"


def check(page: Page) -> None:
    assert page.errors == []
    assert page.requests == [page.url]
    assert page.run(_INJECTED)


def text(page: Page, selector: str) -> str:
    """The text of the first element."""
    found = page.run(f"document.querySelector({json.dumps(selector)}).textContent")
    assert isinstance(found, str)
    return found


# ---------------------------------------------------------------- in a browser


def test_a_page_has_the_sections_for_which_there_is_data(browser: Browser, shop: Path) -> None:
    with browser.open(shop) as page:
        assert page.run(_SECTIONS) == [
            *("overview", "rates", "latency", "slowest", "timeline", "losses", "made"),
        ]
        assert text(page, "h1") == "Report of web1: shop.json"
        assert text(page, "#overview").startswith("Overview840events400spans")
        assert "3 hits lost" in text(page, "#losses")
        assert "host" in text(page, "#made")
        assert text(page, "#latency tbody td") == "shop:query"
        assert text(page, "#slowest tbody tr").startswith(
            "9.00 ms+17.00 msshop:queryweb1shop 100/101"
        )
        assert "SELECT 17" in text(page, "#slowest tbody tr")
        for chart in ("rates", "latency", "timeline"):
            assert page.run(f"document.querySelector('#{chart} canvas').width") > 500
        assert page.colours() > 20
        check(page)


def test_tables_are_sorted_and_filtered(browser: Browser, shop: Path) -> None:
    with browser.open(shop) as page:
        page.click("#slowest th:nth-child(2) button")
        assert page.run("document.querySelectorAll('#slowest th')[1].ariaSort") == "descending"
        page.click("#slowest th:nth-child(2) button")
        times = "[...document.querySelectorAll('#slowest td:nth-child(2)')].map(t => t.textContent)"
        assert page.run(times)[0].startswith("+")
        page.press("f")
        page.type("select 17")
        assert page.run("document.querySelectorAll('#slowest tbody tr').length") == int(
            text(page, "#slowest output").split()[0]
        )
        assert "SELECT 17" in text(page, "#slowest tbody tr")
        page.press("Escape")
        assert page.run("document.activeElement === document.body")
        check(page)


def test_the_keyboard_is_enough(browser: Browser, shop: Path) -> None:
    with browser.open(shop) as page:
        page.press("5")
        page.until("location.hash === '#timeline'")
        assert page.colours() > 5
        page.press("t")
        assert page.run("document.documentElement.dataset.theme") == "dark"
        page.press("?")
        assert page.run("document.querySelector('dialog').open")
        page.press("Escape")
        reached = []
        page.run("document.querySelector('h1').scrollIntoView(); document.body.focus()")
        for _ in range(40):
            page.press("Tab")
            reached.append(page.run("document.activeElement.closest('section, nav, header')?.id"))
        assert {"rates", "latency", "slowest", "timeline"} <= {*reached}
        page.run("document.querySelector('#timeline .chart').focus()")
        before = page.run("Report.charts.map(one => one.scales.x.max)")
        page.press("+")
        after = page.run("Report.charts.map(one => one.scales.x.max)")
        assert [a < b for a, b in zip(after, before, strict=True)] == [False, False, True]
        check(page)


def test_light_and_dark(browser: Browser, shop: Path) -> None:
    back = "getComputedStyle(document.body).backgroundColor"
    with browser.open(shop) as page:
        light = page.run(back)
        page.click("#theme")
        assert page.run(back) != light
        dark = page.run(back)
        check(page)
    with browser.open(shop, dark=True) as page:
        assert page.run(back) == dark
        assert page.run("Report.dark")


def test_the_pointer_tells_what_it_is_at(browser: Browser, shop: Path) -> None:
    with browser.open(shop) as page:
        page.click("#latency .u-over")
        page.click("#timeline .u-over")
        assert "web1  shop 100" in text(page, "#timeline .under")
        check(page)


# ---------------------------------------------------------------- inputs


def test_a_recording(browser: Browser, tmp_path: Path) -> None:
    path, made = tmp_path / "it.usdt", tmp_path / "it.html"
    path.write_bytes(make(CASES, [b"".join(many([3, 1, 4, 1, 5]))], close=False))
    said = usdt("report", path, "--html", made)
    assert "without a closing block" in said
    with browser.open(made) as page:
        assert "usdt record" in text(page, "#made")
        assert "without a closing block" in text(page, "#losses")
        check(page)


def test_merged_results(browser: Browser, tmp_path: Path) -> None:
    for host in ("web1", "web2"):
        spread = {"min": 5, "avg": 7.0, "max": 9, "sum": 21, "p50": 7, "error": 0.015625}
        spread |= {"distribution": [[5, 1], [7, 1], [9, 1]]}
        results = [
            {"time": n * 1_000_000_000, "interval": 1.0, "probe": "shop:buy", "value": "arg0"}
            | {"key": {"comm": f"c{n % 2}"}, "count": 3, **spread}
            for n in range(1, 9)
        ]
        stream(tmp_path / f"{host}.json", "hist", results, host=host, boot_id=host, by=["comm"])
    merged, made = tmp_path / "all.json", tmp_path / "all.html"
    usdt("merge", tmp_path / "web1.json", tmp_path / "web2.json", "--json", "-o", merged)
    usdt("report", merged, "--html", made)
    with browser.open(made) as page:
        assert page.run(_SECTIONS) == ["overview", "results0", "losses", "made"]
        assert "2hosts" in text(page, "#overview")
        assert text(page, "#results0 .table tbody tr").startswith("24")
        check(page)


def stacked(name: str, **more: Any) -> dict[str, Any]:
    """An event with a stack of two functions."""
    frames = [{"symbol": one, "offset": 1, "module": "shop"} for one in (name, "main")]
    about = {"time": 2_000_000, "pid": 5, "tid": 5, "cpu": 0, "comm": "shop", "probe": "shop:buy"}
    return about | {"args": {"ustack": frames}} | more


def test_stacks_are_a_flame_graph(browser: Browser, tmp_path: Path) -> None:
    events = [stacked("sell"), stacked("sell"), stacked("pack")]
    key = {"comm": "shop", "ustack": stacked("sell")["args"]["ustack"]}
    found = stream(tmp_path / "a.json", "trace", events)
    result = {"probe": "shop:buy", "key": key, "count": 5}
    counted = stream(tmp_path / "b.json", "count", [result], boot_id="b")
    usdt("report", found, counted, "--html", tmp_path / "a.html")
    with browser.open(tmp_path / "a.html") as page:
        sections = page.run(_SECTIONS)
        assert sections[sections.index("timeline") :][:4] == [
            *("timeline", "stacks", "flame", "results0"),
        ]
        assert text(page, "#stacks h2") == "Stacks"
        page.press("/")
        page.type("sell")
        page.until("document.querySelector('.flame-found').textContent !== ''")
        assert text(page, ".flame-found") == "7, 87.50%"
        assert page.run("document.querySelectorAll('#stacks g.frame').length") == 5
        page.press("Escape")
        check(page)
    usdt("report", found, counted, "--by", "host", "--html", tmp_path / "apart.html")
    assert "host=web1" in (tmp_path / "apart.html").read_text()


def test_a_merged_stream_has_a_flame_graph(browser: Browser, tmp_path: Path) -> None:
    key = {"comm": "shop", "ustack": stacked("sell")["args"]["ustack"]}
    for host in ("web1", "web2"):
        result = {"probe": "shop:buy", "key": key, "count": 5}
        stream(tmp_path / f"{host}.json", "count", [result], host=host, boot_id=host)
    merged, made = tmp_path / "all.json", tmp_path / "all.html"
    usdt("merge", tmp_path / "web1.json", tmp_path / "web2.json", "--json", "-o", merged)
    usdt("report", merged, "--html", made)
    with browser.open(made) as page:
        assert page.run(_SECTIONS) == [
            *("overview", "stacks", "flame", "results0", "losses", "made"),
        ]
        page.run("document.querySelector('#stacks').scrollIntoView()")
        page.until("document.querySelectorAll('#stacks g.frame').length === 4")
        check(page)


def test_patterns_select_probes(tmp_path: Path) -> None:
    found = stream(tmp_path / "a.json", "trace", queries(10))
    said = usdt("report", found, "shop:tick", "--html", tmp_path / "a.html")
    assert said.splitlines()[-1] == "1 event of 1 stream from 1 host, 0 lost"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        pytest.param(["--json", "--html", "x"], 2, "--html excludes", id="two formats"),
        pytest.param(["--html", "a.json"], 1, "the page would overwrite it", id="the input"),
        pytest.param(["none.json", "--html", "x"], 1, "cannot be read", id="no such file"),
        pytest.param(["--html", "no/x.html"], 1, "cannot be written", id="no such folder"),
    ],
)
def test_mistakes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], code: int, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    stream(tmp_path / "a.json", "trace", queries(1))
    assert said in usdt("report", "a.json", *words, code=code)
    assert not (tmp_path / "x").exists()


def test_an_empty_stream_has_a_page(browser: Browser, tmp_path: Path) -> None:
    found = stream(tmp_path / "a.json", "trace", [])
    usdt("report", found, "--html", tmp_path / "a.html")
    with browser.open(tmp_path / "a.html") as page:
        assert page.run(_SECTIONS) == ["overview", "losses", "made"]
        check(page)


# ---------------------------------------------------------------- hostile texts


def test_texts_cannot_inject(browser: Browser, tmp_path: Path) -> None:
    def events() -> Iterable[dict[str, Any]]:
        for n, bad in enumerate(HOSTILE):
            yield stacked(bad, comm=bad, probe=bad)
            about = {"pid": 5, "tid": n, "cpu": bad, "comm": bad, "probe": f"{bad}__start"}
            yield {"time": 1_500_000 + n, **about, "args": {bad: bad, "str(arg0)": bad}}
            yield {"time": 1_700_000 + n, **about, "probe": bad, "args": bad}
            yield {"time": 1_900_000 + n, **about, "probe": f"{bad}__done", "args": {bad: [bad]}}
            span = {"duration": n, "end_probe": bad, "end_args": {bad: {bad: bad}}}
            yield {"time": 1_950_000, **about, **span, "args": {"names": bad}}
            yield {"lost": 5, "probe": bad}

    def counts() -> Iterable[dict[str, Any]]:
        for bad in HOSTILE:
            yield {"probe": bad, "key": {bad: bad, "comm": bad}, "count": 4, "names": {bad: bad}}

    about = {"host": HOSTILE[1], "kernel": HOSTILE[3], "probes": [*HOSTILE], "machine": HOSTILE[4]}
    found = stream(tmp_path / "<script>a.json", "trace", events(), **about)
    other = stream(tmp_path / "b.json", "count", counts(), **about, boot_id="b")
    usdt("report", found, other, "--html", tmp_path / "bad.html")
    page_text = (tmp_path / "bad.html").read_text()
    assert page_text.isascii() or "\u202e" not in page_text
    with browser.open(tmp_path / "bad.html") as page:
        assert page.run("document.querySelectorAll('#slowest tbody tr').length") > len(HOSTILE)
        page.press("f")
        page.type("<script>")
        page.press("Escape")
        page.press("/")
        page.type("script")
        page.click("#timeline .u-over")
        check(page)


def test_a_page_is_small_whatever_is_in_it(tmp_path: Path) -> None:
    def events() -> Iterable[dict[str, Any]]:
        for n in range(9000):
            about = {"pid": n % 400, "tid": n % 400, "cpu": 0, "comm": "\u202e" * 15}
            args = {"str(arg0)": f"{n}" + "\u4e00" * 200}
            span = {"duration": n**3, "end_probe": f"p:e{n % 60}", "end_args": args}
            yield {"time": n << 24, **about, "probe": f"p:s{n % 60}", "args": args, **span}

    found = stream(tmp_path / "a.json", "spans", events())
    usdt("report", found, "--html", tmp_path / "a.html")
    assert (tmp_path / "a.html").stat().st_size < 5_000_000
