"""Processes whose first thread has ended before others: /proc/PID shows no memory of them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from fixtures import TESTBINS, build, compiler, start
from tracing_tools import run_usdt, tracing, until

# Its second thread fires, once the first one has ended.
_LATER = """
#include <pthread.h>
#include <stdio.h>
#include <sys/sdt.h>

static void *work(void *first)
{
    char order[64];
    pthread_join(*(pthread_t *)first, 0);
    printf("ready\\n");
    fflush(stdout);
    for (int round = 0; fgets(order, sizeof order, stdin); round++) {
        DTRACE_PROBE1(later, hit, round);
        printf("done %d\\n", round + 1);
        fflush(stdout);
    }
    return 0;
}

int main(void)
{
    static pthread_t first, second;
    first = pthread_self();
    pthread_create(&second, 0, work, &first);
    pthread_exit(0);
}
"""


@pytest.mark.parametrize("deleted", [False, True], ids=["there", "deleted"])
def test_a_process_whose_first_thread_has_ended_is_traced(deleted: bool, tmp_path: Path) -> None:
    path = tmp_path / "later"
    build("default", "args")  # needs the header, too
    command = [
        *compiler(),
        "-O1",
        f"-I{TESTBINS}/out/include",
        "-x",
        "c",
        "-",
        "-o",
        path,
        "-pthread",
    ]
    subprocess.run(command, input=_LATER, text=True, check=True)
    with start(path) as process:
        process.wait_ready()
        until(lambda: not Path(f"/proc/{process.pid}/maps").read_bytes(), "the thread to end")
        if deleted:
            path.unlink()
        assert "later:hit" in run_usdt("list", "-p", process.pid).stdout
        for probe in ("later:hit", f"{path}:later:hit"):
            with tracing("-p", process.pid, probe) as tool:
                rounds = process.fire()
                assert [hit["args"] for hit in tool.wait_events(1)] == [{"arg0": rounds - 1}]
                tool.stop()
