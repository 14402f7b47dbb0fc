"""``count``, ``hist``, ``stats``, ``latency`` and ``heatmap``: print kernel aggregates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from usdt.base.errors import TracingError
from usdt.engine.aggregate.results import order
from usdt.engine.aggregate.spec import (
    Aggregation,
    Linear,
    Log2,
    are_start_and_end,
    is_stack,
    parse_keys,
    parse_linear,
)
from usdt.engine.cli.aggregates.jobs import AggregateJob, HeatmapJob
from usdt.engine.cli.options import parse_options, parse_requests, stacks_of
from usdt.engine.cli.pictures.options import PICTURES
from usdt.engine.cli.running import run_command
from usdt.engine.cli.trace import check_lines, symbolizer
from usdt.engine.compiler.limits import DEFAULT_RESOLUTION
from usdt.engine.language import parse_items
from usdt.engine.language.pattern import find_items
from usdt.engine.output.stacks import StackResolver
from usdt.engine.run.options import AggregateOptions
from usdt.engine.run.registry import kind_of

if TYPE_CHECKING:
    from usdt.engine.language.tree import ProbeKind

__all__ = ("run_count", "run_heatmap", "run_hist", "run_latency", "run_stats")

_UNITS = {"ns": 1, "us": 1000, "ms": 1_000_000, "s": 1_000_000_000}


def run_count(kind: ProbeKind, values: dict[str, Any]) -> int:
    """Count hits; return the exit code."""
    options = _aggregate_options(values)
    return _run(kind, values, options, _aggregation(options))


def run_hist(kind: ProbeKind, values: dict[str, Any]) -> int:
    """Make histograms of a value; return the exit code."""
    options = _aggregate_options(values)
    aggregation = _aggregation(
        options, stats=True, buckets=_buckets(options), resolution=_resolution(options)
    )
    return _run(kind, values, options, aggregation)


def run_stats(kind: ProbeKind, values: dict[str, Any]) -> int:
    """Compute count, min, avg, max and sum of a value or a time; return the exit code."""
    options = _aggregate_options(values)
    resolution = _resolution(options)
    if are_start_and_end(parse_requests(values["probes"], kind)):
        return _run(kind, values, options, _times(options, stats=True, resolution=resolution))
    if options.key is not None or options.end_key is not None or options.at_start:
        raise click.UsageError(
            "--key, --end-key and --at-start need START END, two probes without a value"
        )
    return _run(kind, values, options, _aggregation(options, stats=True, resolution=resolution))


def run_latency(kind: ProbeKind, values: dict[str, Any]) -> int:
    """Measure the time from one probe to another; return the exit code."""
    start = values["start"]
    values["probes"] = (start, values["end"] or _return_of(kind, start))
    options = _aggregate_options(values)
    aggregation = _times(
        options, stats=True, buckets=_buckets(options), resolution=_resolution(options)
    )
    return _run(kind, values, options, aggregation)


def _return_of(kind: ProbeKind, text: str) -> str:
    # Without END, a function's return is the end. The predicates on its entry do not apply there.
    (request,) = parse_requests([text], kind)
    if not kind_of(request).has_return:
        raise click.UsageError(f"{text} has no return: latency takes START END")
    if any(item.implied for item in request.items):
        raise click.UsageError(f"{text} is a return: latency takes START END, or a function")
    return f"{text[: find_items(text)[0]]}(return)"


def run_heatmap(kind: ProbeKind, values: dict[str, Any]) -> int:
    """Show a value or a time as a histogram over time; return the exit code."""
    options = _aggregate_options(values)
    number = len(values["probes"])
    if number > 2:
        raise click.UsageError(f"heatmap takes START END or PROBE(EXPR), not {number} probes")
    path = str(values.get("output") or "")
    if path.lower().endswith(".svg") and values.get("as_json"):
        raise click.UsageError(f"-o {path} is a picture: leave out --json, or name another file")
    if number == 2:
        aggregation = _times(options, buckets=_buckets(options))
    else:
        if options.key is not None:
            raise click.UsageError("--key needs START END")
        aggregation = _aggregation(options, buckets=_buckets(options))
    return _run(kind, values, options, aggregation, job_type=HeatmapJob)


def _aggregate_options(values: dict[str, Any]) -> AggregateOptions:
    if values["align"] and values["interval"] is None:
        raise click.UsageError("--align is the beginning of intervals: add --interval")
    defaults = AggregateOptions()
    return AggregateOptions(
        _keys(values),
        values.get("max_keys", defaults.max_keys),
        values.get("top"),
        values["interval"],
        values.get("linear"),
        values.get("key"),
        values.get("end_key"),
        values.get("unit", defaults.unit),
        values.get("sort"),
        values.get("hist", False),
        values.get("resolution"),
        values.get("at_start", False),
        values["align"],
    )


def _keys(values: dict[str, Any]) -> str | None:
    # --by, with the keys that --ustack, --kstack, --folded and pictures add.
    by = values.get("by")
    items = parse_keys(by, "--by").items  # alone, so that error columns refer to the user's text
    keys = [by] if by is not None else []
    given = [item.text for item in items]
    stacks = tuple(kind.value for kind in stacks_of(values))
    if any(values.get(name) for name in ("folded", *PICTURES)):
        stacks = ("comm", *(() if any(map(is_stack, items)) else stacks))
    keys += [stack for stack in stacks if stack not in given]
    return ",".join(keys) or None


def _times(options: AggregateOptions, **more: Any) -> Aggregation:
    if options.at_start and options.by is None:
        raise click.UsageError("--at-start needs --by, which it evaluates at START")
    key = options.key if options.key is not None else "tid"
    return _aggregation(
        options,
        pair=parse_keys(key, "--key"),
        pair_end=parse_keys(options.end_key, "--end-key") or None,
        at_start=options.at_start,
        unit=_UNITS[options.unit],
        **more,
    )


def _aggregation(options: AggregateOptions, **more: Any) -> Aggregation:
    return Aggregation(
        keys=parse_keys(options.by, "--by"),
        max_keys=options.max_keys,
        intervals=options.interval is not None,
        **more,
    )


def _buckets(options: AggregateOptions) -> Log2 | Linear:
    if options.linear is None:
        return Log2()
    try:
        return parse_linear(options.linear)
    except TracingError as err:
        raise click.UsageError(str(err)) from err


def _resolution(options: AggregateOptions) -> int:
    return DEFAULT_RESOLUTION if options.resolution is None else options.resolution


def _run(
    kind: ProbeKind,
    values: dict[str, Any],
    aggregate: AggregateOptions,
    aggregation: Aggregation,
    job_type: type[AggregateJob] = AggregateJob,
) -> int:
    requests = parse_requests(values["probes"], kind)
    for request in requests:
        aggregation.check(request)
    order(aggregation, aggregate.sort)  # checked before anything is attached
    given = (values.get("by"), aggregate.key, aggregate.end_key)
    keys = tuple(item for text in given if text for item in parse_items(text))
    options = parse_options(requests, values, keys=keys, by=aggregation.keys.items)
    check_lines(options, user_symbols=aggregation.names)
    names = symbolizer(options) if aggregation.names else None
    with StackResolver(names, lines=options.output.lines) as resolver:
        job = job_type(options, aggregate, aggregation, resolver)
        resolver.begin(())
        # At one place the end runs first: a probe is measured to its own next hit.
        return run_command(options, job, requests[::-1] if aggregation.pair else requests)
