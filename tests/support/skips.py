"""When a test may be skipped, and what a skip must say.

A skip names what is missing. One that contradicts the running kernel is a failure: the minimum
version is wrong, or the probe of the feature is broken. ``USDT_NO_SKIPS=1`` in the environment
turns every skip into a failure (tests/conftest.py does that).
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, NoReturn

import pytest

from usdt.base.machine import KERNEL_WORD_SIZE

if TYPE_CHECKING:
    from usdt.base.errors import NotSupported

__all__ = ("need_program", "requires_root", "running_kernel", "skip_or_fail")

#: Mark of a test, a class or (``pytestmark = requires_root``) a module.
requires_root = pytest.mark.root

#: Features that distributions leave out of kernels which are new enough for them.
_OPTIONAL: frozenset[str] = frozenset()
#: Features of 64-bit kernels alone: bpf_uprobe_multi_link_attach() and its like refuse elsewhere.
_WIDE = ("uprobe_multi", "kprobe_multi")


def running_kernel() -> tuple[int, int]:
    """Version of the running kernel, (6, 1)."""
    major, minor = os.uname().release.split(".")[:2]
    return int(major), int("".join(digit for digit in minor if digit.isdigit()))


def skip_or_fail(err: NotSupported) -> NoReturn:
    """Skip for a kernel that is too old or built without a feature; fail for one that is not."""
    narrow = KERNEL_WORD_SIZE == 4 and any(word in err.feature for word in _WIDE)
    expected = err.since and running_kernel() >= err.since and not narrow
    if expected and err.feature not in _OPTIONAL:
        pytest.fail(f"{err}, yet this is Linux {os.uname().release}: wrong minimum or broken probe")
    pytest.skip(str(err))


def need_program(name: str, package: str = "") -> str:
    """Path of a program, or a skip that names it and the Debian package it comes in."""
    path = shutil.which(name)
    if not path:
        pytest.skip(f"needs the program {name}: apt-get install {package or name}")
    return path
