"""``usdt export`` run as a user runs it, and its answers read by prometheus_client."""

from __future__ import annotations

import contextlib
import urllib.request
from typing import TYPE_CHECKING

from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as plain
from tracing_tools import Tool, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ("Exporter", "Samples", "exporting", "metric")

OPEN = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"

#: (name, labels) → value.
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


class Exporter:
    """A running exporter."""

    def __init__(self, tool: Tool, url: str) -> None:
        self.tool = tool
        self.url = url

    def get(self, accept: str = OPEN, path: str = "/metrics") -> tuple[str, str]:
        """An answer: its type and its text."""
        url = self.url.removesuffix("/metrics") + path
        request = urllib.request.Request(url, headers={"Accept": accept})
        with urllib.request.urlopen(request, timeout=100) as answer:
            return answer.headers["Content-Type"], answer.read().decode()

    def samples(self, accept: str = OPEN) -> Samples:
        """All samples, as the parser of the answer's format reads them."""
        kind, text = self.get(accept)
        parse = open_metrics if kind.startswith("application/openmetrics") else plain
        return {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in parse(text)
            for sample in family.samples
        }

    def value(self, name: str, **labels: str) -> float | None:
        """One sample; None if there is none."""
        return self.samples().get((name, frozenset(labels.items())))

    def wait(self, expected: float, name: str, **labels: str) -> None:
        """Wait until a sample has a value."""
        until(lambda: self.value(name, **labels) == expected, f"{name} {labels} to be {expected}")


def metric(name: str, kind: str, probe: str, **more: str) -> str:
    """The table of a metric in a configuration; the values of other keys are TOML."""
    keys = {"name": f'"{name}"', "help": '"h"', "type": f'"{kind}"', "probe": f'"{probe}"'} | more
    return "\n".join(["", "[[metric]]", *(f"{key} = {value}" for key, value in keys.items()), ""])


@contextlib.contextmanager
def exporting(config: Path, text: str) -> Iterator[Exporter]:
    """Run an exporter with a configuration until the end of the block; it must end with 0."""
    config.write_text(text)
    with Tool("export", config, "--listen", "127.0.0.1:0") as tool:
        line = tool.wait_error("metrics at http")
        yield Exporter(tool, line.split()[2].removesuffix(";"))
        tool.process.terminate()
        tool.finish()
