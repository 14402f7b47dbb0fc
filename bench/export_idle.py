"""What an exporter with a hundred probes costs while nothing happens: CPU time and memory.

    sudo python3 bench/export_idle.py [SECONDS] [TARGET…]

Needs testbins/out/default/many10k (make testbins). For each target (file, all, program, missing) it
prints the CPU time in percent of one core and the memory: of the start, without scrapes, and with
one every 15 s. ``missing`` is a program that does not run.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = ROOT / "testbins" / "out" / "default" / "many10k"
TARGETS = ["file", "all", "program", "missing"]
PROBES = 100
SETTLE_SECONDS = 6.0
SCRAPE_SECONDS = 15.0


def main(seconds: float, targets: list[str]) -> None:
    """Measure each target, without scrapes and with them."""
    with tempfile.TemporaryDirectory() as folder, running():
        config = Path(folder) / "idle.toml"
        for target in targets:
            config.write_text("".join(metric(number, target) for number in range(PROBES)))
            for scrapes in (False, True):
                measure(config, seconds, target, scrapes=scrapes)


@contextlib.contextmanager
def running() -> Iterator[None]:
    """Run the program that has the probes."""
    with subprocess.Popen(
        [PROGRAM, "-w"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    ) as program:
        yield
        program.kill()


def metric(number: int, target: str) -> str:
    """Return the table of one counter."""
    probe = f"many10k:p{number}"
    keys: dict[str, str | bool] = {"name": f"n{number}", "help": "h", "type": "counter"}
    keys["probe"] = f"{PROGRAM}:{probe}" if target == "file" else probe
    if target == "all":
        keys["all"] = True
    elif target != "file":
        keys["program"] = "many10k" if target == "program" else "many10k-missing"
    return "\n".join(["[[metric]]", *(f"{key} = {json.dumps(keys[key])}" for key in keys), ""])


def measure(config: Path, seconds: float, target: str, *, scrapes: bool) -> None:
    """Run an exporter, wait, and print what it used."""
    tool = str(Path(sys.executable).parent / "usdt")
    command = [tool, "export", str(config), "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        lines = process.stderr or ()
        line = next((line for line in lines if line.startswith("metrics at")), "")
        url = line.split()[2].removesuffix(";")
        text = scrape(url)
        attached = len(re.findall(r"^usdt_up{.*} 1$", text, re.MULTILINE))
        ended = threading.Event()
        if scrapes:
            threading.Thread(target=scrape_often, args=(url, ended), daemon=True).start()
        start = cpu_seconds(process.pid)
        time.sleep(SETTLE_SECONDS)
        before = cpu_seconds(process.pid)
        time.sleep(seconds)
        used = cpu_seconds(process.pid) - before
        ended.set()
        kib = memory(process.pid)
        process.terminate()
    what = f"scraped every {SCRAPE_SECONDS:.0f} s" if scrapes else "not scraped"
    print(
        f"{target}: {PROBES} probes ({attached} attached), {what}: start {start:.2f} s, "
        f"the next {SETTLE_SECONDS:.0f} s {before - start:.2f} s, then in {seconds:.0f} s "
        f"{100 * used / seconds:.3f} % of a core, {kib / 1024:.1f} MiB",
        flush=True,
    )


def scrape(url: str) -> str:
    """Return the metrics."""
    with urllib.request.urlopen(url, timeout=20) as answer:  # noqa: S310 - loopback
        return str(answer.read().decode())


def scrape_often(url: str, ended: threading.Event) -> None:
    """Scrape until the end."""
    while not ended.wait(SCRAPE_SECONDS):
        scrape(url)


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of all threads, also those that have ended, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory(pid: int) -> int:
    """Return the resident memory in KiB."""
    text = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("VmRSS"))


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 60.0, sys.argv[2:] or TARGETS)
