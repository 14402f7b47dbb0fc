"""The archive that machines get, kept between runs: packing it takes a quarter of a second."""

from __future__ import annotations

from usdt.dwarf.units import cache
from usdt.fleet.zipapp import App, AppSources

__all__ = ("kept_app",)

_KIND = "archive"  # of files of the cache


def kept_app() -> App:
    """Return the archive of the installed packages, packed anew if any of their files has changed.

    Raises:
        TargetError: a package is not installed as files.
    """
    sources = AppSources.find()
    state = sources.state()  # before they are read: what changes meanwhile is packed again
    kept = cache.load(sources.places, _KIND)
    if kept is not None and kept[: len(state)] == state:
        return App.of(bytes(kept[len(state) :]))
    app = sources.pack()
    cache.store(sources.places, _KIND, lambda: iter((state, app.content)))
    return app
