"""Metrics about the exporter itself: what is attached, what was lost, what it costs."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from usdt.base.version import VERSION
from usdt.export.formats.families import Family, Sample
from usdt.procfs.access import read_bytes
from usdt.procfs.process import start_time

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Literal

    from usdt.export.group import Group
    from usdt.export.values import MetricValues

__all__ = ("health",)


def health(
    values: Iterable[MetricValues], groups: Sequence[Group], lost: Counter[tuple[str, str]]
) -> Iterator[Family]:
    """Yield the families.

    Args:
        values: the values of all metrics.
        groups: where they are attached.
        lost: hits that were not counted, by probe and reason.
    """
    every = list(values)
    attached = {metric for group in groups for metric in group.attached()}
    ups = [
        Sample((("metric", one.metric.name), ("probe", probe.text)), int(one.metric in attached))
        for one in every
        for probe in one.metric.probes
    ]
    yield _gauge("usdt_up", "Whether the probe is attached.", dict.fromkeys(ups))
    sites = [
        Sample((("metric", metric.name), ("probe", probe)), number)
        for group in groups
        for (metric, probe), number in group.sites().items()
    ]
    yield _gauge("usdt_sites", "Attached call sites of a probe of files.", sites)
    processes = [
        Sample((("metric", metric.name),), number)
        for group in groups
        if (number := group.standing.processes) is not None
        for metric in group.metrics
    ]
    yield _gauge("usdt_processes", "Traced processes of a program, or of given ones.", processes)
    losses = [
        Sample((("probe", probe), ("reason", reason)), number)
        for (probe, reason), number in sorted(lost.items())
    ]
    yield _family("usdt_lost", "Hits that were not counted.", "counter", losses)
    overflows = [Sample((("metric", one.metric.name),), one.overflow) for one in every]
    about = "Hits counted under the label other."
    yield _family("usdt_label_overflow", about, "counter", overflows)
    yield from _itself()


def _itself() -> Iterator[Family]:
    # As exporters of Prometheus name these.
    build = Sample((("version", VERSION),), 1)
    yield _gauge("usdt_build_info", "The version of the exporter.", [build])
    used = sum(os.times()[:2])
    about = "CPU time of the exporter."
    yield _family("process_cpu_seconds", about, "counter", [Sample((), used)], unit="seconds")
    with contextlib.suppress(OSError, IndexError):
        pages = int(read_bytes("/proc/self/statm").split()[1])
        memory = Sample((), pages * os.sysconf("SC_PAGE_SIZE"))
        about = "Resident memory of the exporter."
        yield _gauge("process_resident_memory_bytes", about, [memory], unit="bytes")
    with contextlib.suppress(OSError):
        files = Sample((), len(os.listdir("/proc/self/fd")) - 1)  # noqa: PTH208 - numbers alone
        yield _gauge("process_open_fds", "Open files of the exporter.", [files])
    started = Sample((), _boot_time() + start_time(os.getpid()) / os.sysconf("SC_CLK_TCK"))
    about = "When the exporter was started, since the epoch."
    yield _gauge("process_start_time_seconds", about, [started], unit="seconds")


def _boot_time() -> int:
    # Seconds since the epoch; 0 if the kernel does not say.
    with contextlib.suppress(OSError, ValueError):
        for line in read_bytes("/proc/stat").splitlines():
            if line.startswith(b"btime "):
                return int(line.split()[1])
    return 0


def _gauge(name: str, about: str, samples: Iterable[Sample], unit: str = "") -> Family:
    return _family(name, about, "gauge", samples, unit)


def _family(
    name: str,
    about: str,
    kind: Literal["counter", "gauge"],
    samples: Iterable[Sample],
    unit: str = "",
) -> Family:
    return Family(name, about, kind, unit, tuple(samples))
