"""What a tracer knows of files: read once, forgotten when another file takes their place."""

from __future__ import annotations

import gc
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest
from debug_programs import compiled
from fixtures import build

from usdt.base.errors import ElfError, TargetError
from usdt.base.frozen import replace
from usdt.engine.language.parser import parse_probe
from usdt.procfs.mapped_files import file_identity
from usdt.targets.probe_finders import FoundPoints, FunctionFinder, UsdtFinder
from usdt.targets.traced_files import KnownFiles, TracedFile

if TYPE_CHECKING:
    from usdt.engine.runtime.session import BpfSession


def traced(path: Path) -> TracedFile:
    return TracedFile(str(path), str(path), file_identity(str(path)))


def test_a_file_is_read_once() -> None:
    file, files = traced(build("default", "strings")), KnownFiles()
    probes = files.probes(file)
    assert probes
    assert files.probes(file, named=True) is probes


def test_a_file_that_is_no_program_is_an_error_only_if_it_is_named(tmp_path: Path) -> None:
    path = tmp_path / "font"
    path.write_bytes(b"not ELF")
    with pytest.raises(ElfError):
        KnownFiles().probes(traced(path), named=True)
    assert KnownFiles().probes(traced(path)) == ()


def test_an_earlier_file_is_forgotten_unless_it_is_attached() -> None:
    file, files = traced(build("default", "strings")), KnownFiles()
    files[file].searched.add((None, 0))
    files.renew(file)
    assert files[file].searched  # it is the same file
    files.renew(replace(file, renewed=True))
    assert not files[file].searched
    files[file].searched.add((None, 0))
    files[file].attached = True
    files.renew(replace(file, renewed=True))
    assert files[file].searched


def test_a_program_that_is_gone_when_it_is_attached(tmp_path: Path) -> None:
    # Its process ended between the look for probes and that for their sites.
    path = Path(shutil.copy(build("default", "strings"), tmp_path))
    file, files = traced(path), KnownFiles()
    anywhere = UsdtFinder(parse_probe("*:*"), (), files)
    named = UsdtFinder(parse_probe(f"{path}:*:*"), (), files)
    session = cast("BpfSession", None)  # finding USDT probes asks nothing of it
    assert anywhere.find(file, session).points
    path.unlink()
    assert anywhere.find(file, session) == FoundPoints()
    with pytest.raises(TargetError, match="cannot be opened: No such file"):
        named.find(file, session)


def test_a_program_whose_functions_are_known_and_that_is_gone(tmp_path: Path) -> None:
    path = compiled(tmp_path, "gcc")
    file = traced(path)
    probe = f"uprobe:{tmp_path}/p*:main(no_such_name)"
    session = cast("BpfSession", None)  # a single function is no reason to ask it
    finder = FunctionFinder(parse_probe(probe), ())
    (why,) = map(str, finder.find(file, session).refused)
    assert "no_such_name" in why
    path.unlink()
    assert finder.find(file, session) == FoundPoints()
    named = FunctionFinder(parse_probe(f"uprobe:{path}:main(no_such_name)"), ())
    with pytest.raises(TargetError, match="cannot be opened: No such file"):
        named.find(file, session)
    del finder
    gc.collect()  # debug information closes its files when it is freed
