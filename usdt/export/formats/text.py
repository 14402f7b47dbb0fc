"""The text formats: OpenMetrics 1.0, and that of Prometheus, 0.0.4."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.export.formats.families import HistogramPoint

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from usdt.export.buckets import Number
    from usdt.export.formats.families import Family, Sample

__all__ = ("OPEN_METRICS", "PLAIN", "render")

OPEN_METRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
PLAIN = "text/plain; version=0.0.4; charset=utf-8"
_HELP = str.maketrans({"\\": r"\\", "\n": r"\n"})
_LABEL = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


def render(families: Iterable[Family], *, open_metrics: bool) -> str:
    """Return families in a text format."""
    lines = [line for family in families for line in _family(family, open_metrics=open_metrics)]
    return "\n".join([*lines, *(["# EOF"] if open_metrics else []), ""])


def _family(family: Family, *, open_metrics: bool) -> Iterator[str]:
    counter = family.sample_name
    name = family.name if open_metrics else counter
    yield f"# HELP {name} {family.help.translate(_LABEL if open_metrics else _HELP)}"
    yield f"# TYPE {name} {family.type}"
    if family.unit and open_metrics:
        yield f"# UNIT {name} {family.unit}"
    for sample in family.samples:
        yield from _sample(counter, sample, open_metrics=open_metrics)


def _sample(name: str, sample: Sample, *, open_metrics: bool) -> Iterator[str]:
    point = sample.value
    if not isinstance(point, HistogramPoint):
        yield f"{name}{_labels(sample.labels)} {_number(point)}"
        return
    for bound, count in point.buckets:
        yield f"{name}_bucket{_labels((*sample.labels, ('le', _number(bound))))} {count}"
    yield f"{name}_bucket{_labels((*sample.labels, ('le', '+Inf')))} {point.count}"
    if point.sum is not None or not open_metrics:  # OpenMetrics wants both or neither
        yield f"{name}_count{_labels(sample.labels)} {point.count}"
    if point.sum is not None:
        yield f"{name}_sum{_labels(sample.labels)} {_number(point.sum)}"


def _labels(labels: Iterable[tuple[str, str]]) -> str:
    text = ",".join(f'{name}="{value.translate(_LABEL)}"' for name, value in labels)
    return f"{{{text}}}" if text else ""


def _number(number: Number) -> str:
    return repr(number)
