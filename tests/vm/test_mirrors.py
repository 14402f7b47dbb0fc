"""Mirrors with faults: another suite stands in, within a limit, and nothing unverified is taken.

It is the real apt, with signatures and hashes, and a mirror on loopback (mirror.py).
"""

from __future__ import annotations

import os
import re
import shutil
import time
from typing import TYPE_CHECKING

import pytest
from skips import need_program
from tracing_tools import until
from vm.apt import Apt, Mirrors, Unreachable
from vm.matrix import Cell, Kernel, Userland
from vm.mirror import KERNEL, META, PYTHON, Archive, Keys, Server, make_keys, serving
from vm.supply import Supply
from vm.watch import Stuck, watched

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_LIMIT = 60.0  # seconds that a silent mirror may take
_SILENCE = 5.0  # seconds: a shorter limit, for the test
_OLD = 8 * 24 * 3600  # seconds after which lists are fetched again


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keys]:
    for program, package in (
        *(("apt-get", "apt"), ("dpkg-deb", "dpkg"), ("gpg", "gnupg"), ("gpgconf", "gnupg")),
        ("setpriv", "util-linux"),
    ):
        need_program(program, package)
    with make_keys(tmp_path_factory.mktemp("mirror") / "gnupg") as made:
        yield made


@pytest.fixture(scope="module")
def original(keys: Keys, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("archive")
    Archive(root, keys).make()
    return root


@pytest.fixture
def archive(original: Path, keys: Keys, tmp_path: Path) -> Archive:
    """One of its own for each test, which may change it."""
    return Archive(shutil.copytree(original, tmp_path / "archive"), keys)


@pytest.fixture
def server(archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with serving(archive.root) as made:
        yield made


def mirrors(server: Server, keys: Keys, *names: str, silence: float = _LIMIT) -> Mirrors:
    addresses = tuple(map(server.address, names or ("debian",)))
    return Mirrors(addresses, keys.trusted, silence)


def supply(found: Mirrors, *suites: str) -> Supply:
    userlands = tuple(Userland(suite, (PYTHON,)) for suite in suites)
    return Supply(found, {"amd64": userlands})


def cell(*suites: str, name: str = "1") -> Cell:
    kernels = (Kernel(suite, META, frozenset({f"of {suite}"})) for suite in suites)
    return Cell(name, "amd64", tuple(kernels))


@pytest.mark.parametrize(
    ("suite", "reason"),
    [
        pytest.param("older", "File has unexpected size .* Mirror sync in progress", id="older"),
        pytest.param("missing", "does not have a Release file", id="404"),
        pytest.param("hang", r"nothing came for 5 s", id="silent"),
        pytest.param("forged", "public key is not available: NO_PUBKEY", id="wrongly signed"),
        pytest.param("unsigned", "is not signed", id="unsigned"),
        pytest.param("damaged", "unexpected size|Hash Sum mismatch", id="damaged packages"),
        pytest.param("stuck", r"nothing came for 5 s", id="silent about packages"),
    ],
)
def test_another_suite_stands_in(suite: str, reason: str, server: Server, keys: Keys) -> None:
    began = time.monotonic()
    found = supply(mirrors(server, keys, silence=_SILENCE), suite, "good")
    image = found.image(cell(suite, "good"))
    assert time.monotonic() - began < _LIMIT
    assert image.kernel.read_bytes() == KERNEL
    assert image.cell.offers == {"of good"}
    assert (image.version, image.python) == ("1", "3.11")
    kernel, *userland = image.notes
    assert re.fullmatch(
        rf"kernel of {suite} cannot be had \(.*({reason}).*\); good's 1 instead", kernel
    )
    # The Python of "damaged" is as it should be.
    assert len(userland) == (suite != "damaged")
    assert all(note.startswith(f"userland of {suite} cannot be had (") for note in userland)
    assert all(note.endswith("); good's Python 3.11 instead") for note in userland)


def test_where_nothing_stands_in_every_reason_is_told(server: Server, keys: Keys) -> None:
    found = supply(mirrors(server, keys), "good")
    with pytest.raises(Unreachable) as caught:
        found.image(cell("older", "missing", "forged"))
    missing, forged = "does not have a Release file", "NO_PUBKEY"
    expected = f"kernel of older: .*size.*; of missing: .*{missing}.*; of forged: .*{forged}"
    assert re.match(expected, str(caught.value))
    assert "\n" not in str(caught.value)


def test_a_silent_mirror_leaves_its_suite_to_the_next(server: Server, keys: Keys) -> None:
    # The second address leads to the same archive, by a name under which "hang" is nothing special.
    (server.root / "other/debian").parent.mkdir()
    (server.root / "other/debian").symlink_to(server.root / "debian")
    found = mirrors(server, keys, "debian", "other/debian", silence=_SILENCE)
    image = supply(found, "hang").image(cell("hang"))
    assert image.kernel.read_bytes() == KERNEL
    assert not image.notes
    assert found.silent == {f"127.0.0.1:{server.server_port}": 0}


def test_what_failed_is_not_asked_for_again_in_this_run(server: Server, keys: Keys) -> None:
    found = supply(mirrors(server, keys), "older", "good")
    for number in range(3):
        image = found.image(cell("older", "missing", "good", name=str(number)))
        assert len(image.notes) == 2
    asked = [path for path in server.asked if path.endswith("/InRelease")]
    assert {path: asked.count(path) for path in asked} == {
        f"/debian/dists/{suite}/InRelease": 1 for suite in ("older", "missing", "good")
    }


def test_a_mirror_that_was_silent_twice_is_left_alone(
    server: Server, keys: Keys, tmp_path: Path
) -> None:
    found = mirrors(server, keys, silence=1.0)
    reasons = []
    for number in range(3):
        known = len(server.asked)
        with pytest.raises(Unreachable) as caught:
            Apt(tmp_path / f"{number}", "hang", "amd64", found).update()
        reasons.append((str(caught.value).partition(": ")[2], len(server.asked) > known))
    silent = ("nothing came for 1 s", True)
    assert reasons == [
        silent,
        silent,
        ("it is not asked again: nothing came from it before", False),
    ]


def test_a_slow_mirror_is_no_silent_one(server: Server, keys: Keys) -> None:
    began = time.monotonic()
    image = supply(mirrors(server, keys, silence=_SILENCE), "good").image(cell("slow"))
    assert time.monotonic() - began > _SILENCE
    assert image.kernel.read_bytes() == KERNEL


# ---------------------------------------------------------------- what was fetched before


def aged(apt: Apt) -> None:
    old = time.time() - _OLD
    os.utime(apt.stamp, (old, old))


@pytest.fixture
def fetched(server: Server, keys: Keys, tmp_path: Path) -> Apt:
    """The lists of "good", fetched so long ago that they want to be fetched again."""
    apt = Apt(tmp_path / "lists", "good", "amd64", mirrors(server, keys, silence=_SILENCE))
    apt.update()
    aged(apt)
    return apt


OLDER = (f"{META}_1_amd64.deb",)
NEWER = (f"{META}_2_amd64.deb",)


def test_lists_are_renewed_when_they_are_old(fetched: Apt, archive: Archive) -> None:
    archive.renew("good", "2")
    fetched.update()
    assert fetched.files(META) == NEWER
    assert len([path for path in fetched.folder.iterdir() if path.is_dir()]) == 1


@pytest.mark.parametrize("fault", ["half renewed", "gone", "unsigned"])
def test_earlier_lists_serve_until_all_of_the_newer_are_there(
    fetched: Apt, archive: Archive, fault: str
) -> None:
    place = archive.root / "debian/dists/good"
    if fault == "half renewed":
        archive.renew("good", "2", packages=False)
    elif fault == "gone":
        shutil.rmtree(place)
    else:
        archive.renew("good", "2")
        (place / "InRelease").write_text((place / "InRelease").read_text().replace("Date", "Dat3"))
    fetched.update()
    assert fetched.files(META) == OLDER
    assert len(fetched.download(OLDER, fetched.folder / "debs")) == 1


def test_damaged_lists_do_not_serve(fetched: Apt, archive: Archive) -> None:
    shutil.rmtree(archive.root / "debian/dists/good")
    (lists,) = fetched.folder.glob("lists-*/lists/*_Packages*")
    lists.write_bytes(lists.read_bytes()[:-10])
    with pytest.raises(Unreachable, match="does not have a Release file"):
        fetched.update()


def test_lists_of_another_mirror_do_not_get_lost(fetched: Apt, server: Server, keys: Keys) -> None:
    # The mirrors that are asked now do not have the suite at all.
    now = Apt(fetched.folder, "good", "amd64", mirrors(server, keys, "nothing", "neither"))
    now.update()
    assert now.files(META) == OLDER


def test_a_made_image_serves_without_lists(
    server: Server, keys: Keys, archive: Archive, tmp_path: Path
) -> None:
    supply(mirrors(server, keys), "good").image(cell("good"))
    shutil.rmtree(tmp_path / "cache/usdt-toolkit/vm/lists")
    shutil.rmtree(archive.root)
    image = supply(mirrors(server, keys), "good").image(cell("good"))
    assert image.kernel.read_bytes() == KERNEL
    assert not image.notes


def test_a_made_image_serves_while_its_packages_are_renewed(
    server: Server, keys: Keys, archive: Archive, tmp_path: Path
) -> None:
    first = supply(mirrors(server, keys), "good").image(cell("good"))
    archive.renew("good", "2")
    for package in (archive.root / "debian/pool/good").glob("*_2_*.deb"):
        package.unlink()
    for stamp in (tmp_path / "cache/usdt-toolkit/vm/lists").glob("*/updated"):
        os.utime(stamp, (0, 0))
    assert supply(mirrors(server, keys), "good").image(cell("good")) == first


# ---------------------------------------------------------------- programs that are watched


@pytest.mark.parametrize(
    ("script", "limits", "why"),
    [
        pytest.param("for i in $(seq 14); do echo >>f; sleep 0.5; done", (5, 60), "", id="grows"),
        pytest.param("sleep 60", (1, 60), "nothing came for 1 s", id="silent"),
        pytest.param(
            "while :; do echo >f; rm f; sleep 0.3; done",
            *((1, 60), "nothing came for 1 s"),
            id="the same once more",
        ),
        pytest.param(
            "while :; do echo >>f; sleep 0.2; done",
            *((60, 2), "it took more than 2 s"),
            id="endless",
        ),
    ],
)
def test_a_watched_program(script: str, limits: tuple[int, int], why: str, tmp_path: Path) -> None:
    need_program("setpriv", "util-linux")
    command = ("sh", "-c", f"echo $$ >pid; {script}")
    found = ""
    try:
        watched(command, cwd=tmp_path, growing=tmp_path, silence=limits[0], limit=limits[1])
    except Stuck as err:
        found = str(err)
    assert found == why
    group = int((tmp_path / "pid").read_text())
    until(lambda: not _alive(group), "the program and its helpers to end")


def _alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
