"""The vendored libraries are those that their authors have published."""

from __future__ import annotations

import hashlib

from house import ROOT

from usdt.pictures.vendored import libraries

_VENDOR = ROOT / "usdt" / "pictures" / "vendor"


def _hash(name: str) -> str:
    return hashlib.sha256((_VENDOR / name).read_bytes()).hexdigest()


def test_vendored_files_have_the_hashes_of_the_manifest() -> None:
    for library in libraries().values():
        assert _hash(library.file) == library.sha256
        assert _hash(library.license_file) == library.license_sha256
        if library.style_file:
            assert _hash(library.style_file) == library.style_sha256


def test_every_vendored_file_is_in_the_manifest() -> None:
    known = {"manifest.json"}
    for library in libraries().values():
        known |= {library.file, library.license_file, library.style_file or library.file}
    assert {path.name for path in _VENDOR.iterdir()} == known


def test_libraries_have_a_version_and_a_license() -> None:
    for library in libraries().values():
        assert library.version
        assert library.license
        assert library.license_text.strip()


def test_libraries_can_stand_in_a_script_element() -> None:
    for library in libraries().values():
        assert "</script" not in library.text.lower()
        assert "<!--" not in library.text
