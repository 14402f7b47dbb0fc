"""JavaScript libraries of other projects: files of ``vendor/``, which ``manifest.json`` lists."""

from __future__ import annotations

import functools
import json
from importlib import resources
from typing import TYPE_CHECKING

from usdt.base.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ("Library", "asset", "libraries", "library")


@frozen
class Library:
    """A file of an npm package, as its authors have published it.

    Attributes:
        package: the name of the package.
        version: its version.
        license: the name of its licence.
        source: the file in the package.
        file: the file in ``vendor/``.
        sha256: the hash of the file.
        license_file: the text of the licence, in ``vendor/``.
        license_sha256: the hash of that text.
        style_file: its style sheet, in ``vendor/``; "" if it has none.
        style_sha256: the hash of the style sheet.
    """

    package: str
    version: str
    license: str
    source: str
    file: str
    sha256: str
    license_file: str
    license_sha256: str
    style_file: str = ""
    style_sha256: str = ""

    @property
    def text(self) -> str:
        """The library."""
        return _read(f"vendor/{self.file}")

    @property
    def style_text(self) -> str:
        """The style sheet."""
        return _read(f"vendor/{self.style_file}") if self.style_file else ""

    @property
    def license_text(self) -> str:
        """The licence."""
        return _read(f"vendor/{self.license_file}")


@functools.cache
def libraries() -> Mapping[str, Library]:
    """Return the libraries by the names of their packages."""
    found = (Library(**one) for one in json.loads(_read("vendor/manifest.json")))
    return {one.package: one for one in found}


def library(package: str) -> Library:
    """Return a library.

    Raises:
        KeyError: the package is not vendored.
    """
    return libraries()[package]


def asset(name: str) -> str:
    """Return a file of ``assets/``, which are this project's own scripts and styles."""
    return _read(f"assets/{name}")


def _read(path: str) -> str:
    # The package may be in a zip file.
    return resources.files("usdt.pictures").joinpath(path).read_text("utf-8")
