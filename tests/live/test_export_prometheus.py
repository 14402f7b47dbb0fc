"""``usdt export`` scraped by Prometheus itself, as Debian ships it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from typing import TYPE_CHECKING, Any

import debian
from exporting import exporting, metric
from fixtures import build, start
from patience import patient
from tracing_tools import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SCRAPES = """
global: {{scrape_interval: 200ms, scrape_timeout: 200ms}}
scrape_configs:
- job_name: usdt
  static_configs: [{{targets: ["{target}"]}}]
"""


class Prometheus:
    """A running server."""

    def __init__(self, address: str) -> None:
        self.address = address

    def ask(self, path: str, **query: str) -> Any:
        """The data of an answer of its API; None while it does not answer."""
        url = f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        try:
            with urllib.request.urlopen(url, timeout=100) as answer:
                return json.load(answer)["data"]
        except (urllib.error.URLError, ConnectionError):
            return None

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """Labels and value of each result of an expression."""
        data = self.ask("query", query=expression) or {"result": []}
        return [(one["metric"], float(one["value"][1])) for one in data["result"]]

    def answer(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """The same, once there is a result: on a busy machine one scrape fails, and all is gone."""
        return until(lambda: self.query(expression), f"{expression}", every=0.05)

    def wait(self, expression: str, expected: float) -> dict[str, str]:
        """Wait until an expression has one result of this value; its labels."""
        found = until(
            lambda: [one for one in self.query(expression) if one[1] == expected],
            f"{expression} to be {expected}",
            every=0.05,
        )
        assert len(found) == 1
        return found[0][0]


@contextlib.contextmanager
def prometheus(target: str, folder: Path, *features: str) -> Iterator[Prometheus]:
    """A server that scrapes ``target`` five times a second, on an address that is its alone."""
    program = debian.files("prometheus") / "usr" / "bin" / "prometheus"
    (folder / "prometheus.yml").write_text(SCRAPES.format(target=target))
    # Of 127.0.0.0/8, one for each process: nobody can take a port there meanwhile.
    number = os.getpid()
    address = f"127.{64 | number >> 16}.{number >> 8 & 255}.{number & 255}:9090"
    words = [
        *(f"--enable-feature={name}" for name in features),
        "--config.file",
        folder / "prometheus.yml",
        "--storage.tsdb.path",
        folder / "tsdb",
    ]
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(
            [program, *words, f"--web.listen-address={address}"], stdout=log, stderr=log
        )
    try:
        yield Prometheus(address)
    finally:
        server.terminate()
        server.wait(patient(100))


@contextlib.contextmanager
def scraped(folder: Path, config: str, *features: str) -> Iterator[Prometheus]:
    """A server that scrapes an exporter; ``THREADS`` in the configuration is the traced program.

    Its eight threads have hit 100 times each.
    """
    threads = shutil.copy(build("default", "threads"), folder / "threads")
    with (
        exporting(folder / "c.toml", config.replace("THREADS", str(threads))) as exporter,
        start(threads, "-w", "-t", 8, "-n", 100) as program,
        prometheus(exporter.url.split("/")[2], folder, *features) as server,
    ):
        program.fire()
        yield server
        until(lambda: _states(server) == [("up", "")], "a scrape without an error", every=0.05)


def _states(server: Prometheus) -> list[tuple[str, str]]:
    found = server.ask("targets")["activeTargets"]
    return [(target["health"], target["lastError"]) for target in found]


HIT = "THREADS:threads:hit"
PAUSES = metric("pause_seconds", "histogram", HIT, end=f'"{HIT}"')


def test_prometheus_reads_counters_and_histograms(tmp_path: Path) -> None:
    config = (
        metric("hits", "counter", HIT, help="'Hits \"\\\\ of a thread'", by='{ thread = "arg0" }')
        + metric("round_number", "histogram", f"{HIT}(arg1)")
        + PAUSES
    )
    with scraped(tmp_path, config) as server:
        server.wait("sum(hits_total)", 800)
        assert server.wait('hits_total{thread="3"}', 100)["job"] == "usdt"
        server.wait("round_number_sum", 8 * sum(range(100)))
        server.wait("round_number_count", 800)
        edges = {labels["le"]: value for labels, value in server.answer("round_number_bucket")}
        assert edges["16"] == 8 * 17
        assert edges["128"] == edges["+Inf"] == 800
        assert 32 < server.answer("histogram_quantile(0.5, round_number_bucket)")[0][1] <= 64
        server.wait("pause_seconds_count", 8 * 99)
        known = server.ask("metadata")
        assert known["round_number"][0]["type"] == "histogram"
        assert known["hits"][0]["type"] == "counter"


def test_prometheus_reads_native_histograms(tmp_path: Path) -> None:
    config = metric("round_number", "histogram", f"{HIT}(arg1)", buckets='"log2:8"') + PAUSES
    with scraped(tmp_path, config, "native-histograms") as server:
        server.wait("histogram_count(round_number)", 800)
        server.wait("histogram_sum(round_number)", 8 * sum(range(100)))
        # 2^5.625 is 49.35, the bound of a bucket: rounds 0 to 49 are below.
        server.wait("histogram_fraction(0, 2^5.625, round_number) * 800", 8 * 50)
        (median,) = server.answer("histogram_quantile(0.5, round_number)")
        assert 45 < median[1] <= 50
        (middle,) = server.answer("histogram_quantile(0.5, pause_seconds)")
        assert 2**-30 < middle[1] < 64
        server.wait("histogram_count(pause_seconds)", 8 * 99)
