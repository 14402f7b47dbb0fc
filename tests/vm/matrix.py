"""The cells: which kernels on which CPUs the live tests run in, and what each must offer.

A cell is one row of ``CELLS``; a CPU is one row of ``CPUS``. Kernels are chosen by the suite of
Debian and the name of its meta package, never by version: "5.10" is what bullseye has, whatever
its last number. What a kernel offers is compared with what the toolkit's feature probes find in
it, in both directions, and a test that skips for want of an offered feature has failed.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ("CELLS", "CPUS", "FEATURES", "USERLAND", "Cell", "Cpu", "cell_named")


@dataclass(frozen=True, slots=True)
class Cpu:
    """A CPU: its name in Debian and how QEMU emulates it."""

    architecture: str
    program: str
    package: str  # that has the program
    machine: tuple[str, ...]
    console: str
    append: str = ""  # words of the kernel's command line


@dataclass(frozen=True, slots=True)
class Cell:
    """One kernel on one CPU. ``offers`` names keys of ``FEATURES``."""

    kernel: str
    cpu: str
    suite: str
    package: str
    offers: frozenset[str]

    @property
    def name(self) -> str:
        """As ``pytest -k`` and messages have it, "amd64-6.1"."""
        return f"{self.cpu}-{self.kernel}"


# Feature → what a skip says that is for want of it; the names are those of bpf.features.have_….
FEATURES: dict[str, tuple[str, ...]] = {
    "batch_operations": ("batch",),
    "cookies": ("cookie",),
    "ringbuf": ("ringbuf", "ring buffer"),
    "sleepable_uprobes": ("sleepable",),
    "uprobe_multi": ("uprobe_multi",),
    "uprobe_pmu": ("uprobe_pmu", "uprobe PMU"),
    "vmlinux_btf": ("vmlinux", "BTF"),
}

_ANY = frozenset({"batch_operations", "ringbuf", "uprobe_pmu", "vmlinux_btf"})
_6_1 = _ANY | {"cookies", "sleepable_uprobes"}
_6_6 = _6_1 | {"uprobe_multi"}

CPUS: dict[str, Cpu] = {
    cpu.architecture: cpu
    for cpu in (
        # Without -cx16 one boot of ten hangs with 6.12.
        Cpu(
            *("amd64", "qemu-system-x86_64", "qemu-system-x86"),
            *(("-machine", "pc", "-cpu", "max,-cx16"), "ttyS0"),
            # Emulated, every look at the clock would else be one at a device.
            "tsc=reliable",
        ),
    )
}

# The cloud flavour has the same features in a third of the size, and boots in half of the time.
CELLS: tuple[Cell, ...] = (
    Cell("5.10", "amd64", "bullseye", "linux-image-cloud-amd64", _ANY),
    Cell("6.1", "amd64", "bookworm", "linux-image-cloud-amd64", _6_1),
    Cell("6.12", "amd64", "trixie", "linux-image-cloud-amd64", _6_6),
    Cell("sid", "amd64", "sid", "linux-image-cloud-amd64", _6_6),
)

#: CPU → suite and packages of the userland; one serves every kernel.
USERLAND: dict[str, tuple[str, tuple[str, ...]]] = {
    "amd64": (
        "bookworm",
        (
            *("python3", "busybox-static", "bash", "coreutils", "mount", "util-linux", "libc-bin"),
            *("libstdc++6", "libc6-i386", "lib32stdc++6"),
            *("gcc", "libc6-dev", "systemtap-sdt-dev", "binutils"),
        ),
    ),
}


def cell_named(kernel: str, cpu: str) -> Cell:
    """The row of a kernel and a CPU; LookupError names what there is."""
    for cell in CELLS:
        if (cell.kernel, cell.cpu) == (kernel, cpu):
            return cell
    raise LookupError(f"no cell {cpu}-{kernel}; there are {', '.join(c.name for c in CELLS)}")
