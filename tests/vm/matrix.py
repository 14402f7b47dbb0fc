"""The cells: which kernels on which CPUs the live tests run in, and what each must offer.

A cell is one row of ``CELLS``; a CPU is one row of ``CPUS``. Kernels are chosen by the suite of
Debian and the name of its meta package, never by version: "5.10" is what bullseye has, whatever
its last number. What a kernel offers is compared with what the toolkit's feature probes find in
it, in both directions, and a test that skips for want of an offered feature has failed.

A mirror may lack a suite for a while. So a cell names several kernels, and a CPU several
userlands; the first that can be had is taken.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = (
    "CELLS",
    "CPUS",
    "FEATURES",
    "QUICK",
    "USERLANDS",
    "Cell",
    "Cpu",
    "Kernel",
    "Userland",
    "cell_named",
    "quick_tests",
)


@dataclass(frozen=True, slots=True)
class Cpu:
    """A CPU: its name in Debian and how QEMU emulates it."""

    architecture: str
    program: str
    package: str  # that has the program
    machine: tuple[str, ...]
    console: str
    append: str = ""  # words of the kernel's command line
    memory: int = 2048  # MiB
    count: int = 1  # of CPUs
    settings: tuple[str, ...] = ()  # words for sysctl, before anything else runs


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel of a suite. ``offers`` names keys of ``FEATURES``."""

    suite: str
    package: str
    offers: frozenset[str]


@dataclass(frozen=True, slots=True)
class Cell:
    """One kernel on one CPU: the first of ``kernels`` that can be had."""

    kernel: str
    cpu: str
    kernels: tuple[Kernel, ...]
    often: bool = False  # whether ``make test`` runs the quick tests in it
    more: tuple[str, ...] = ()  # packages beside those of the userland, of its suite
    tests: tuple[str, ...] = ()  # words for pytest, where they are always the same
    memory: int = 0  # MiB, where it is not the CPU's

    @property
    def name(self) -> str:
        """As ``pytest -k`` and messages have it, "amd64-6.1"."""
        return f"{self.cpu}-{self.kernel}"

    @property
    def offers(self) -> frozenset[str]:
        """What its kernel offers."""
        return self.kernels[0].offers

    def with_kernel(self, kernel: Kernel) -> Cell:
        """The cell with one kernel, the one that was had."""
        return replace(self, kernels=(kernel,))


@dataclass(frozen=True, slots=True)
class Userland:
    """What a CPU runs beside its kernel: packages of a suite."""

    suite: str
    packages: tuple[str, ...]


# Feature → what a skip says that is for want of it; the names are those of
# usdt.bpf.features.have_….
FEATURES: dict[str, tuple[str, ...]] = {
    "ancestor_cgroups": ("by cgroup",),
    "batch_operations": ("batch",),
    "cookies": ("BPF cookie", "have_cookies"),
    "fentry": ("fentry",),
    "fetching_atomics": ("atomic",),
    "kprobe_multi": ("kprobe_multi",),
    "kprobes": ("kprobe PMU", "CONFIG_KPROBES"),
    "loops": ("have_loops", "bpf_loop"),
    "raw_cookies": ("raw_cookies", "raw tracepoint"),
    "ringbuf": ("ringbuf", "ring buffer"),
    "sleepable_uprobes": ("sleepable",),
    "task_pt_regs": ("task_pt_regs",),
    "uprobe_multi": ("uprobe_multi",),
    "uprobe_pmu": ("uprobe_pmu", "uprobe PMU"),
    "user_writes": ("probe_write_user",),
    "vmlinux_btf": ("vmlinux", "BTF"),
}

_OLDEST = frozenset({"batch_operations", "ringbuf", "uprobe_pmu", "user_writes"})
_COOKIES_32 = _OLDEST | {
    *("ancestor_cgroups", "cookies", "fetching_atomics", "sleepable_uprobes"),
}
# JITs of 32-bit kernels compile no callbacks; that of s390x is off, unless somebody turns it on.
_COOKIES = _COOKIES_32 | {"loops"}
_MULTI = _COOKIES | {"raw_cookies", "uprobe_multi"}  # of 6.6 and 6.10: no suite is between
_BTF = frozenset({"vmlinux_btf"})
_KPROBES = frozenset({"kprobes"})
_TRACED = _KPROBES | {"fentry"}
_ALL_MULTI = _TRACED | {"kprobe_multi"}
_S390X = _COOKIES_32 | {"raw_cookies", "uprobe_multi", "kprobe_multi"}

CPUS: dict[str, Cpu] = {
    cpu.architecture: cpu
    for cpu in (
        # Vectors of AVX are emulated slowly, and libc uses what there is: an older CPU is a fifth
        # faster. Without -cx16 one boot of ten hangs with 6.12. Emulated, every look at the clock
        # would else be one at a device: tsc=reliable.
        Cpu(
            *("amd64", "qemu-system-x86_64", "qemu-system-x86"),
            *(("-machine", "pc", "-cpu", "Nehalem-v1,-cx16"), "ttyS0", "tsc=reliable"),
            count=2,
        ),
        # Where addresses are random, the kernel isolates its page tables even if no flaw asks for
        # it, and QEMU then forgets all translations twice in each system call.
        Cpu(
            *("arm64", "qemu-system-aarch64", "qemu-system-arm"),
            *(("-machine", "virt", "-cpu", "neoverse-n1"), "ttyAMA0", "kpti=off"),
        ),
        Cpu(
            *("armhf", "qemu-system-arm", "qemu-system-arm"),
            *(("-machine", "virt"), "ttyAMA0"),
        ),
        Cpu(
            *("i386", "qemu-system-x86_64", "qemu-system-x86"),
            *(("-machine", "pc", "-cpu", "Nehalem-v1,-cx16"), "ttyS0", "tsc=reliable"),
            memory=1024,
        ),
        Cpu(
            *("ppc64el", "qemu-system-ppc64", "qemu-system-ppc"),
            *(("-machine", "pseries,x-vof=on"), "hvc0"),
        ),
        # Debian leaves the JIT of this one off, and its interpreter has no atomic operations. Page
        # tables of three levels instead of five: QEMU walks them for every page that it meets.
        Cpu(
            *("riscv64", "qemu-system-riscv64", "qemu-system-misc"),
            *(("-machine", "virt"), "ttyS0", "no4lvl"),
            settings=("net.core.bpf_jit_enable=1",),
        ),
        Cpu("s390x", "qemu-system-s390x", "qemu-system-misc", (), "ttysclp0"),
    )
}

# Kernel → suites of Debian that have it, in the order in which they are tried.
_SUITES = {
    "5.10": ("bullseye", "bullseye-security"),
    "6.1": ("bookworm", "bookworm-security"),
    "6.12": ("trixie", "trixie-security", "bookworm-backports"),
    "sid": ("sid", "forky"),
}
_ABSENT = {("bookworm-backports", "riscv64")}  # it has been in Debian since trixie


def _row(name: str, package: str, offers: frozenset[str], *, often: bool = False) -> Cell:
    cpu, kernel = name.split("-")
    if {"cookies", "vmlinux_btf"} <= offers:  # bpf_task_pt_regs() is as old as cookies
        offers |= {"task_pt_regs"}
    kernels = (Kernel(suite, f"linux-image-{package}", offers) for suite in _SUITES[kernel])
    return Cell(kernel, cpu, tuple(kernels), often)


# The cloud flavour has the same features in a third of the size, and boots in half of the time.
_ROWS: tuple[Cell, ...] = (
    _row("amd64-5.10", "cloud-amd64", _OLDEST | _BTF | _TRACED, often=True),
    _row("amd64-6.1", "cloud-amd64", _COOKIES | _BTF | _TRACED, often=True),
    _row("amd64-6.12", "cloud-amd64", _MULTI | _BTF | _ALL_MULTI, often=True),
    _row("amd64-sid", "cloud-amd64", _MULTI | _BTF | _ALL_MULTI, often=True),
    _row("arm64-5.10", "cloud-arm64", _OLDEST | _BTF | _KPROBES),
    _row("arm64-6.1", "cloud-arm64", _COOKIES | _BTF | _KPROBES),
    _row("arm64-6.12", "cloud-arm64", _MULTI | _BTF | _TRACED, often=True),
    _row("arm64-sid", "cloud-arm64", _MULTI | _BTF | _ALL_MULTI),
    _row("armhf-6.1", "armmp", _COOKIES_32 | _KPROBES, often=True),
    # uprobe_multi is of 64-bit kernels alone.
    _row("armhf-sid", "armmp", _COOKIES_32 | {"raw_cookies"} | _KPROBES),
    _row("i386-6.1", "686-pae", _COOKIES_32 | _KPROBES, often=True),
    _row("ppc64el-6.1", "powerpc64le", _COOKIES | _KPROBES),
    _row("ppc64el-sid", "powerpc64le", _MULTI | _BTF | _ALL_MULTI, often=True),
    _row("riscv64-6.12", "riscv64", _MULTI | _BTF | _TRACED, often=True),
    _row("riscv64-sid", "riscv64", _MULTI | _BTF | _ALL_MULTI),
    _row("s390x-6.1", "s390x", _COOKIES_32 | _KPROBES),
    _row("s390x-6.12", "s390x", _S390X | _BTF | _KPROBES, often=True),
    _row("s390x-sid", "s390x", _S390X | _BTF | _KPROBES),
)


def _others(cell: Cell) -> Iterator[Kernel]:
    # Kernels of the same CPU that stand in: newer ones, then older ones, the nearest first. On
    # amd64 none does: each kernel is a row there because of what it alone has.
    if cell.cpu != "amd64":
        same = [row for row in _ROWS if row.cpu == cell.cpu]
        at = same.index(cell)
        for row in (*same[at + 1 :], *reversed(same[:at])):
            yield from row.kernels


def _with_others(cell: Cell) -> Cell:
    found = (*cell.kernels, *_others(cell))
    return replace(cell, kernels=tuple(k for k in found if (k.suite, cell.cpu) not in _ABSENT))


CELLS: tuple[Cell, ...] = (
    *map(_with_others, _ROWS),
    # bcc compiles in the guest, and needs a compiler and the kernel's headers there. They are of
    # one version, so nothing stands in.
    Cell(
        *("6.1+bcc", "amd64"),
        (
            Kernel(
                "bookworm", "linux-image-cloud-amd64", _COOKIES | _BTF | _TRACED | {"task_pt_regs"}
            ),
        ),
        more=("python3-bpfcc", "linux-headers-cloud-amd64"),
        tests=("tests/peers/test_bcc.py",),
        memory=4096,
    ),
    # Debian's scripts of bpftrace, beside bpftrace.
    Cell(
        *("5.10+bpftrace", "amd64"),
        (Kernel("bullseye", "linux-image-cloud-amd64", _OLDEST | _BTF | _TRACED),),
        more=("bpftrace",),
        tests=("tests/live/test_run_scripts.py",),
        memory=4096,
    ),
    # The package of the kernel brings the modules that two of the scripts trace.
    Cell(
        *("6.1+bpftrace", "amd64"),
        (
            Kernel(
                "bookworm", "linux-image-cloud-amd64", _COOKIES | _BTF | _TRACED | {"task_pt_regs"}
            ),
        ),
        more=("bpftrace", "mdadm", "xfsprogs", "linux-image-cloud-amd64"),
        tests=("tests/live/test_run_scripts.py",),
        memory=4096,
    ),
)

_PACKAGES = (
    *("python3", "busybox-static", "bash", "coreutils", "mount", "util-linux", "libc-bin"),
    *("libstdc++6", "binutils", "gcc", "libc6-dev", "systemtap-sdt-dev"),
)

_MORE = {"amd64": ("libc6-i386", "lib32stdc++6", "strace")}


def _userlands(cpu: str) -> tuple[Userland, ...]:
    # The oldest first: its Python is the one that most hosts have, and its modules are compiled.
    suites = ("bookworm", "trixie", "forky", "sid")
    packages = (*_PACKAGES, *_MORE.get(cpu, ()))
    return tuple(Userland(suite, packages) for suite in suites[cpu == "riscv64" :])


#: CPU → its userlands, in the order in which they are tried; one serves every kernel.
USERLANDS: dict[str, tuple[Userland, ...]] = {cpu: _userlands(cpu) for cpu in CPUS}

_FIXTURES = "test_trace_fixtures.py::test_by_process_every_value_is_what_the_program_printed"
_ALL_FIXTURES = "test_trace_fixtures.py::test_one_trace_takes_all_programs"

#: What shows in a minute or two that the toolkit works in a kernel: node IDs of tests.
QUICK: tuple[str, ...] = tuple(
    f"tests/live/{name}"
    for name in (
        "test_bpf_live.py::test_this_kernel_has",
        "test_bpf_live.py::test_entries_of_a_hash_come_and_go",
        "test_bpf_live.py::test_a_per_cpu_counter_has_a_slot_for_each_cpu",
        "test_bpf_live.py::test_the_kernel_reads_instructions_as_we_mean_them",
        "test_bpf_live.py::test_a_refused_program_brings_the_verifiers_log",
        "test_bpf_objects.py::test_a_program_by_descriptor_and_by_pin",
        "test_capabilities.py::test_probes_of_a_command_need_what_is_documented",
        "test_capabilities.py::test_perf_events_say_which_capability_is_missing",
        "test_bpf_ring.py::test_the_ring_buffer_wraps_around_many_times",
        "test_bpf_ring.py::test_a_full_ring_buffer_loses_the_newest_and_goes_on",
        "test_bpf_ring.py::test_discarded_records_are_passed_over",
        "test_bpf_links.py::test_every_hit_brings_its_sites_cookie_and_address",
        "test_bpf_links.py::test_a_perf_event_alone_brings_addresses_and_no_cookies",
        "test_bpf_links.py::test_semaphores_are_raised_while_a_link_lives",
        "test_bpf_links.py::test_returns_are_probed_as_well",
        "test_uprobe_events.py::test_events_are_those_of_other_methods[False]",
        "test_manager.py::test_ids_come_back_in_the_order_of_a_stack",
        "test_manager.py::test_every_hit_finds_its_spec",
        "test_manager.py::test_a_full_map_refuses_before_anything_is_attached",
        "test_manager.py::test_semaphores_are_raised_and_lowered",
        "test_manager_command.py::test_the_command_leaves_nothing_behind[2]",
        "test_memory_live.py::test_strings[15 bytes]",
        "test_memory_live.py::test_buffers_of_a_length_in_an_argument",
        "test_memory_live.py::test_strings_compared[some of each kind]",
        "test_memory_live.py::test_what_no_page_holds_yet_is_read",
        "test_session_live.py::test_nothing_is_lost_where_there_is_room",
        "test_percentiles_live.py::test_percentiles_are_those_of_the_values[signed-stats]",
        "test_spans_fixtures.py::test_pairs_nest",
        "test_spans_fixtures.py::test_calls_of_a_kernel_function",
        "test_spans_fixtures.py::test_a_key_pairs_functions_of_the_kernel_in_two_threads",
        "test_api_live.py::test_values_have_the_types_of_python",
        "test_provider_live.py::test_every_type_arrives_as_it_was_given[in a memfd]",
        "test_provider_live.py::test_spans_pair_by_id_and_tell_durations_and_errors",
        "test_kprobe_api.py::test_a_tracepoint_of_every_process",
        *(
            f"{_FIXTURES}[{program}]"
            for program in (
                *("default/args", "O0/args", "O0/ints", "nopie/globals", "m32/args", "m32/ints"),
            )
        ),
        *(f"{_ALL_FIXTURES}[default-part {part}]" for part in range(1, 7)),
        "test_functions_live.py::test_arguments_without_types",
        "test_functions_live.py::test_arguments_by_name_and_type[kprobe_multi]",
        "test_functions_live.py::test_entry_and_return_are_one_event[fentry]",
        "test_functions_live.py::test_entry_and_return_are_one_event[perf-event]",
        "test_functions_live.py::test_a_function_alone_shows_its_arguments_and_its_return[fentry]",
        "test_functions_live.py::test_a_function_alone_without_types_shows_its_return",
        "test_stack_walks.py::test_stacks_are_those_of_single_events[bare]",
        "test_record_live.py::test_stacks_have_names_when_the_process_has_gone",
        "test_trace_targets.py::test_a_command_is_traced_from_its_first_instruction",
        "test_trace_targets.py::test_it_ends_with_the_process[SIGKILL]",
    )
)


# Quick tests of what is the same on every CPU run in the kernels of amd64 alone, those of what is
# the same in every kernel in one kernel of each CPU. `make test-vm-all` leaves nothing out.
_OF_KERNELS = (
    *("test_capabilities.py", "test_record_live.py", "test_session_live.py"),
    *("test_manager.py::test_a_full_map", "test_trace_targets.py::test_it_ends_with_the_process"),
    *("of_a_kernel_function", "functions_of_the_kernel_in_two_threads"),
)
_OF_BYTE_ORDERS = ("test_percentiles_live.py", "test_strings_compared")  # on s390x as well
_OF_CPUS = (
    *(f"[default-part {part}]" for part in range(2, 7)),
    *("[O0/args]", "[O0/ints]", "[nopie/globals]", "[m32/ints]"),
)


def quick_tests(cell: Cell) -> tuple[str, ...]:
    """Those of ``QUICK`` that run in a cell."""
    if cell.cpu != "amd64":
        elsewhere = _OF_KERNELS if cell.cpu == "s390x" else (*_OF_KERNELS, *_OF_BYTE_ORDERS)
        return tuple(name for name in QUICK if not any(part in name for part in elsewhere))
    if cell.kernel != "sid":
        return tuple(name for name in QUICK if not name.endswith(_OF_CPUS))
    return QUICK


def cell_named(kernel: str, cpu: str) -> Cell:
    """The row of a kernel and a CPU; LookupError names what there is."""
    for cell in CELLS:
        if (cell.kernel, cell.cpu) == (kernel, cpu):
            return cell
    raise LookupError(f"no cell {cpu}-{kernel}; there are {', '.join(c.name for c in CELLS)}")
