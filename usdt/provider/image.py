"""Build a shared object in memory, with a function, a note and a semaphore for each probe.

The object has the parts that ``<sys/sdt.h>``, an assembler and a linker produce for a C program:

    first segment, read and execute   headers, .hash, .dynsym, .dynstr, .text, .stapsdt.base
    second segment, read and write    .dynamic, .probes (the semaphores)
    not loaded                        .note.stapsdt, .shstrtab, section headers

Addresses equal file offsets, so no relocation is needed. The functions here have no side effects:
they take names and types and return bytes. Structures and constants are those of elf(5) and the
System V gABI, 64-bit class.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from usdt.base.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from usdt.arch.stubs import Stub

__all__ = ("MAX_ARGUMENTS", "ArgumentType", "Image", "ProbeImage", "build")

MAX_ARGUMENTS = 12  # per probe: the limit of <sys/sdt.h> and libbpf

_EHDR, _PHDR, _SHDR, _SYM, _DYN = "16sHHIQQQIHHHHHH", "IIQQQQQQ", "IIQQQQIIQQ", "IBBHQQ", "qQ"
_EHDR_SIZE, _PHDR_SIZE, _SHDR_SIZE, _SYM_SIZE, _DYN_SIZE = 64, 56, 64, 24, 16
_ELFCLASS64, _EV_CURRENT, _ET_DYN = 2, 1, 3
_PT_LOAD, _PT_DYNAMIC, _PT_GNU_STACK = 1, 2, 0x6474E551
_PF_R, _PF_W, _PF_X = 4, 2, 1
_SHT_PROGBITS, _SHT_STRTAB, _SHT_HASH, _SHT_DYNAMIC, _SHT_NOTE, _SHT_DYNSYM = 1, 3, 5, 6, 7, 11
_SHF_WRITE, _SHF_ALLOC, _SHF_EXECINSTR = 1, 2, 4
_DT_HASH, _DT_STRTAB, _DT_SYMTAB, _DT_STRSZ, _DT_SYMENT, _DT_SONAME = 4, 5, 6, 10, 11, 14
_STT_FUNC, _STT_OBJECT, _STB_GLOBAL = 2, 1, 1 << 4
_NT_STAPSDT = 3
_SEMAPHORE = 2  # bytes of a semaphore, an unsigned short
_SEGMENTS = 4
_HEADERS = _EHDR_SIZE + _SEGMENTS * _PHDR_SIZE


@frozen
class ArgumentType:
    """The type of an argument.

    Attributes:
        name: the name that users of a Provider write, such as ``s32``.
        size: size in bytes, 1 to 8.
        kind: "signed", "unsigned", "float", or "text" for a pointer to NUL-terminated bytes.
    """

    name: str
    size: int
    kind: str

    def prefix(self) -> str:
        """Return the text before the ``@`` in a note: sign, size, ``f``, as in ``-4`` or ``8f``."""
        return f"{'-' if self.kind == 'signed' else ''}{self.size}{'f' * (self.kind == 'float')}"


@frozen
class ProbeImage:
    """A probe of an object: its name, and the types of its arguments."""

    name: str
    arguments: tuple[ArgumentType, ...]


@frozen
class Image:
    """A shared object, and its symbols.

    Attributes:
        data: the bytes of the file.
        functions: symbol of each probe's function, in the order of the probes.
        semaphores: symbol of each probe's semaphore, in the order of the probes.
    """

    data: bytes
    functions: tuple[str, ...]
    semaphores: tuple[str, ...]


def build(provider: str, probes: Sequence[ProbeImage], stub: Stub) -> Image:
    """Build the object of a provider's probes; ``stub`` describes the CPU."""
    return _Builder(provider, probes, stub).build()


class _Section:
    def __init__(self, name: str, kind: int, flags: int, align: int) -> None:
        self.name = name
        self.kind = kind
        self.flags = flags
        self.align = align
        self.offset = 0
        self.data = b""
        self.link = self.info = self.entry = 0

    @property
    def end(self) -> int:
        return self.offset + len(self.data)


class _Builder:
    def __init__(self, provider: str, probes: Sequence[ProbeImage], stub: Stub) -> None:
        self.provider = provider
        self.probes = probes
        self.stub = stub
        self.functions = tuple(f"{provider}_{probe.name}" for probe in probes)
        self.semaphores = tuple(f"{name}_semaphore" for name in self.functions)
        self.body = stub.nop + stub.ret
        self.stride = -(-len(self.body) // 16) * 16
        self.sections: list[_Section] = [_Section("", 0, 0, 0)]
        self._order = "<" if stub.order == "little" else ">"

    def build(self) -> Image:
        """Lay out the sections, then fill in the contents that depend on their offsets."""
        symbols = (*self.functions, *self.semaphores)
        soname = f"usdt-{self.provider}.so"
        strings = _Strings((*symbols, soname))
        count = len(self.probes)
        code = _SHF_ALLOC | _SHF_EXECINSTR
        data = _SHF_ALLOC | _SHF_WRITE
        hashes = self._add_section(".hash", _SHT_HASH, _SHF_ALLOC, 8, self._hash(len(symbols)))
        zeroes = bytes(_SYM_SIZE * (1 + len(symbols)))
        table = self._add_section(".dynsym", _SHT_DYNSYM, _SHF_ALLOC, 8, zeroes)
        names = self._add_section(".dynstr", _SHT_STRTAB, _SHF_ALLOC, 1, strings.data)
        stubs = self.body.ljust(self.stride, b"\0") * count
        text = self._add_section(".text", _SHT_PROGBITS, code, 16, stubs)
        base = self._add_section(".stapsdt.base", _SHT_PROGBITS, _SHF_ALLOC, 1, b"\0")
        zeroes = bytes(_DYN_SIZE * 7)
        dynamic = self._add_section(".dynamic", _SHT_DYNAMIC, data, self.stub.page, zeroes)
        dynamic.align = 8
        zeroes = bytes(_SEMAPHORE * count)
        semaphores = self._add_section(".probes", _SHT_PROGBITS, data, _SEMAPHORE, zeroes)
        notes = b"".join(
            self._note(probe, text.offset + self.stride * i, base.offset, semaphores.offset + 2 * i)
            for i, probe in enumerate(self.probes)
        )
        self._add_section(".note.stapsdt", _SHT_NOTE, 0, 4, notes)
        hashes.link = self.sections.index(table)
        table.link = dynamic.link = self.sections.index(names)
        table.info = 1  # the first global symbol
        hashes.entry = self.stub.hash_entry
        table.entry, dynamic.entry = _SYM_SIZE, _DYN_SIZE
        table.data = self._symbols(strings, text, semaphores)
        dynamic.data = b"".join(
            self._pack(_DYN, tag, value)
            for tag, value in (
                (_DT_SONAME, strings.at[soname]),
                (_DT_HASH, hashes.offset),
                (_DT_STRTAB, names.offset),
                (_DT_SYMTAB, table.offset),
                (_DT_STRSZ, len(strings.data)),
                (_DT_SYMENT, _SYM_SIZE),
                (0, 0),
            )
        )
        return Image(self._file(base, dynamic, semaphores), self.functions, self.semaphores)

    def _add_section(self, name: str, kind: int, flags: int, align: int, data: bytes) -> _Section:
        section = _Section(name, kind, flags, align)
        end = self.sections[-1].end if len(self.sections) > 1 else _HEADERS
        section.offset = -(-end // align) * align
        section.data = data
        self.sections.append(section)
        return section

    def _pack(self, layout: str, *fields: int | bytes) -> bytes:
        return struct.pack(self._order + layout, *fields)

    def _hash(self, symbols: int) -> bytes:
        # One bucket with a chain of all symbols: comparing a dozen names is fast, and the hash
        # function is not needed.
        chain = (*range(2, symbols + 1), 0) if symbols else ()
        word = "Q" if self.stub.hash_entry == 8 else "I"
        return self._pack(f"{4 + len(chain)}{word}", 1, symbols + 1, min(symbols, 1), 0, *chain)

    def _symbols(self, strings: _Strings, text: _Section, semaphores: _Section) -> bytes:
        table = [bytes(_SYM_SIZE)]
        for names, home, kind, stride, size in (
            (self.functions, text, _STT_FUNC, self.stride, len(self.body)),
            (self.semaphores, semaphores, _STT_OBJECT, _SEMAPHORE, _SEMAPHORE),
        ):
            index = self.sections.index(home)
            for i, name in enumerate(names):
                at = home.offset + stride * i
                info = _STB_GLOBAL | kind
                table.append(self._pack(_SYM, strings.at[name], info, 0, index, at, size))
        return b"".join(table)

    def _note(self, probe: ProbeImage, site: int, base: int, semaphore: int) -> bytes:
        # The layout of <sys/sdt.h>: three addresses, then provider, name and arguments.
        arguments = " ".join(
            f"{kind.prefix()}@{self.stub.operand(i, kind.size)}"
            for i, kind in enumerate(probe.arguments)
        )
        words = f"{self.provider}\0{probe.name}\0{arguments}\0".encode()
        described = self._pack("QQQ", site, base, semaphore) + words
        head = self._pack("III", len("stapsdt\0"), len(described), _NT_STAPSDT)
        return head + b"stapsdt\0" + described + bytes(-len(described) % 4)

    def _file(self, base: _Section, dynamic: _Section, semaphores: _Section) -> bytes:
        # Headers, sections with padding, and the section headers at the end.
        strings = _Strings([*(section.name for section in self.sections[1:]), ".shstrtab"])
        self._add_section(".shstrtab", _SHT_STRTAB, 0, 1, strings.data)
        table = -(-self.sections[-1].end // 8) * 8
        file = bytearray(table)
        ident = b"\x7fELF" + bytes((_ELFCLASS64, "<>".index(self._order) + 1, _EV_CURRENT))
        file[:_EHDR_SIZE] = self._pack(
            *(_EHDR, ident, _ET_DYN, self.stub.e_machine, _EV_CURRENT),
            *(0, _EHDR_SIZE, table, self.stub.flags, _EHDR_SIZE, _PHDR_SIZE, _SEGMENTS),
            *(_SHDR_SIZE, len(self.sections), len(self.sections) - 1),
        )
        file[_EHDR_SIZE:_HEADERS] = b"".join(
            self._pack(_PHDR, kind, flags, at, at, at, size, size, align)
            for kind, flags, at, size, align in (
                (_PT_LOAD, _PF_R | _PF_X, 0, base.end, self.stub.page),
                (
                    *(_PT_LOAD, _PF_R | _PF_W, dynamic.offset),
                    *(semaphores.end - dynamic.offset, self.stub.page),
                ),
                (_PT_DYNAMIC, _PF_R | _PF_W, dynamic.offset, len(dynamic.data), 8),
                (_PT_GNU_STACK, _PF_R | _PF_W, 0, 0, 16),
            )
        )
        for section in self.sections[1:]:
            file[section.offset : section.end] = section.data
        return bytes(file) + b"".join(self._header(section, strings) for section in self.sections)

    def _header(self, section: _Section, strings: _Strings) -> bytes:
        loaded = section.offset if section.flags & _SHF_ALLOC else 0
        return self._pack(
            *(_SHDR, strings.at.get(section.name, 0), section.kind, section.flags, loaded),
            *(section.offset, len(section.data), section.link, section.info),
            *(section.align, section.entry),
        )


class _Strings:
    """A string table: an empty string, then NUL-terminated names.

    Attributes:
        at: name → its offset.
        data: the bytes of the table.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.at: dict[str, int] = {}
        data = bytearray(1)
        for name in dict.fromkeys(names):
            self.at[name] = len(data)
            data += name.encode() + b"\0"
        self.data = bytes(data)
