"""Mistakes on the command line of ``usdt fleet``: one line each, before any machine is asked."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tracing_tools import one_error, run_usdt

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--nodes", "n1"], "no command; give one of trace, spans, report, count"),
        (["--nodes", "n1", "--", "record", "x:y"], "cannot run record on a fleet: it would leave"),
        (["--nodes", "n1", "--", "count", "x:y", "-o", "F"], "--output would write on each"),
        (["--nodes", "n1", "--by", "host", "--", "list", "F"], "--by host is for results"),
        (["--nodes", "n1", "-o", "a.svg", "--", "heatmap", "x:y"], "-o a.svg: a fleet draws no"),
        (["--nodes", "n1", "-o", "a.parquet", "--", "list", "F"], "Parquet is for events"),
        (["--nodes", "n1", "--clean", "--", "count", "x:y"], "--clean takes no command"),
        (["--", "count", "x:y"], "Missing option '--nodes'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_usage_errors(words: list[str], said: str) -> None:
    done = run_usdt("fleet", *words)
    assert done.returncode == 2
    assert said in done.stderr


@pytest.mark.parametrize(
    ("via", "said"),
    [
        ("sh 'x", "--via sh 'x: No closing quotation"),
        ("", "--via: empty"),
        ("sh", "--via sh: has no"),
    ],
)
def test_templates_that_cannot_be_split(via: str, said: str) -> None:
    done = run_usdt("fleet", "--nodes", "n1", "--via", via, "--", "count", "x:y")
    assert one_error(done).startswith(said)


@pytest.mark.parametrize(
    ("nodes", "those"),
    [
        ("@db", "n[1-3] (3)"),
        ("@db!n2", "n[1,3] (2)"),
        ("@db&n[2-9]", "n[2-3] (2)"),
        ("web[01-03],db1", "db1,web[01-03] (4)"),
    ],
)
def test_groups_and_ranges_name_machines(tmp_path: Path, nodes: str, those: str) -> None:
    pytest.importorskip("ClusterShell", reason="needs ClusterShell: pip install ClusterShell")
    (tmp_path / "groups.conf").write_text("[Main]\ndefault: own\n[own]\nmap: echo 'n[1-3]'\n")
    via = "sh -c 'exit 3' {node}"
    words = ("--nodes", nodes, "--via", via, "--", "count", "x:y")
    done = run_usdt("fleet", *words, before=("env", f"CLUSTERSHELL_CFGDIR={tmp_path}"))
    assert f"failed: {those}: no answer; the transport exited with status 3" in done.stderr


@pytest.mark.parametrize(
    "form", ["-oProxyCommand=touch {}", "$(touch {})", "a;touch {}", "@`touch {}`"]
)
@pytest.mark.parametrize("via", ["ssh", "sh -c 'echo {node}' {command}"])
def test_a_name_runs_nothing(tmp_path: Path, form: str, via: str) -> None:
    trap = tmp_path / "trap"
    name = form.format(trap)
    done = run_usdt("fleet", f"--nodes={name}", "--via", via, "--", "count", "x:y")
    assert one_error(done).startswith("--nodes ")
    assert not trap.exists()


def test_without_clustershell_it_says_how_to_get_it() -> None:
    code = (
        "import sys; sys.modules['ClusterShell'] = None; from usdt.cli import main; "
        "sys.argv = ['usdt', 'fleet', '--nodes', 'n1', '--', 'count', 'x:y']; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "Error: usdt fleet needs ClusterShell: pip install 'usdt-toolkit[fleet]'\n"
    )


def test_help_does_not_load_clustershell() -> None:
    code = "import sys; sys.modules['ClusterShell'] = None; import usdt.cli.fleet.command"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
