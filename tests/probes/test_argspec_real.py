"""Operands that this machine's compiler emits: each is decoded, and its value is what was passed.

A program with probes puts a breakpoint on each of its own probe sites, as the kernel does for a
uprobe. In the signal handler it does what a tracing program would: it evaluates the fetches it was
given, on the registers of the moment. So what ``fetch()`` says is put to the test with every way
of compiling, without privileges and without the kernel's tracing.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
from typing import TYPE_CHECKING

import pytest
from kept_builds import compile_in

from usdt.arch.locations import (
    Address,
    Constant,
    Location,
    Memory,
    Register,
    Unreadable,
    ValueClass,
)
from usdt.arch.operands import arch_of
from usdt.elf.file import ElfFile
from usdt.elf.symbol_resolver import SymbolResolver
from usdt.elf.symbol_table import symbol_addresses
from usdt.probes.argspec import parse_arguments
from usdt.probes.notes import parse_notes

if TYPE_CHECKING:
    from pathlib import Path

    from usdt.probes.argspec import Operand
    from usdt.probes.notes import Note

# The evaluator. Plan on stdin: the link-time address of anchor(), then per site "S address",
# per argument "R offset size", "M base index scale displacement address-size size", "C", "U".
HARNESS = r"""
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

static struct { char kind; long site; long long v[6]; } plan[256];
static int entries;
static long bias;

__attribute__((noinline)) static void anchor(void) { __asm__ volatile(""); }

static void save(uint64_t *regs, greg_t *g)
{
    memset(regs, 0, 21 * sizeof *regs);
#ifdef __x86_64__
    static const int from[] = {REG_R15, REG_R14, REG_R13, REG_R12, REG_RBP, REG_RBX, REG_R11,
        REG_R10, REG_R9, REG_R8, REG_RAX, REG_RCX, REG_RDX, REG_RSI, REG_RDI, -1, REG_RIP, -1, -1,
        REG_RSP};
#else
    static const int from[] = {-1, -1, -1, -1, REG_EBP, REG_EBX, -1, -1, -1, -1, REG_EAX, REG_ECX,
        REG_EDX, REG_ESI, REG_EDI, -1, REG_EIP, -1, -1, REG_ESP};
#endif
    for (int i = 0; i < 20; i++)
        if (from[i] >= 0)
            regs[i] = sizeof(long) == 4 ? (uint32_t)g[from[i]] : (uint64_t)g[from[i]];
    regs[16]--; /* the breakpoint, where a uprobe leaves it */
}

static void show(const void *bytes, long long size)
{
    for (long long i = 0; i < size; i++)
        printf("%02x", ((const unsigned char *)bytes)[i]);
    printf(" ");
}

static void hit(int number, siginfo_t *info, void *context)
{
    uint64_t regs[21];
    (void)number, (void)info;
    save(regs, ((ucontext_t *)context)->uc_mcontext.gregs);
    int i = 0;
    while (i < entries && (plan[i].kind != 'S' || plan[i].site + bias != (long)regs[16])) i++;
    printf("%ld ", plan[i].site);
    for (i++; i < entries && plan[i].kind != 'S'; i++) {
        const long long *v = plan[i].v;
        if (plan[i].kind == 'R') {
            show((char *)regs + v[0], v[1]);
        } else if (plan[i].kind == 'M') {
            uint64_t at = v[3];
            if (v[0] >= 0) at += *(uint64_t *)((char *)regs + v[0]);
            if (v[1] >= 0) at += *(uint64_t *)((char *)regs + v[1]) * v[2];
            if (v[4] == 4) at = (uint32_t)at;
            show((void *)(uintptr_t)at, v[5]);
        } else if (plan[i].kind == 'A') {
            uint64_t sum = *(uint64_t *)((char *)regs + v[0]) + v[1];
            show((char *)&sum, v[2]);
        } else {
            printf("- ");
        }
    }
    printf("\n");
}

void arm(void)
{
    long link, site;
    char kind, line[256];
    if (scanf("%ld\n", &link) != 1) exit(3);
    bias = (long)anchor - link;
    printf("%ld\n", bias);
    while (fgets(line, sizeof line, stdin)) {
        long long *v = plan[entries].v;
        if (sscanf(line, "S %ld", &site) == 1) plan[entries].site = site;
        sscanf(line, "%c %lld %lld %lld %lld %lld %lld", &kind, v, v+1, v+2, v+3, v+4, v+5);
        plan[entries++].kind = kind;
    }
    struct sigaction action = {.sa_sigaction = hit, .sa_flags = SA_SIGINFO};
    sigaction(SIGTRAP, &action, NULL);
    for (int i = 0; i < entries; i++) {
        if (plan[i].kind != 'S') continue;
        char *at = (char *)(plan[i].site + bias);
        char *page = (char *)((uintptr_t)at & ~4095UL);
        if (mprotect(page, 4096, PROT_READ | PROT_WRITE | PROT_EXEC)) exit(4);
        *at = (char)0xcc;
    }
}
"""

PROBES = r"""
#include <stdbool.h>
#include <sys/sdt.h>
#define NOINLINE __attribute__((noinline, noclone))

struct inner { int a; short b; char c; unsigned char d; long e; };
int g_int = -77; static int g_static = 1001; long g_long = -123456789; unsigned short g_us = 65000;
signed char g_chr = -5; bool g_bool = true; float g_flt = 1.5f; double g_dbl = -2.25;
int g_arr[8] = {10, 11, 12, 13, 14, 15, 16, 17}; char g_str[] = "abcdefgh"; char *g_ptr = g_str;
static struct inner s_arr[4] = {{1, 2, 3, 4, 5}, {-6, -7, -8, 200, -9}, {1, 2, 3, 4, 5}};
static int table[4][8] = {{0}, {1, 2, 3, 4, 5, 6, 7, 8}, {0}, {0}};
__thread int tls_int = 3;
volatile int sink;

NOINLINE void registers(int a, unsigned b, long c, short d, signed char e, bool f)
{
    STAP_PROBE6(t, registers, a, b, c, d, e, f);
    sink = a + (int)b;
}
NOINLINE void constants(void)
{
    STAP_PROBE6(t, constants, -1, 4000000000U, 123456789012345LL, (char)-128, (short)-2,
                18446744073709551615ULL);
}
NOINLINE void globals(void)
{
    STAP_PROBE4(t, globals, g_int, g_static, g_long, g_us);
    STAP_PROBE4(t, globals2, g_chr, g_bool, g_flt, g_dbl);
}
NOINLINE void arrays(int i)
{
    STAP_PROBE2(t, arrays, g_arr[3], g_arr[i]);
    STAP_PROBE2(t, chars, g_str[i], s_arr[1].d);
}
NOINLINE void rows(int i)
{
    STAP_PROBE2(t, rows, table[i][5], s_arr[i].b);
    table[i][5] = 6; s_arr[i].e++;
}
NOINLINE void members(struct inner *p, int i)
{
    STAP_PROBE5(t, members, p->a, p->b, p->c, p->d, p->e);
    STAP_PROBE2(t, indexed, p[i].a, p[i].c);
}
NOINLINE void floats(float f, double d)
{
    STAP_PROBE2(t, floats, f, d);
}
NOINLINE void stack(int i)
{
    volatile int local[8] = {20, 21, 22, 23, 24, 25, 26, 27};
    STAP_PROBE2(t, stack, local[2], local[i]);
}
NOINLINE void nine(int a, int b, int c, int d, int e, int f, int g, long h, char i)
{
    STAP_PROBE4(t, nine, f, g, h, i);
    sink = a + b + c + d + e;
}
NOINLINE void addresses(void)
{
    STAP_PROBE2(t, addresses, g_str, &g_int);
    sink = g_int + g_str[1];
}
NOINLINE void pointer(void)
{
    STAP_PROBE1(t, pointer, g_str);
}
NOINLINE void thread_local(void)
{
    STAP_PROBE1(t, tls, tls_int);
}
void run(void)
{
    registers(-3, 3000000000U, -1234567, -300, -7, true);
    constants(); globals(); arrays(5); rows(1); members(s_arr, 1); floats(0.5f, -1.75); stack(4);
    nine(1, 2, 3, 4, 5, -6, -7, -88888, 'x');
    addresses(); pointer(); thread_local();
}
"""

MAIN = "void arm(void); void run(void); int main(void) { arm(); run(); return 0; }\n"

VALUES: dict[str, list[int | float]] = {
    "registers": [-3, 3000000000, -1234567, -300, -7, 1],
    "constants": [-1, 4000000000, 123456789012345, -128, -2, 2**64 - 1],
    "globals": [-77, 1001, -123456789, 65000],
    "globals2": [-5, 1, 1.5, -2.25],
    "arrays": [13, 15],
    "chars": [ord("f"), 200],
    "rows": [6, -7],
    "members": [1, 2, 3, 4, 5],
    "indexed": [-6, -8],
    "floats": [0.5, -1.75],
    "stack": [22, 24],
    "nine": [-6, -7, -88888, ord("x")],
    "tls": [3],
}

WAYS = {
    "x86-64, -O0, PIE": ["-O0", "-fPIE", "-pie"],
    "x86-64, -O2, PIE": ["-O2", "-fPIE", "-pie"],
    "x86-64, -O2, no PIE": ["-O2", "-fno-pie", "-no-pie"],
    "x86-64, -O3, PIC": ["-O3", "-fPIC", "-pie"],
    "x86-64, -O2, shared library": ["-O2", "-fPIC", "-shared"],
    "i386, -O0, PIE": ["-m32", "-O0", "-fPIE", "-pie"],
    "i386, -O2, PIE": ["-m32", "-O2", "-fPIE", "-pie"],
    "i386, -O2, no PIE": ["-m32", "-O2", "-fno-pie", "-no-pie"],
    "i386, -Os, PIE": ["-m32", "-Os", "-fPIE", "-pie"],
    "i386, -O2, shared library": ["-m32", "-O2", "-fPIC", "-shared"],
}


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the sources, and a link to sys/sdt.h that 32-bit builds find too."""
    folder = tmp_path_factory.mktemp("argspec")
    (folder / "harness.c").write_text(HARNESS)
    (folder / "probes.c").write_text(PROBES)
    (folder / "main.c").write_text(MAIN)
    found = subprocess.run(
        [compiler("gcc"), "-M", "-E", "-x", "c", "-"],
        input="#include <sys/sdt.h>\n",
        capture_output=True,
        text=True,
        check=False,
    )
    headers = [word for word in found.stdout.split() if word.endswith("/sys/sdt.h")]
    if not headers:
        pytest.skip("needs sys/sdt.h: apt-get install systemtap-sdt-dev")
    (folder / "sys").symlink_to(headers[0].removesuffix("/sdt.h"))
    return folder


def compiler(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"needs {name}")
    return path


def build(sources: Path, name: str, options: list[str]) -> tuple[Path, Path]:
    """Compile; returns the file with the probes, and the program to run."""
    tag = "".join(options).replace("-", "_") + name
    program, library = sources / f"prog{tag}", sources / f"libprog{tag}.so"
    common = [compiler(name), "-g0", *options, "-idirafter", str(sources)]
    probes = ["harness.c", "probes.c"]
    if "-shared" in options:
        run_compiler([*common, *probes, "-o", str(library)], sources)
        narrow = ["-m32"] if "-m32" in options else []
        link = [f"./{library.name}", "-Wl,-rpath,$ORIGIN", "-o", str(program)]
        run_compiler([compiler(name), *narrow, "main.c", *link], sources)
        return library, program
    run_compiler([*common, *probes, "main.c", "-o", str(program)], sources)
    return program, program


def run_compiler(command: list[str], folder: Path) -> None:
    done = compile_in(folder, command, check=False)
    if done.returncode and "-m32" in command and "32" in done.stderr:
        pytest.skip("needs a compiler of 32-bit programs: apt-get install gcc-multilib")
    assert done.returncode == 0, done.stderr


def notes_of(elf: ElfFile) -> list[Note]:
    section = elf.section(".note.stapsdt")
    assert section is not None
    data = bytes(elf.contents(section))
    return list(parse_notes(data, bits=elf.bits, byteorder=elf.byteorder).notes)


def fetches_of(elf: ElfFile, note: Note) -> list[tuple[Operand, Location]]:
    machine = elf.machine_name
    arch = arch_of(machine)
    assert arch is not None
    with SymbolResolver(elf) as symbols:
        return [
            (
                operand,
                arch.fetch(
                    operand,
                    symbol_address=symbols.address,
                    location=note.location,
                    machine=machine,
                    elf_type=elf.type,
                ),
            )
            for operand in parse_arguments(note.args, machine)
        ]


def plan_line(fetch: Location) -> str:
    match fetch:
        case Register(offset, size):
            return f"R {offset} {size}"
        case Memory(base, index, scale, displacement, width, size):
            base, index = (-1 if slot is None else slot for slot in (base, index))
            return f"M {base} {index} {scale} {displacement} {width} {size}"
        case Address(base, displacement, size):
            return f"A {base} {displacement} {size}"
        case Constant():
            return "C"
        case Unreadable():
            return "U"


def value_of(operand: Operand, fetch: Location, shown: str) -> int | float | str:
    if isinstance(fetch, Unreadable):
        return fetch.reason
    if isinstance(fetch, Constant):
        return fetch.value
    data = bytes.fromhex(shown)
    assert len(data) == operand.size
    kind = arch_of("x86_64").value_type(operand).kind
    if kind is ValueClass.FLOAT:
        return float(struct.unpack("<f" if len(data) == 4 else "<d", data)[0])
    return int.from_bytes(data, "little", signed=kind is ValueClass.SIGNED)


def hits(
    elf: ElfFile, program: Path
) -> tuple[int, dict[str, list[tuple[Operand, int | float | str]]]]:
    """Run the program: load bias, and each probe's operands with the values found."""
    anchor = symbol_addresses(elf, "anchor")[0]
    sites = {note.location: (note, fetches_of(elf, note)) for note in notes_of(elf)}
    lines = [str(anchor)]
    for location, (_, fetches) in sites.items():
        lines += [f"S {location}", *(plan_line(fetch) for _, fetch in fetches)]
    run = subprocess.run(
        [str(program)],
        cwd=program.parent,  # where its library is
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    bias, *rows = run.stdout.splitlines()
    found = {}
    for row in rows:
        location, *shown = row.split()
        note, fetches = sites[int(location)]
        found[note.name] = [
            (operand, value_of(operand, fetch, text))
            for (operand, fetch), text in zip(fetches, shown, strict=True)
        ]
    return int(bias), found


MAY_BE_UNREADABLE = ("thread-local:", ".L", "holds a part of", "depends on where")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["gcc", "clang"])
def test_every_value_is_the_one_that_was_passed(sources: Path, name: str, way: str) -> None:
    library, program = build(sources, name, WAYS[way])
    with ElfFile(library) as elf:
        bias, found = hits(elf, program)
        mask = (1 << elf.bits) - 1
        targets = [bias + symbol_addresses(elf, symbol)[0] & mask for symbol in ("g_str", "g_int")]
    expected = VALUES | {"addresses": targets, "pointer": targets[:1]}
    unread = []
    assert found.keys() == expected.keys()
    for probe, values in found.items():
        assert len(values) == len(expected[probe])
        for (operand, value), right in zip(values, expected[probe], strict=True):
            assert operand.kind != "unknown"
            if isinstance(value, str):
                unread.append(value)
                assert any(reason in value for reason in MAY_BE_UNREADABLE), (probe, operand, value)
            else:
                assert value == right, (probe, operand)
    assert sum(map(len, found.values())) - len(unread) >= 42
