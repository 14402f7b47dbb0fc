r"""SystemTap SDT notes: decode a ``.note.stapsdt`` section into records.

One note, in the byte order of the file (elf(5); the SystemTap wiki,
"UserSpaceProbeImplementation")::

    u32 namesz  u32 descsz  u32 type            12 bytes
    owner       "stapsdt\0"                     padded
    descriptor  location, base, semaphore       three addresses of 4 or 8 bytes, by ELF class
                provider\0 name\0 arguments\0   padded

Notes of all known files are padded to 4 bytes. The ELF specification also allows padding to 8, if
the section's alignment is 8; but some sections have alignment 8 and padding 4. So 4 is tried first,
then 8 if the section's alignment is 8 and 4 does not fit.

Nothing here opens a file. The bytes are hostile: nothing is read past the end, each note is visited
once, and damage is a warning, never an exception.
"""

from __future__ import annotations

import struct
from typing import Literal

from usdt.base.frozen import frozen
from usdt.base.text import plural

__all__ = ("MAX_NOTES", "MAX_WARNINGS", "Note", "Notes", "parse_notes")

MAX_NOTES = (
    4_000_000  # ten times the largest known file; a sparse file of zeros has 90 million per GiB
)
MAX_WARNINGS = 16  # per section; the rest are counted
COPY_LIMIT = 64 << 20  # bytes; larger sections are not copied

OWNER = b"stapsdt\0"
NT_STAPSDT = 3
HEADER_SIZE = 12
SUPPORTED_BITS = (32, 64)


@frozen
class Note:
    """A site as its note describes it, before the prelink adjustment.

    Attributes:
        location: link-time address of the probe's nop.
        base: address of ``.stapsdt.base`` when the note was written; 0 if unknown.
        semaphore: address of the 16-bit activation counter; 0 for none.
        provider, name: UTF-8, other bytes as surrogate escapes; either may be empty.
        args: operands, separated by blanks; "" for none.
    """

    location: int
    base: int
    semaphore: int
    provider: str
    name: str
    args: str

    def __init__(  # noqa: PLR0917 - the fields, in their order
        self, location: int, base: int, semaphore: int, provider: str, name: str, args: str
    ) -> None:
        # Written out: takes half the time of the generic __init__, and runs up to 400,000 times.
        put = object.__setattr__
        put(self, "location", location)
        put(self, "base", base)
        put(self, "semaphore", semaphore)
        put(self, "provider", provider)
        put(self, "name", name)
        put(self, "args", args)


@frozen
class Notes:
    """The notes of one section in file order, and one warning line per defect."""

    notes: list[Note]
    warnings: list[str]


@frozen
class NoteFormat:
    """The layout of notes of one ELF class, byte order and padding.

    Attributes:
        header: namesz, descsz, type.
        whole: header, owner and the three addresses, to decode a well-formed note at once.
        addresses: size in bytes of the three addresses.
        padding: 4 or 8.
    """

    header: struct.Struct
    whole: struct.Struct
    addresses: int
    padding: int


def make_layout(bits: int, byteorder: str, padding: int) -> NoteFormat:
    """Return the layout of notes in a file of this class and byte order."""
    order = "<" if byteorder == "little" else ">"
    words = "QQQ" if bits == 64 else "III"
    gap = "4x" if padding == 8 else ""  # header and owner are 20 bytes
    return NoteFormat(
        struct.Struct(f"{order}III"),
        struct.Struct(f"{order}III8s{gap}{words}"),
        struct.calcsize(f"{order}{words}"),
        padding,
    )


LAYOUTS = {
    (bits, byteorder, padding): make_layout(bits, byteorder, padding)
    for bits in SUPPORTED_BITS
    for byteorder in ("little", "big")
    for padding in (4, 8)
}


def parse_notes(
    data: bytes | memoryview,
    *,
    bits: int,
    byteorder: Literal["little", "big"],
    align: int = 4,
) -> Notes:
    """Decode all stapsdt notes of a section; notes of other owners and types are skipped.

    Args:
        data: the section's contents.
        bits: 32 or 64, the file's class.
        byteorder: byte order of the file.
        align: the section's ``sh_addralign``; only 8 matters.

    Raises:
        ValueError: ``bits`` is neither 32 nor 64.
    """
    if bits not in SUPPORTED_BITS:
        raise ValueError(f"bits must be 32 or 64, not {bits}")
    if len(data) <= COPY_LIMIT:
        data = bytes(data)  # slicing bytes takes half the time of slicing a memoryview
    found = parse_padded(data, LAYOUTS[bits, byteorder, 4])
    if align == 8 and not fits(found):
        other = parse_padded(data, LAYOUTS[bits, byteorder, 8])
        found = max(found, other, key=quality)
    return found


def fits(found: Notes) -> bool:
    """Return True if the padding was clearly right: no damaged and no nameless notes."""
    return not found.warnings and all(note.name for note in found.notes)


def quality(found: Notes) -> tuple[bool, int, int]:
    """Return a sort key for two readings of the same bytes; wrong padding gives empty names."""
    named = sum(1 for note in found.notes if note.name)
    return fits(found), named, -len(found.warnings)


def parse_padded(data: bytes | memoryview, layout: NoteFormat) -> Notes:
    """Decode a section whose notes are padded to ``layout.padding`` bytes.

    A well-formed note is decoded in place, with one unpack of header, owner and addresses. All
    others go through :func:`step`. The loop is written out, because it runs 400,000 times for the
    largest known files.
    """
    notes: list[Note] = []
    damage = Damage()
    append, look = notes.append, layout.whole.unpack_from
    whole, addresses, mask = layout.whole.size, layout.addresses, layout.padding - 1
    size = len(data)
    last = size - whole
    position = 0
    for _ in range(MAX_NOTES):
        if position <= last:
            namesz, descsz, kind, owner, location, base, semaphore = look(data, position)
            start = position + whole
            end = start + descsz - addresses
            if owner == OWNER and kind == NT_STAPSDT and namesz == 8 and start <= end <= size:
                text = str(data[start:end], "utf-8", "surrogateescape").split("\0", 3)
                if len(text) == 4:
                    args = text[2]
                    if args[:1] == ":":
                        args = ""
                    append(Note(location, base, semaphore, text[0], text[1], args))
                else:
                    damage.add(unterminated(position, text))
                position = (end + mask) & ~mask
                continue
        elif position >= size:
            break
        position, complaint = step(data, layout, position)
        if complaint:
            damage.add(complaint)
    if position < size:
        damage.add(f"offset {position:#x}: reading stopped after {MAX_NOTES} notes")
    return Notes(notes, damage.warnings())


class Damage:
    """Warnings about one section: the first few as text, the rest counted."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.count = 0

    def add(self, line: str) -> None:
        """Add a warning."""
        self.count += 1
        if self.count <= MAX_WARNINGS:
            self.lines.append(line)

    def warnings(self) -> list[str]:
        """Return the warnings, and a line with the number of the others."""
        more = self.count - len(self.lines)
        return [*self.lines, plural(more, "more damaged note")] if more else self.lines


def unterminated(position: int, text: list[str]) -> str:
    """Return the warning for a descriptor with fewer than three terminated strings."""
    missing = ("provider", "name", "arguments")[len(text) - 1]
    return f"offset {position:#x}: damaged note skipped: its {missing} string is not terminated"


def step(data: bytes | memoryview, layout: NoteFormat, position: int) -> tuple[int, str]:
    """Skip a note that is not a well-formed stapsdt note.

    Returns:
        The offset of the next note, and a warning; "" for a note of another owner.
    """
    size = len(data)
    if size - position < HEADER_SIZE:
        return size, truncated(position, "a note's header", HEADER_SIZE, size - position)
    namesz, descsz, kind = layout.header.unpack_from(data, position)
    mask = layout.padding - 1
    name = position + HEADER_SIZE
    desc = (name + namesz + mask) & ~mask
    end = desc + descsz
    if name + namesz > size:
        return size, truncated(position, "a note's owner", namesz, size - name)
    if end > size:
        return size, truncated(position, "a note's descriptor", descsz, max(0, size - desc))
    after = (end + mask) & ~mask
    if namesz != len(OWNER) or kind != NT_STAPSDT or data[name : name + namesz] != OWNER:
        return after, ""
    return after, (
        f"offset {position:#x}: damaged note skipped: descriptor of {descsz} bytes,"
        f" its addresses alone take {layout.addresses}"
    )


def truncated(position: int, what: str, need: int, have: int) -> str:
    """Return the warning for a section that ends inside a note."""
    return (
        f"offset {position:#x}: truncated: {what} needs {need} bytes, the section has {have} left"
    )
