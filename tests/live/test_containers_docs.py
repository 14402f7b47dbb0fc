"""The examples of docs/containers.md, on a container whose program fires all the time."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING

import pytest
from containers import container
from house import ROOT
from test_readme import consoles, run, shape

from usdt.bpf import features

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.usefixtures("ringbuf")

_EXAMPLES = consoles((ROOT / "docs/containers.md").read_text())


@pytest.fixture(scope="module", autouse=True)
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The container web of the pod test/shop."""
    if not features.have_ancestor_cgroups():
        pytest.skip("needs Linux 5.16: bpf_get_current_ancestor_cgroup_id() in tracing programs")
    ended = threading.Event()
    with container(tmp_path_factory.mktemp("web"), name="web", pod="shop") as running:

        def fire() -> None:
            while not ended.wait(0.1):
                running.fixture.fire()

        firing = threading.Thread(target=fire)
        firing.start()
        yield
        ended.set()
        firing.join()


def _told(lines: list[str]) -> set[str]:
    # Registers are the compiler's choice; a machine may have other processes with such probes.
    kept = [re.sub(r" +(-?\d+@\S+ ?)+$", "", line) for line in lines]
    return {re.sub(r"\b(sites?|events?)\b", "N", shape(line)) for line in kept}


@pytest.mark.parametrize(("command", "shown"), _EXAMPLES, ids=[c for c, _ in _EXAMPLES])
def test_examples_print_what_is_shown(command: str, shown: list[str]) -> None:
    lines, code = run(command)
    assert _told(shown) <= _told(lines), lines
    assert code == ("Error: " in shown[-1])
