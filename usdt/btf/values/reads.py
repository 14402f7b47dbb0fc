"""What generated code reads at once: (offset, size, format, variable) in groups."""

from __future__ import annotations

__all__ = ("groups", "windows")

_WORD = 8


def groups(reads: list[tuple[int, int, str, str]]) -> list[list[tuple[int, int, str, str]]]:
    """Reads that do not overlap go together; members of a union do not."""
    groups: list[list[tuple[int, int, str, str]]] = []
    ends: list[int] = []
    for row in sorted(reads):
        for index, end in enumerate(ends):
            if end <= row[0]:
                groups[index].append(row)
                ends[index] = row[0] + row[1]
                break
        else:
            groups.append([row])
            ends.append(row[0] + row[1])
    return groups


def windows(
    fields: list[tuple[int, int, int, str]],
) -> list[tuple[tuple[int, int], list[tuple[int, int, int, str]]]]:
    """Bit fields that lie within eight bytes are taken out of one number."""
    windows: list[tuple[tuple[int, int], list[tuple[int, int, int, str]]]] = []
    for row in sorted(fields):
        byte, bit, bits, _ = row
        end = byte + (bit + bits + 7) // 8
        if windows and end - windows[-1][0][0] <= _WORD:
            (first, last), rows = windows.pop()
            windows.append(((first, max(last, end)), [*rows, row]))
        else:
            windows.append(((byte, end), [row]))
    return windows
