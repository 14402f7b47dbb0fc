"""A report page: what was summed up, its sections, and the page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from usdt.base.frozen import replace
from usdt.engine.aggregate.output.text import duration
from usdt.engine.merge.output import loss_lines
from usdt.engine.output.wall_clock import WallClock
from usdt.engine.pages.results import results_json
from usdt.engine.pages.texts import Texts, shortened
from usdt.pictures.flame import flame_part
from usdt.pictures.page import Part, page, text
from usdt.pictures.vendored import asset, library

if TYPE_CHECKING:
    from collections.abc import Sequence

    from usdt.engine.merge.merge import Merge
    from usdt.engine.merge.source import Source
    from usdt.engine.pages.summary import Summary
    from usdt.pictures.tree import Tree

__all__ = ("report_page",)

_SCRIPTS = ("report-tables.js", "report-charts.js", "report-timeline.js", "report.js")
_STACKS = "stacks"  # the section with the flame graph
_LONGEST = 2000  # characters of a text about a stream
_WORDS = 100  # probes of a stream that are named
_SOURCES = 200  # streams that are described


def report_page(
    merge: Merge, summary: Summary, sources: Sequence[Source], problems: Sequence[str]
) -> str:
    """Return the text of a page about everything that was merged.

    Args:
        merge: results, losses, machines.
        summary: events; it is finished.
        sources: the streams.
        problems: what was said of the streams.
    """
    texts = Texts()
    groups = merge.groups()
    results, more = results_json(groups, texts)
    data = _data(merge, summary, results, texts)
    summary.stacks.add_results(groups)
    tree = summary.stacks.tree(texts)
    sections = _sections(summary, results, stacks=tree is not None)
    losses = [*loss_lines(merge), *_left_out(summary, more, texts), *summary.stacks.notices()]
    parts = [Part(_navigation([*sections, ("losses", "Losses"), ("made", "How it was made")]))]
    for name, title in sections:
        parts.append(
            _flame(tree, name, title) if tree and name == _STACKS else Part(_section(name, title))
        )
    parts += [Part(_losses(losses, problems)), Part(_made(sources))]
    uplot = library("uplot")
    parts.append(
        Part(
            "",
            (uplot.package,),
            tuple(map(asset, _SCRIPTS)),
            (uplot.style_text, asset("report.css")),
            {"report": data},
        )
    )
    return page(_title(merge, sources), parts)


def _flame(tree: Tree, name: str, title: str) -> Part:
    made = flame_part(tree)
    return replace(made, html=_section(name, title, made.html))


def _title(merge: Merge, sources: Sequence[Source]) -> str:
    files = [source.name.rpartition("/")[2] for source in sources]
    hosts = [*merge.hosts]
    where = f" of {hosts[0]}" if len(hosts) == 1 else f" of {len(hosts)} hosts" if hosts else ""
    more = f" and {len(files) - 3} more" if len(files) > 3 else ""
    return _line(f"Report{where}: {', '.join(files[:3])}{more}")


# ---------------------------------------------------------------- data


def _data(
    merge: Merge, summary: Summary, results: list[dict[str, Any]], texts: Texts
) -> dict[str, Any]:
    lost: dict[str, int] = {}
    for (_, probe), (hits, _) in merge.lost.items():
        lost[probe] = lost.get(probe, 0) + hits
    begins = merge.begins[0] if merge.begins else 0
    origin = summary.first if summary.events else begins
    return {
        "origin": origin / 1e6,
        "first": 0,
        "last": max(1e-3, (summary.last - origin) / 1e6),
        "figures": _figures(merge, summary, lost),
        "probes": summary.probes(lost),
        "rates": summary.rates(),
        "latencies": summary.latencies.to_json() if summary.latencies.spans else None,
        "slowest": summary.timeline.slowest(origin, texts),
        "timeline": summary.timeline.to_json(origin, texts),
        "results": results,
    }


def _figures(merge: Merge, summary: Summary, lost: dict[str, int]) -> list[tuple[str, Any]]:
    spans = summary.latencies.spans
    figures: list[tuple[str, Any]] = []
    if summary.events:
        figures += [("events", summary.events), ("spans", spans)]
        figures.append(("from first to last", duration(summary.last - summary.first)))
    if merge.results:
        figures.append(("results", merge.results))
    hosts = len(merge.hosts)
    return [*figures, ("hosts" if hosts != 1 else "host", hosts), ("lost", sum(lost.values()))]


# ---------------------------------------------------------------- sections


def _sections(
    summary: Summary, results: list[dict[str, Any]], *, stacks: bool
) -> list[tuple[str, str]]:
    # Only those that have something to show.
    found = [
        ("overview", "Overview", True),
        ("rates", "Rates", bool(summary.events)),
        ("latency", "Latency", bool(summary.latencies.spans)),
        ("slowest", "Slowest spans", bool(summary.timeline.spans)),
        ("timeline", "Timeline", bool(summary.events)),
        (_STACKS, "Stacks", stacks),
    ]
    found += [
        (f"results{index}", f"Results: {one['what']}" if one["what"] else "Results", True)
        for index, one in enumerate(results)
    ]
    return [(name, title) for name, title, shown in found if shown]


def _navigation(sections: Sequence[tuple[str, str]]) -> str:
    links = "".join(
        f'<li><a href="#{name}">{text(title)}</a>{_key(number)}</li>'
        for number, (name, title) in enumerate(sections, 1)
    )
    return f'<nav class="report" aria-label="Sections"><ul>{links}</ul></nav>'


def _key(number: int) -> str:
    return f" <kbd>{number}</kbd>" if number <= 9 else ""


def _section(name: str, title: str, content: str = "") -> str:
    return f'<section class="report" id="{name}"><h2>{text(title)}</h2>{content}</section>'


def _left_out(summary: Summary, more: int, texts: Texts) -> list[str]:
    numbers = (
        (summary.unfinished, "starts without an end"),
        (summary.unbegun, "ends without a start"),
        (summary.bad, "events without a valid time, process or thread: left out"),
        (more, "more kinds of results are not on this page"),
        (texts.left_out, "texts are too long together for this page: … stands for them"),
    )
    return [f"{number} {what}" for number, what in numbers if number]


def _losses(losses: Sequence[str], problems: Sequence[str]) -> str:
    lines = [*losses, *problems] or ["No hits are known to be lost."]
    items = "".join(f"<li>{text(_line(line))}</li>" for line in lines)
    return _section("losses", "Losses", f"<ul>{items}</ul>")


def _made(sources: Sequence[Source]) -> str:
    lists = "".join(map(_source, sources[:_SOURCES]))
    more = len(sources) - _SOURCES
    return _section(
        "made", "How it was made", lists + (f"<p>… {more} more</p>" if more > 0 else "")
    )


def _source(source: Source) -> str:
    about = [("file", source.name)]
    header = source.header
    if header is not None:
        probes = list(header.probes)
        shown = "  ".join(probes[:_WORDS])
        more = f"  … {len(probes) - _WORDS} more" if len(probes) > _WORDS else ""
        clock = header.clock
        about += [
            ("host", header.host),
            ("kernel", source.kernel or header.kernel),
            (
                "machine",
                f"{header.machine}, {header.cpus} processors" if header.cpus else header.machine,
            ),
            ("command", source.command or header.command),
            ("probes", shown + more),
            ("by", ", ".join(header.by or ())),
            ("begun", WallClock(0).iso(clock.realtime) if clock.monotonic else ""),
            ("clock", f"±{clock.error} ns" if clock.monotonic else ""),
            ("tool", header.version),
            ("boot ID", header.boot_id),
        ]
    rows = "".join(
        f"<dt>{name}</dt><dd>{text(_line(value))}</dd>" for name, value in about if value
    )
    return f"<dl>{rows}</dl>"


def _line(value: str) -> str:
    return shortened(value, _LONGEST)
