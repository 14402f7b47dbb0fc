"""Cross compilers: those of the system, or those that tools/cross.sh has put into the cache."""

from __future__ import annotations

import functools
import os
import struct
import subprocess
import tempfile
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

__all__ = ("TRIPLETS", "assembly_of", "library_of", "numbers_of")

ROOT = Path(__file__).resolve().parents[2]
# A machine's name in ELF files -> its compiler's.
TRIPLETS = {
    "aarch64": "aarch64-linux-gnu",
    "arm": "arm-linux-gnueabihf",
    "mips64el": "mips64el-linux-gnuabi64",
    "ppc64le": "powerpc64le-linux-gnu",
    "riscv64": "riscv64-linux-gnu",
    "s390x": "s390x-linux-gnu",
}
# Others by an option of the machine's own.
_OPTIONS = {"x86_64": ("gcc",), "i386": ("gcc", "-m32")}


def numbers_of(machine: str, headers: str, expressions: dict[str, str]) -> dict[str, int]:
    """What constant expressions are for that machine's compiler, with these headers included.

    Nothing is run: the numbers are read from the object file. Skips without the compiler.
    """
    lines = [f"#include <{header}>" for header in ("stddef.h", *headers.split())]
    lines += ['__attribute__((section("numbers"))) const unsigned long long found[] = {']
    lines += [f"(unsigned long long)({text})," for text in expressions.values()]
    command, environment = _compiler(machine)
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder, "numbers.o")
        done = subprocess.run(
            [*command, "-c", "-o", made, "-x", "c", "-"],
            input="\n".join([*lines, "};\n"]),
            capture_output=True,
            text=True,
            check=False,
            env=environment,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        with made.open("rb") as file:
            elf = ELFFile(file)
            data = elf.get_section_by_name("numbers").data()
            order = "<" if elf.little_endian else ">"
    return dict(zip(expressions, struct.unpack(f"{order}{len(data) // 8}Q", data), strict=True))


def library_of(machine: str, source: str, folder: Path) -> Path:
    """A shared library of that machine, without any other. Skips without the compiler."""
    command, environment = _compiler(machine)
    (folder / "lib.c").write_text(source)
    words = [*command, "-O1", "-fPIC", "-shared", "-nostdlib", "lib.c", "-o", "lib.so"]
    done = subprocess.run(
        words, cwd=folder, capture_output=True, text=True, check=False, env=environment, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return folder / "lib.so"


def assembly_of(machine: str, source: str) -> str:
    """What that machine's compiler makes of C, optimised. Skips without the compiler."""
    command, environment = _compiler(machine)
    done = subprocess.run(
        [*command, "-O2", "-S", "-o", "-", "-x", "c", "-"],
        input=source,
        capture_output=True,
        text=True,
        check=True,
        env=environment,
        timeout=60,
    )
    return done.stdout


@functools.cache
def _compiler(machine: str) -> tuple[tuple[str, ...], dict[str, str]]:
    environment = {**os.environ, "LC_ALL": "C"}
    if machine not in TRIPLETS:
        return _OPTIONS[machine], environment
    triplet = TRIPLETS[machine]
    sysroot = subprocess.run(
        [ROOT / "tools" / "cross.sh", triplet], capture_output=True, text=True, check=True
    ).stdout.strip()
    if not sysroot:
        command: tuple[str, ...] = (f"{triplet}-gcc",)
    else:
        command = (f"{sysroot}/usr/bin/{triplet}-gcc", f"--sysroot={sysroot}")
        libraries = sorted(Path(sysroot, "usr/lib").glob("*-linux-gnu"))
        environment["LD_LIBRARY_PATH"] = ":".join(map(str, libraries))
    try:
        subprocess.run([*command, "--version"], capture_output=True, check=True, env=environment)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip(f"needs a compiler for {machine}: tools/cross.sh fetches it")
    return command, environment
