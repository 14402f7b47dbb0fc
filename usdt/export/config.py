"""The configuration of ``usdt export``: a TOML file → metrics, checked without tracing."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from usdt.base.durations import nanoseconds
from usdt.base.errors import TracingError
from usdt.base.frozen import field, frozen
from usdt.cgroups.selection import CgroupChoice
from usdt.engine.aggregate.spec import (
    Aggregation,
    Items,
    is_pattern,
    is_return,
    parse_keys,
)
from usdt.engine.language import parse_probe
from usdt.engine.spans.spec import span_spec
from usdt.export.buckets import histogram_buckets
from usdt.export.endpoints import Endpoint, Otlp, parse_listen
from usdt.export.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from usdt.engine.language.tree import ProbeText
    from usdt.engine.spans.spec import SpanSpec
    from usdt.export.buckets import HistogramBuckets

__all__ = ("METRIC_KEYS", "Config", "Metric", "SpanSource", "Targets", "load_config")

# Metrics of the exporter itself, besides those that begin with usdt_: see usdt/export/health.py.
_OWN_NAMES = frozenset(
    {
        "process_cpu_seconds",
        "process_open_fds",
        "process_resident_memory_bytes",
        "process_start_time_seconds",
    }
)
_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_RETURNING = ("uprobe", "kprobe", "fentry", "syscall")
_URL = re.compile(r"https?://[!-~]+")
# Keys that choose cgroups → the options of commands. ``unit`` is that of a metric's values.
_CGROUPS: dict[str, Literal["cgroup", "unit", "container", "pod"]] = {
    "cgroup": "cgroup",
    "systemd_unit": "unit",
    "container": "container",
    "pod": "pod",
}
_TARGETS = ("pid", "program", "all", *_CGROUPS)
#: The keys of [[metric]].
METRIC_KEYS = (
    *("name", "help", "type", "probe", "probes", "end", "key", *_TARGETS),
    *("by", "unit", "buckets", "range", "max_series", "max_string"),
)
_DIVISORS = {"ns": 10**9, "us": 10**6, "ms": 1000, "s": 1}
_LARGEST_FILE = 4 << 20
_MAX_SERIES = 100_000
_DEFAULT_RANGES = {True: (953, 64 * 10**9), False: (0, 1 << 31)}  # of a duration: 2^-20 s to 2^6 s
_EVERY = (-(1 << 63), 1 << 64)


@frozen
class Targets:
    """The processes in which a metric is measured.

    Attributes:
        pids: process IDs.
        program: name of a program; "" for none.
        every: all processes.
        cgroups: cgroups, containers, pods, units.
    """

    pids: tuple[int, ...] = ()
    program: str = ""
    every: bool = False
    cgroups: tuple[CgroupChoice, ...] = ()


@frozen
class Metric:
    """One metric; two of the same definition are equal.

    Attributes:
        definition: the table of the file, as text.
        name: without the suffix ``_total``.
        help: its description.
        buckets: those of a histogram; None: it is a counter.
        probes: the probes; start and end of a duration.
        targets: the processes.
        aggregation: what the kernel computes.
        labels: names of the labels, in the order of the aggregation's keys.
        by_probe: whether the label ``probe`` has the name of the probe.
        unit: unit in the metric's name; "" for none.
        divisor: what values are divided by.
        limits: the lowest and the highest value with a bucket of its own.
        max_series: combinations of label values that are kept apart.
        max_string: bytes of a string.
    """

    definition: str
    name: str = field(compare=False)
    help: str = field(compare=False)
    buckets: HistogramBuckets | None = field(compare=False)
    probes: tuple[ProbeText, ...] = field(compare=False)
    targets: Targets = field(compare=False)
    aggregation: Aggregation = field(compare=False)
    labels: tuple[str, ...] = field(compare=False)
    by_probe: bool = field(compare=False)
    unit: str = field(compare=False)
    divisor: int = field(compare=False)
    limits: tuple[int, int] = field(compare=False)
    max_series: int = field(compare=False)
    max_string: int = field(compare=False)


@frozen
class SpanSource:
    """Spans that are sent as traces; two of the same definition are equal.

    Attributes:
        definition: the table of the file, as text.
        name: what messages call it.
        spec: the spans.
        targets: the processes.
        max_string: bytes of a string.
    """

    definition: str
    name: str = field(compare=False)
    spec: SpanSpec = field(compare=False)
    targets: Targets = field(compare=False)
    max_string: int = field(compare=False)


@frozen
class Config:
    """A checked configuration.

    Attributes:
        listen: where Prometheus asks; None: it does not.
        metrics: the metrics.
        otlp: where they are sent; None: nowhere.
        spans: the spans that are sent there, too.
    """

    listen: Endpoint | None
    metrics: tuple[Metric, ...]
    otlp: Otlp | None = None
    spans: tuple[SpanSource, ...] = ()


def load_config(path: str) -> Config:
    """Read a configuration.

    Raises:
        TracingError: the file cannot be read or has a mistake; the message names table and key.
    """
    top = Table(path, "", _read(path))
    top.check_keys(("listen", "otlp", "metric", "span"))
    metrics = tuple(_metric(one) for one in _tables(top, path, "metric"))
    spans = tuple(_span(one) for one in _tables(top, path, "span"))
    if not metrics and not spans:
        raise top.error("metric", "expected metrics; write [[metric]] and its keys below")
    if spans and "otlp" not in top.values:
        raise top.error("span", "spans are sent to a collector; write [otlp] and its endpoint")
    names: set[str] = set()
    for metric in metrics:
        if metric.name in names:
            raise top.error(f"[[metric]] {metric.name}: name", "used twice; write another name")
        names.add(metric.name)
    listen = top.text("listen", "127.0.0.1:9435", example="127.0.0.1:9435")
    try:
        endpoint = parse_listen(listen)
    except TracingError as err:
        raise top.error("listen", str(err)) from err
    return Config(endpoint, metrics, _otlp(top), spans)


def _otlp(top: Table) -> Otlp | None:
    if "otlp" not in top.values:
        return None
    example = "http://127.0.0.1:4318"
    table = top.table("otlp", f'[otlp] and endpoint = "{example}"')
    table.check_keys(("endpoint", "interval"))
    url = table.text("endpoint", example=example)
    if not _URL.fullmatch(url):
        raise table.error("endpoint", f'{url}: not a URL; write endpoint = "{example}"')
    return Otlp(url, table.integer("interval", 15, 1, 3600))


def _read(path: str) -> dict[str, Any]:
    try:
        with Path(path).open("rb") as file:
            data = file.read(_LARGEST_FILE + 1)
        if len(data) > _LARGEST_FILE:
            raise TracingError(f"{path}: larger than {_LARGEST_FILE >> 20} MiB; split it")
        return tomllib.loads(data.decode())
    except OSError as err:
        raise TracingError(f"{path}: {err.strerror}; expected a configuration in TOML") from err
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as err:
        raise TracingError(f"{path}: not TOML: {err}; see docs/export.md for an example") from err


def _tables(top: Table, path: str, kind: str) -> Iterator[Table]:
    found = top.values.get(kind, [])
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise top.error(kind, f"expected tables; write [[{kind}]]")
    for number, values in enumerate(found, 1):
        name = values.get("name")
        yield Table(
            path, f"[[{kind}]] {name if isinstance(name, str) and name else number}", values
        )


def _span(table: Table) -> SpanSource:
    table.check_keys(("name", "probe", "end", "key", "slower", "max_string", *_TARGETS))
    table.text("probe", example="provider:name")
    probes = _probes(table)
    key = table.text("key", example="tid") if "key" in table.values else None
    try:
        slower = nanoseconds(table.text("slower", "0ns", example="10ms")) or 0
        spec = span_spec(*probes[:1], *(probes[1:] or (None,)), key=key, slower=slower)
    except (TracingError, ValueError) as err:
        raise table.error("probe", str(err)) from err
    if spec.end is None and probes[0].kind not in _RETURNING:
        raise table.error("end", 'the probe has no return; write end = "provider:name"')
    return SpanSource(
        json.dumps(table.values, sort_keys=True, default=str),
        table.text("name", probes[0].text, example="query"),
        spec,
        _targets(table, probes),
        table.integer("max_string", 128, 1, 4096),
    )


def _metric(table: Table) -> Metric:
    table.check_keys(METRIC_KEYS)
    histogram = table.choice("type", ("counter", "histogram")) == "histogram"
    probes = _probes(table)
    timed = "end" in table.values
    if timed and not histogram:
        raise table.error("end", 'a duration is a histogram; write type = "histogram"')
    labels, keys = _labels(table)
    by_probe = not timed and (len(probes) > 1 or is_pattern(probes[0]))
    if by_probe and "probe" in labels:
        raise table.error("by", "the label probe has the probe's name; write another label")
    max_series = table.integer("max_series", 100, 1, _MAX_SERIES)
    unit, divisor = _unit(table, timed=timed)
    buckets = _buckets(table, divisor) if histogram else None
    aggregation = _aggregation(table, probes, keys, buckets, max_series=max_series)
    return Metric(
        json.dumps(table.values, sort_keys=True, default=str),
        _name(table, unit, histogram=histogram),
        table.text("help", example="Requests that were handled"),
        buckets,
        probes,
        _targets(table, probes),
        aggregation,
        labels,
        by_probe,
        unit,
        divisor,
        _range(table, buckets, timed=timed),
        max_series,
        table.integer("max_string", 128, 1, 4096),
    )


def _name(table: Table, unit: str, *, histogram: bool) -> str:
    name = table.text("name", example="myapp_requests")
    own = name.startswith("usdt_") or name.removesuffix("_total") in _OWN_NAMES
    if not _NAME.fullmatch(name) or own:
        what = "it is one of the exporter's own" if own else "letters, digits, _"
        raise table.error("name", f'{name}: not a name ({what}); write name = "myapp_requests"')
    name = name if histogram else name.removesuffix("_total")
    if unit and not name.endswith(f"_{unit}"):
        raise table.error("name", f'has the unit {unit}; write name = "{name}_{unit}"')
    return name


def _probes(table: Table) -> tuple[ProbeText, ...]:
    if ("probe" in table.values) == ("probes" in table.values):
        raise table.error("probe", 'expected probe or probes; write probe = "provider:name"')
    texts = table.texts("probe" if "probe" in table.values else "probes", "provider:name")
    if "end" in table.values:
        if len(texts) > 1:
            raise table.error("end", "a duration has one start; write one probe")
        texts = [*texts, table.text("end", example="provider:name")]
    found = []
    for text in texts:
        try:
            found.append(parse_probe(text, default="usdt"))
        except TracingError as err:
            raise table.error("probe", str(err)) from err
    return tuple(found)


def _labels(table: Table) -> tuple[tuple[str, ...], str | None]:
    by = table.table("by", 'by = {user = "uid"}')
    for name in by.values:
        if not _NAME.fullmatch(name) or name.startswith("__") or name == "le":
            raise by.error(name, "not the name of a label; write letters, digits and _")
    texts = [by.text(name, example="str(arg0)") for name in by.values]
    for name, text in zip(by.values, texts, strict=True):
        try:
            number = len(parse_keys(text, "by").items)
        except TracingError as err:
            raise by.error(name, str(err)) from err
        if number != 1:
            raise by.error(name, f"expected one expression, found {text}")
    repeated = {text for text in texts if texts.count(text) > 1}
    if repeated:
        raise by.error(next(iter(by.values)), f"{min(repeated)} is used twice; write it once")
    return tuple(by.values), ", ".join(texts) or None


def _aggregation(
    table: Table,
    probes: tuple[ProbeText, ...],
    keys: str | None,
    buckets: HistogramBuckets | None,
    *,
    max_series: int,
) -> Aggregation:
    timed = "end" in table.values
    if "key" in table.values and not timed:
        raise table.error("key", 'pairs a start with its end; write end = "provider:name" as well')
    value = any(
        not item.is_predicate and not is_return(item) for one in probes for item in one.items
    )
    try:
        pair = parse_keys(table.text("key", "tid", example="tid"), "key") if timed else None
        made = Aggregation(
            stats=buckets is not None or value,
            buckets=None if buckets is None else buckets.kernel,
            keys=parse_keys(keys, "by") if keys else Items(),
            pair=pair,
            max_keys=max(1024, 4 * max_series),
        )
        for probe in probes:
            made.check(probe)
    except TracingError as err:
        raise table.error("probe", str(err)) from err
    if made.names:
        raise table.error("by", "a stack or a symbol is no label; write another expression")
    return made


def _buckets(table: Table, divisor: int) -> HistogramBuckets:
    try:
        return histogram_buckets(table.values.get("buckets", "log2"), divisor)
    except TracingError as err:
        raise table.error("buckets", str(err)) from err


def _unit(table: Table, *, timed: bool) -> tuple[str, int]:
    text = table.values.get("unit", "ns" if timed else "")
    if not isinstance(text, str) or not (text == "" or _NAME.fullmatch(text)):
        raise table.error("unit", 'expected ns, us, ms, s or a word; write unit = "bytes"')
    if timed and text != "ns":
        raise table.error("unit", "a duration is in seconds; leave unit out")
    if text in _DIVISORS:
        return "seconds", _DIVISORS[text]
    return text, 1


def _range(table: Table, buckets: HistogramBuckets | None, *, timed: bool) -> tuple[int, int]:
    value = table.values.get("range")
    if value is None:
        powers = buckets is not None and buckets.schema is not None
        return _DEFAULT_RANGES[timed] if powers else _EVERY
    numbers = isinstance(value, list) and all(type(one) is int for one in value)
    if not numbers or len(value) != 2 or not value[0] < value[1]:
        raise table.error("range", "expected two integers, low and high; write range = [1, 1000]")
    return value[0], value[1]


def _targets(table: Table, probes: tuple[ProbeText, ...]) -> Targets:
    given = [key for key in _TARGETS if key in table.values]
    if len(given) > 1:
        raise table.error(given[1], f"{given[0]} is given as well; write one of them")
    if not given:
        if all(one.path is not None or one.kind not in {"usdt", "uprobe"} for one in probes):
            return Targets()
        raise table.error(
            "program", 'whom to trace is missing; write program = "NAME", or name the file in probe'
        )
    (key,) = given
    if key == "pid":
        return Targets(pids=(table.integer("pid", 1, 1, 1 << 30),))
    if key == "program":
        return Targets(program=table.text("program", example="postgres"))
    if key == "all":
        if table.values["all"] is not True:
            raise table.error("all", "expected true; write all = true, or leave it out")
        return Targets(every=True)
    return Targets(cgroups=(CgroupChoice(_CGROUPS[key], table.text(key, example="web")),))
