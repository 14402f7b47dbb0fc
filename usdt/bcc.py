"""Attach programs of bcc to USDT probes: all sites, semaphores by the kernel, cookies.

bcc's own ``USDT`` class generates code for each argument when it compiles. Here, a program reads
arguments at run time with ``bpf_usdt_arg()``, and :class:`usdt.libbpf.manager.Manager` attaches
it::

    from usdt.bcc import attach, load

    program = load('''
        BPF_RINGBUF_OUTPUT(events, 8);
        int on_gc(struct pt_regs *ctx) {
            long generation;
            if (bpf_usdt_arg(ctx, 0, &generation))
                return 0;
            events.ringbuf_output(&generation, sizeof(generation), 0);
            return 0;
        }
    ''')
    with attach(program, "on_gc", "/usr/bin/python3.11", "python", "gc__start", cookie=7):
        ...

C programs can call these functions, as in libbpf's ``usdt.bpf.h``:

    int bpf_usdt_arg(struct pt_regs *ctx, u64 number, long *result)
        read argument 0 to 11; return 0, or -ENOENT (no such argument), -EINVAL (it cannot be
        read), -ESRCH (not attached by this module) or -EFAULT, with *result = 0
    int bpf_usdt_arg_cnt(struct pt_regs *ctx)
    int bpf_usdt_arg_size(struct pt_regs *ctx, u64 number)       its bytes, or an error as above
    u64 bpf_usdt_cookie(struct pt_regs *ctx)

Needs bcc (Debian's package python3-bpfcc) and kernel headers.
"""

from __future__ import annotations

import contextlib
import os
import weakref
from importlib import import_module
from typing import TYPE_CHECKING, Any

from usdt.base.errors import TargetError, TracingError
from usdt.bpf import features
from usdt.bpf._uapi import AttachType
from usdt.libbpf.manager import Manager

if TYPE_CHECKING:
    from usdt.libbpf.manager import Attachment

__all__ = ("attach", "header", "kernel_headers", "load")

_SPECS = "__bpf_usdt_specs"
_IPS = "__bpf_usdt_ip_to_spec_id"

# libbpf's newer layout: see usdt.libbpf.usdt_spec. bcc compiles for this machine, whichever its
# byte order.
_HEADER = """\
#define USDT_HAS_COOKIES %(cookies)d
#define USDT_MOST 12
enum usdt_kind { USDT_CONST, USDT_REG, USDT_REG_DEREF, USDT_SIB };

struct usdt_argument {
    u64 number;
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    u8 kind;
    u8 padding;
    u16 index : 12;
    u16 shift : 4;
    u8 reserved;
#else
    u8 reserved;
    u8 padding;
    u16 index : 12;
    u16 shift : 4;
    u8 kind;
#endif
    s16 base;
    u8 is_signed;
    u8 unused_bits;
};

struct usdt_site {
    struct usdt_argument arguments[USDT_MOST];
    u64 cookie;
    s16 count;
};

BPF_ARRAY(%(specs_map)s, struct usdt_site, %(specs)d);
BPF_HASH(%(ips_map)s, u64, u32, %(addresses)d);

static u64 (*usdt_attach_cookie)(void *ctx) = (void *)174;
static int (*usdt_read_kernel)(void *to, u32 size, const void *from) = (void *)113;
static int (*usdt_read_user)(void *to, u32 size, const void *from) = (void *)112;

static __always_inline struct usdt_site *usdt_site_of(struct pt_regs *ctx)
{
#if USDT_HAS_COOKIES
    int id = usdt_attach_cookie(ctx);
#else
    u64 address = PT_REGS_IP(ctx);
    u32 *found = %(ips_map)s.lookup(&address);
    if (!found)
        return 0;
    int id = *found;
#endif
    return %(specs_map)s.lookup(&id);
}

static __always_inline int bpf_usdt_arg_cnt(struct pt_regs *ctx)
{
    struct usdt_site *site = usdt_site_of(ctx);
    return site ? site->count : -3;
}

static __always_inline u64 bpf_usdt_cookie(struct pt_regs *ctx)
{
    struct usdt_site *site = usdt_site_of(ctx);
    return site ? site->cookie : 0;
}

static __always_inline int bpf_usdt_arg_size(struct pt_regs *ctx, u64 number)
{
    struct usdt_site *site = usdt_site_of(ctx);
    if (!site)
        return -3;
    if (number >= USDT_MOST || (s64)number >= site->count)
        return -2;
    struct usdt_argument *argument = &site->arguments[number];
    return argument->kind > USDT_SIB ? -22 : (64 - argument->unused_bits) >> 3;
}

static __always_inline int usdt_fetch(void *ctx, struct usdt_argument *argument, u64 *value)
{
    u64 index = 0;
    int error;

    *value = argument->number;
    if (argument->kind == USDT_CONST)
        return 0;
    if (argument->kind > USDT_SIB)
        return -22;
    error = usdt_read_kernel(value, 8, ctx + argument->base);
    if (error || argument->kind == USDT_REG)
        return error;
    if (argument->kind == USDT_SIB)
        error = usdt_read_kernel(&index, 8, ctx + argument->index);
    if (error)
        return error;
    *value += (index << argument->shift) + argument->number;
    error = usdt_read_user(value, 8, (void *)*value);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    *value >>= argument->unused_bits;
#endif
    return error;
}

static __always_inline int bpf_usdt_arg(struct pt_regs *ctx, u64 number, long *result)
{
    struct usdt_site *site = usdt_site_of(ctx);
    u64 value = 0;
    int error;

    *result = 0;
    if (!site)
        return -3;
    if (number >= USDT_MOST || (s64)number >= site->count)
        return -2;
    struct usdt_argument *argument = &site->arguments[number];
    error = usdt_fetch(ctx, argument, &value);
    if (error)
        return error;
    value <<= argument->unused_bits;
    *result = argument->is_signed ? (s64)value >> argument->unused_bits
                                  : value >> argument->unused_bits;
    return 0;
}
#line 1
"""

_managers: weakref.WeakKeyDictionary[Any, Manager] = weakref.WeakKeyDictionary()


def header(*, specs: int = 256, addresses: int = 1024) -> str:
    """Return the C text that must precede a program for bcc; :func:`load` adds it.

    Args:
        specs: number of different argument specs that all attached sites may have.
        addresses: number of sites that can be attached on kernels without BPF cookies (before
            5.15).

    Raises:
        SyscallError: the process is not privileged.
    """
    words = {"specs": specs, "addresses": addresses, "specs_map": _SPECS, "ips_map": _IPS}
    return _HEADER % (words | {"cookies": features.have_cookies()})


def kernel_headers() -> tuple[str, list[str]]:
    """Find kernel headers that bcc can compile with.

    Headers of the running kernel are preferred. Others work as well: the C text of this module
    depends only on the kernel's ABI.

    Returns:
        A value for BCC_KERNEL_SOURCE, or "" if bcc finds the headers itself; and compiler flags.

    Raises:
        TracingError: there are no kernel headers.
    """
    release = os.uname().release
    own = os.path.join("/lib/modules", release, "build")  # noqa: PTH118 - text
    given = "BCC_KERNEL_SOURCE" in os.environ
    if given or os.path.isdir(own) or os.path.exists("/sys/kernel/kheaders.tar.xz"):  # noqa: PTH110, PTH112
        return "", []
    for build, source in _debian_headers():
        parts = ("arch/x86/include/generated", "include", "arch/x86/include/generated/uapi")
        flags = [f"-I{build}/{part}" for part in (*parts, "include/generated/uapi")]
        return source, flags
    raise TracingError(
        f"no kernel headers for bcc, neither {own} nor others: install linux-headers-{release} "
        "(Debian: apt-get install linux-headers-amd64), or set BCC_KERNEL_SOURCE"
    )


def _debian_headers() -> list[tuple[str, str]]:
    # (headers of a configuration, headers common to all) in /usr/src, newest first.
    import re  # noqa: PLC0415 - bcc costs a hundred times as much

    found = []
    with contextlib.suppress(OSError):
        for name in os.listdir("/usr/src"):  # noqa: PTH208
            match = re.fullmatch(r"linux-headers-([\d.]+-\d+)-amd64", name)
            source = f"/usr/src/linux-headers-{match[1]}-common" if match else ""
            if match and os.path.isdir(source):  # noqa: PTH112
                order = [int(number) for number in re.findall(r"\d+", match[1])]
                found.append((order, f"/usr/src/{name}", source))
    return [(build, source) for _, build, source in sorted(found, reverse=True)]


def load(text: str, *, specs: int = 256, cflags: list[str] | None = None, **options: Any) -> Any:
    """Compile a C program that may use the functions of this module; return a ``bcc.BPF`` object.

    Args:
        text: the program, without the header.
        specs: as for :func:`header`.
        cflags: more flags for the compiler.
        options: further arguments of ``bcc.BPF``.

    Raises:
        TracingError: bcc or kernel headers are missing; the message names the package.
        Exception: from bcc, above all for C that does not compile.

    Examples:
        >>> program = usdt.bcc.load("int on_gc(struct pt_regs *ctx) { return 0; }")
    """
    try:
        bcc = import_module("bcc")
    except ImportError as err:
        raise TracingError(
            "no Python module bcc: apt-get install python3-bpfcc, which is for /usr/bin/python3"
        ) from err
    source, flags = kernel_headers()
    if source:
        os.environ["BCC_KERNEL_SOURCE"] = source  # read by bcc when it compiles
    try:
        return bcc.BPF(text=header(specs=specs) + text, cflags=flags + (cflags or []), **options)
    finally:
        if source:
            del os.environ["BCC_KERNEL_SOURCE"]


def attach(
    bpf: Any,
    function: str,
    target: str | os.PathLike[str] | None,
    provider: str,
    name: str,
    *,
    pid: int = 0,
    cookie: int = 0,
    strict: bool = False,
) -> Attachment:
    """Attach a function of a ``bcc.BPF`` object to every site of a probe.

    Args:
        bpf: from :func:`load`, or compiled from a text that begins with :func:`header`.
        function: name of the function.
        target: the file, as for :meth:`usdt.libbpf.manager.Manager.attach`.
        provider: provider of the probe, without wildcards.
        name: name of the probe, without wildcards.
        pid: attach only in this process; 0 is all processes.
        cookie: value that ``bpf_usdt_cookie()`` returns.
        strict: attach all sites or none.

    Raises:
        TargetError: the object has no such function, or lacks the maps of the header.
        TracingError: see :meth:`usdt.libbpf.manager.Manager.attach`.

    Examples:
        >>> with usdt.bcc.attach(program, "on_gc", "python3.11", "python", "gc__start") as gc:
        ...     gc.sites
        1
    """
    options: dict[str, Any] = {"pid": pid, "cookie": cookie, "strict": strict}
    loaded = _function(bpf, function)
    return _manager(bpf).attach(loaded, target, provider, name, **options)


def _manager(bpf: Any) -> Manager:
    # One per object: it tracks which specs are in use.
    if bpf not in _managers:
        try:
            specs, ips = bpf[_SPECS], bpf[_IPS]
        except KeyError as err:
            raise TargetError(
                f"the BPF object has no map {_SPECS}: compile it with usdt.bcc.load(), or put "
                "usdt.bcc.header() before its text"
            ) from err
        _managers[bpf] = manager = Manager(specs, ips)
        weakref.finalize(bpf, manager.close)
    return _managers[bpf]


def _function(bpf: Any, name: str) -> Any:
    known = bpf.funcs.get(name.encode())
    if known is not None:
        return known
    if name.encode() not in _functions(bpf):
        names = ", ".join(sorted(found.decode() for found in _functions(bpf))) or "none"
        raise TargetError(f"the BPF object has no function {name}; it has {names}")
    if features.have_uprobe_multi():
        with contextlib.suppress(TypeError):  # bcc before 0.26 does not take the attach type
            return bpf.load_func(name, bpf.KPROBE, attach_type=int(AttachType.TRACE_UPROBE_MULTI))
    return bpf.load_func(name, bpf.KPROBE)


def _functions(bpf: Any) -> list[bytes]:
    lib = import_module("bcc").lib
    number = lib.bpf_num_functions(bpf.module)
    return [lib.bpf_function_name(bpf.module, index) for index in range(number)]
