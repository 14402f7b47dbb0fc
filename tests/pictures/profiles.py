"""Profiles that tests show."""

from __future__ import annotations

from usdt.pictures.profile import HITS, Frame, Profile, Weight

__all__ = ("COMM", "DURATION", "shop")

COMM = (("comm", "shop"),)
DURATION = Weight("duration", "nanoseconds")

_MAIN = Frame("main", module="shop", build_id="ab12", address=0x1100)
_INLINED = Frame("total", "inlined", "shop", "ab12", 0x1200, "/src/shop.c", 9)
_SELL = Frame("sell", "native", "shop", "ab12", 0x1200, "/src/shop.c", 13)
_PYTHON = Frame("Worker.run", "python", file="/srv/app.py", line=8)
_JAVA = Frame("int Shop.go(int)", "jit", "perf-7.map")
_KERNEL = Frame("vfs_read", "kernel", "[kernel]", "cd34")


def shop(scale: int = 1) -> Profile:
    """A profile with frames of all kinds; the kernel's is ``scale`` times as slow."""
    profile = Profile(HITS, DURATION, title="shop:sold")
    profile.add(COMM, (_MAIN, _SELL, _INLINED), (3, 3000))
    profile.add(COMM, (_MAIN, _PYTHON, _KERNEL), (2, 5000 * scale))
    profile.add(COMM, (_MAIN, _JAVA), (1, 2000))
    return profile
