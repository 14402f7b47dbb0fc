"""What every test has: no descriptor is left open, and skips that are worth their name.

``pyproject.toml`` puts the checkout and ``tests/`` on ``sys.path``, so that any test module says
``import fixtures`` or ``from skips import need_program``.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import skips
from fork_server import server_processes
from hang_watch import HangWatch
from processes import descendants

from usdt.base.errors import NotSupported

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

pytest_plugins = ["browser"]  # its fixture

_WATCH = pytest.StashKey[HangWatch]()
_NO_SKIPS = os.environ.get("USDT_NO_SKIPS", "") not in ("", "0")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare what pyproject.toml sets for these tests."""
    parser.addini("hang_timeout", "seconds after which a test's stacks are shown", default="0")


def pytest_configure(config: pytest.Config) -> None:
    """Declare the markers, and ask properties for no speed: machines that run tests are busy."""
    # What a shell starts in the background ignores ^C, and so would all that is started here.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # And nohup(1) lets it ignore this one: we do still, what we start does not.
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda *_: None)
    config.stash[_WATCH] = HangWatch(float(config.getini("hang_timeout")))
    config.addinivalue_line("markers", "root: needs root (or the same capabilities) and its kernel")
    # Virtual machines have no hypothesis, and runs without its plugin no use for it.
    if config.pluginmanager.hasplugin("hypothesispytest"):
        from hypothesis import settings

        settings.register_profile("usdt", deadline=None)
        settings.load_profile("usdt")


_BPFFS = Path("/sys/fs/bpf")
_MOUNTED = pytest.StashKey[bool]()
_FAILED = pytest.StashKey[bool]()
# Folders; all others are "unit". The longest tests come first, so that no worker is left with one.
_GROUPS = ("torture", "fuzz", "release", "peers", "live", "vm")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Mount the file system of BPF pins for the run, where root finds that it is not."""
    # Not in each worker of pytest-xdist: the first to end would take it from the others.
    if hasattr(session.config, "workerinput") or os.geteuid() != 0:
        return
    if _BPFFS.is_dir() and not _BPFFS.is_mount():
        words = ("mount", "-t", "bpf", "bpf", _BPFFS)
        mounted = subprocess.run(words, check=False, capture_output=True)
        session.config.stash[_MOUNTED] = mounted.returncode == 0


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect tests without garbage collections: nearly all that is made stays until the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run groups in the order of _GROUPS, "unit" last; within one, tests keep theirs."""
    order = {group: number for number, group in enumerate(_GROUPS)}
    items.sort(key=lambda item: order.get(_group(item.nodeid), len(order)))


def pytest_collection_finish() -> None:
    """Keep all that collection has made out of garbage collections: it stays until the end."""
    gc.freeze()
    # Tests make few cycles: looking for them after every 700 objects is 5 % of what they take.
    gc.set_threshold(20_000, 20, 20)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Unmount it again."""
    if session.config.stash.get(_MOUNTED, False):
        subprocess.run(["umount", _BPFFS], check=False, capture_output=True)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Close what :func:`pytest_configure` has opened."""
    if watch := config.stash.get(_WATCH, None):
        watch.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, object, object]:
    """Watch for tests that hang."""
    watch = item.config.stash[_WATCH]
    watch.begin()
    try:
        return (yield)
    finally:
        if nextitem is None:
            watch.pause()


def _group(nodeid: str) -> str:
    # The folder of a test, if it is one of the groups.
    folder = nodeid.removeprefix("tests/").partition("/")[0]
    return folder if folder in _GROUPS else "unit"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what each group of tests took, where there is more than one, or virtual machines."""
    seconds: dict[str, float] = {}
    tests: dict[str, int] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                group = _group(report.nodeid)
                seconds[group] = seconds.get(group, 0.0) + report.duration
                tests[group] = tests.get(group, 0) + (report.when == "call")
    if len(seconds) < 2 and "vm" not in seconds:
        return
    terminalreporter.section("time by group, all workers together")
    for group, took in sorted(seconds.items(), key=lambda item: -item[1]):
        terminalreporter.line(f"{took:7.1f} s  {tests[group]:6} tests  {group}")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip tests that need root where it is not."""
    if item.get_closest_marker("root") and os.geteuid() != 0:
        pytest.skip("needs root")


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call() -> Generator[None, object, object]:
    """A feature this kernel lacks is a skip; one it should have is a failure."""
    try:
        return (yield)
    except NotSupported as err:
        skips.skip_or_fail(err)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup() -> Generator[None, object, object]:
    """The same for what a fixture needs."""
    try:
        return (yield)
    except NotSupported as err:
        skips.skip_or_fail(err)


def _refuse_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    if _NO_SKIPS and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"USDT_NO_SKIPS is set, and this was skipped: {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """With USDT_NO_SKIPS, a skipped test has failed."""
    report = yield
    _refuse_skip(report)
    item.stash[_FAILED] = item.stash.get(_FAILED, False) or report.failed
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """With USDT_NO_SKIPS, so has a module that skips itself."""
    report = yield
    _refuse_skip(report)
    return report


@pytest.fixture
def root() -> None:
    """Root, or a skip; for a fixture or a test that finds out late."""
    if os.geteuid() != 0:
        pytest.skip("needs root")


# The root of tracefs, where it is not mounted: this process mounts it once and for all.
_OWN_TRACEFS = "/"


def _descriptors() -> set[int]:
    # Twice for each of thousands of tests: pathlib takes three times as long.
    found = {*map(int, os.listdir("/proc/self/fd"))}  # noqa: PTH208
    return {number for number in found if _is_open(number)}


def _is_open(number: int) -> bool:
    # The one that listing them opens is not, afterwards.
    try:
        os.get_inheritable(number)
    except OSError:
        return False
    return True


@pytest.fixture(autouse=True)
def no_leaked_fds() -> Iterator[None]:
    """Every descriptor a test opened is closed when it ends."""
    before = _descriptors()
    yield
    if more := _descriptors() - before:
        names = {number: os.readlink(f"/proc/self/fd/{number}") for number in more}  # noqa: PTH115
        leaked = {number: name for number, name in names.items() if name != _OWN_TRACEFS}
        assert not leaked, f"leaked descriptors: {leaked}"


@pytest.fixture(autouse=True)
def no_processes_of_failed_tests(request: pytest.FixtureRequest) -> Iterator[None]:
    """What a test that failed has started does not disturb those after it."""
    before = descendants(os.getpid())
    yield
    if request.node.stash.get(_FAILED, False):
        for pid in descendants(os.getpid()) - before - server_processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
