"""The text formats of metrics, beside the parsers of prometheus_client."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import parser
from prometheus_client.openmetrics import parser as openmetrics

from usdt.export.formats.families import Family, HistogramPoint, Sample
from usdt.export.formats.text import render

labels = st.text(st.characters(blacklist_categories=("Cs",)))


@given(labels, labels, st.booleans())
def test_any_text_of_a_label_is_read_back(value: str, about: str, is_open: bool) -> None:
    family = Family("hits", about, "counter", "", (Sample((("by", value),), 3),))
    text = render([family], open_metrics=is_open)
    parse = openmetrics if is_open else parser
    (found,) = parse.text_string_to_metric_families(text)
    assert found.samples[0].labels == {"by": value}
    assert found.samples[0].value == 3


def test_a_histogram() -> None:
    point = HistogramPoint(((0, 1), (1, 2), (3, 2)), 5, 90)
    family = Family("size_bytes", "h", "histogram", "bytes", (Sample((), point),))
    assert render([family], open_metrics=True) == (
        "# HELP size_bytes h\n# TYPE size_bytes histogram\n# UNIT size_bytes bytes\n"
        'size_bytes_bucket{le="0"} 1\nsize_bytes_bucket{le="1"} 2\nsize_bytes_bucket{le="3"} 2\n'
        'size_bytes_bucket{le="+Inf"} 5\nsize_bytes_count 5\nsize_bytes_sum 90\n# EOF\n'
    )
