"""tracefs where nobody has mounted it: no run leaves a mount behind, and none takes another's."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from fixtures import build
from skips import need_program
from tracing_tools import KPROBE, USDT, Tool

pytestmark = pytest.mark.usefixtures("ringbuf", "cookies")

# A mount namespace of its own, without any tracefs. debugfs would mount it at its first use.
_WITHOUT = "umount -al -t tracefs,debugfs; ! grep -E '(tracefs|debugfs)' /proc/mounts && "
_LEFT = "grep -E '(tracefs|debugfs)' /proc/mounts"


def _script(text: str) -> list[str]:
    need_program("unshare", "util-linux")
    return ["unshare", "--mount", "sh", "-c", f"{_WITHOUT}{text}"]


def _run(text: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(_script(text), capture_output=True, text=True, check=False, timeout=100)


@pytest.mark.parametrize(
    ("command", "shows"),
    [
        pytest.param(
            f"{KPROBE} trace -c true 'tracepoint:sched:sched_process_exit(prio)'",
            "prio=120",
            id="fields of a tracepoint",
        ),
        pytest.param(
            f"{USDT} trace --via tracefs -c '{{loop}} -q -n 3' '{{loop}}:loop:hit(arg0 == 2)'",
            "arg0=2",
            id="without BPF",
        ),
        pytest.param(f"{KPROBE} list 'tracepoint:sched:*exec'", "sched_process_exec", id="a list"),
    ],
)
def test_no_mount_is_left(command: str, shows: str) -> None:
    text = command.replace("{loop}", str(build("default", "loop")))
    done = _run(f"{text}; {_LEFT}")
    assert done.returncode == 1, (done.stdout, done.stderr)  # grep has found nothing
    assert shows in done.stdout
    assert "tracefs" not in done.stdout


def test_no_mount_is_seen_during_a_run() -> None:
    loop = build("default", "loop")
    words = ("trace", "--via", "tracefs", "-c", f"{loop} -w -q", f"{loop}:loop:hit")
    with Tool(*words, before=_script('exec "$0" "$@"')) as tool:
        tool.wait_tracing()
        mounts = Path(f"/proc/{tool.pid}/mounts").read_text()
    assert "tracefs" not in mounts


def test_several_runs_do_not_depend_on_one_another(tmp_path: Path) -> None:
    loop = build("default", "loop")
    one = f"{USDT} trace --via tracefs -c '{loop} -q -n 2' '{loop}:loop:hit(arg0)'"
    said = tmp_path / "said"
    other = f"{KPROBE} trace 'tracepoint:sched:sched_process_exec(filename)' 2> {said}"
    begun = f"until grep -q tracing {said}; do sleep 0.05; done"
    done = _run(f"{other} & {begun}; {one}; {one}; /bin/true; kill $!; wait; {_LEFT}")
    assert done.returncode == 1, (done.stdout, done.stderr)
    assert done.stdout.count("arg0=1") == 2
    assert 'filename="/bin/true"' in done.stdout


def test_who_may_not_mount_it_is_told() -> None:
    script = f"setpriv --bounding-set -sys_admin {KPROBE} list 'tracepoint:sched:*'"
    done = _run(script)
    assert done.returncode == 1
    assert "tracefs is not mounted" in done.stderr, done.stderr
    assert "mount -t tracefs" in done.stderr
    assert len(done.stderr.splitlines()) == 1
