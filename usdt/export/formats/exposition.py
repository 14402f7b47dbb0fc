"""The format that a scraper prefers, by its header Accept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.export.formats.protobuf import PROTOBUF, render_protobuf
from usdt.export.formats.text import OPEN_METRICS, PLAIN, render

if TYPE_CHECKING:
    from collections.abc import Iterable

    from usdt.export.formats.families import Family

__all__ = ("exposition", "preferred_format")

# Content type → what a part of Accept must say; of equal weight, the first.
_FORMATS = {
    PROTOBUF: {
        "application/vnd.google.protobuf",
        "proto=io.prometheus.client.MetricFamily",
        "encoding=delimited",
    },
    OPEN_METRICS: {"application/openmetrics-text"},
    PLAIN: {"text/plain"},
}
_MOST_PARTS = 32


def preferred_format(accept: str) -> str:
    """Return the content type of the format that a scraper prefers."""
    weights = dict.fromkeys(_FORMATS, 0.0)
    for part in accept.split(",")[:_MOST_PARTS]:
        words = {word.strip() for word in part.split(";")}
        weight = next((one[2:] for one in words if one.startswith("q=")), "1")
        for kind, needed in _FORMATS.items():
            if needed <= words:
                try:
                    weights[kind] = max(weights[kind], float(weight))
                except ValueError:
                    continue
    found = max(weights, key=lambda kind: weights[kind])
    return found if weights[found] > 0.0 else PLAIN


def exposition(families: Iterable[Family], kind: str) -> bytes:
    """Return families in the format of a content type."""
    if kind == PROTOBUF:
        return render_protobuf(families)
    return render(families, open_metrics=kind == OPEN_METRICS).encode()
