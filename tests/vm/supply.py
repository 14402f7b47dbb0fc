"""What a cell is started with: the first of its kernels and userlands that can be had."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

from vm.apt import Apt, Mirrors, Unreachable
from vm.image import (
    MODULES,
    USERLAND,
    Made,
    cache,
    kernel_files,
    locked,
    make_kernel,
    make_userland,
    python_of,
)
from vm.matrix import USERLANDS, Kernel, Userland

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from vm.matrix import Cell

__all__ = ("SUPPLY", "Image", "Supply")


@dataclass(frozen=True, slots=True)
class Image:
    """What a cell starts: a kernel, with the version Debian gives it, and a userland."""

    cell: Cell  # with the kernel that was had
    kernel: Path
    version: str
    archives: tuple[Path, ...]  # of the userland, and of the kernel's modules
    python: str  # of the userland, "3.11"
    notes: tuple[str, ...] = ()  # what stands in for what, and why


@dataclass(frozen=True, slots=True)
class Supply:
    """Where the images of a run come from; what could not be had is not asked for again."""

    mirrors: Mirrors = field(default_factory=Mirrors)
    userlands: Mapping[str, tuple[Userland, ...]] = field(default_factory=lambda: USERLANDS)
    tried: dict[str, Path | Unreachable] = field(default_factory=dict)

    def image(self, cell: Cell) -> Image:
        """Kernel and userland of a cell, fetched and made if need be.

        Unreachable if a mirror does not give them, Unavailable if something is missing here.
        """
        # What a cell has beside is for the first userland alone.
        choices = self.userlands[cell.cpu][: 1 if cell.more else None]
        with locked():
            kernel = _first("kernel", cell.kernels, lambda one: self._kernel(one, cell.cpu))
            userland = _first("userland", choices, lambda one: self._userland(one, cell.cpu))
            archives = [userland.folder / USERLAND, kernel.folder / MODULES]
            if cell.more:
                archives.append(self._more(cell, python_of(userland.folder.name)) / USERLAND)
        version, python = _version(kernel.folder), python_of(userland.folder.name)
        notes = (
            kernel.note(version.partition("-")[0]),
            userland.note(f"Python {python}"),
        )
        return Image(
            *(cell.with_kernel(kernel.choice), kernel.folder / "vmlinuz", version),
            *(tuple(archives), python, tuple(filter(None, notes))),
        )

    def _kernel(self, wanted: Kernel, cpu: str) -> Path:
        apt = self._apt(wanted.suite, cpu)
        shelf = cache() / "kernel" / f"{wanted.suite}-{cpu}-{wanted.package}"

        def files() -> tuple[str, ...]:
            return kernel_files(apt, wanted.package)

        return self._made(Made(apt, shelf, "linux-", files, make_kernel))

    def _userland(self, wanted: Userland, cpu: str) -> Path:
        apt = self._apt(wanted.suite, cpu)
        # Its name on the shelf is that of its Python.
        shelf = cache() / "userland" / f"{wanted.suite}-{cpu}"

        def files() -> tuple[str, ...]:
            return apt.closure(*wanted.packages)

        return self._made(Made(apt, shelf, "python3.", files, make_userland))

    def _more(self, cell: Cell, python: str) -> Path:
        userland = self.userlands[cell.cpu][0]
        apt = self._apt(userland.suite, cell.cpu)
        shelf = cache() / "more" / cell.name

        def files() -> tuple[str, ...]:
            known = apt.closure(*userland.packages)
            return tuple(name for name in apt.closure(*cell.more) if name not in known)

        make = functools.partial(make_userland, python=python)
        return self._made(Made(apt, shelf, f"{cell.more[0]}_", files, make))

    def _apt(self, suite: str, architecture: str) -> Apt:
        return Apt(cache() / "lists" / f"{suite}-{architecture}", suite, architecture, self.mirrors)

    def _made(self, made: Made) -> Path:
        return self._once(f"{made.shelf}", lambda: made.folder(lambda: self._updated(made.apt)))

    def _updated(self, apt: Apt) -> None:
        def update() -> Path:
            apt.update()
            return apt.folder

        self._once(f"{apt.folder}", update)

    def _once(self, name: str, make: Callable[[], Path]) -> Path:
        if name not in self.tried:
            try:
                self.tried[name] = make()
            except Unreachable as err:
                self.tried[name] = err
        found = self.tried[name]
        if isinstance(found, Unreachable):
            raise Unreachable(str(found)) from found
        return found


#: That of this run.
SUPPLY = Supply()

_Choice = TypeVar("_Choice", Kernel, Userland)


@dataclass(frozen=True, slots=True)
class _Found(Generic[_Choice]):
    """The first of some choices that could be had."""

    what: str
    choice: _Choice
    folder: Path
    refused: dict[str, str]  # suite that was tried before → why it was not taken

    def note(self, name: str) -> str:
        """What stands in for what, and why; "" if nothing does."""
        if not self.refused:
            return ""
        (suite, why), *more = self.refused.items()
        others = "".join(f", nor of {suite} ({why})" for suite, why in more)
        had = f"{self.choice.suite}'s {name} instead"
        return f"{self.what} of {suite} cannot be had ({why}){others}; {had}"


def _first(
    what: str, choices: Sequence[_Choice], make: Callable[[_Choice], Path]
) -> _Found[_Choice]:
    refused: dict[str, str] = {}
    for choice in choices:
        try:
            return _Found(what, choice, make(choice), refused)
        except Unreachable as err:
            refused[choice.suite] = str(err)
    raise Unreachable(f"{what} {'; '.join(_grouped(refused))}")


def _grouped(refused: dict[str, str]) -> Iterator[str]:
    reasons = dict.fromkeys(refused.values())
    for reason in reasons:
        suites = ", ".join(suite for suite, why in refused.items() if why == reason)
        yield f"of {suites}: {reason}"


def _version(kernel: Path) -> str:
    return kernel.name.split("_")[1]
