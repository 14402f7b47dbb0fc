"""What wakes poll(), and when it no longer may."""

from __future__ import annotations

import contextlib
import os
import threading
from typing import TYPE_CHECKING, Any

from usdt.engine.runtime import poller

if TYPE_CHECKING:
    import pytest


class Source(poller.Pollable):
    """A source of no batches."""

    def __init__(self, resources: contextlib.ExitStack) -> None:
        self._open(resources)

    def _next_batch(self) -> list[Any]:
        return []


def test_what_another_thread_wakes_is_closed_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    resources = contextlib.ExitStack()
    source = Source(resources)
    closing = threading.Thread(target=resources.close)
    write = os.eventfd_write

    def write_late(number: int, value: int) -> None:
        closing.start()
        closing.join(0.1)
        write(number, value)  # fails if it was closed meanwhile

    monkeypatch.setattr(os, "eventfd_write", write_late)
    source.wake()
    closing.join()
    source.wake()
    assert not closing.is_alive()
