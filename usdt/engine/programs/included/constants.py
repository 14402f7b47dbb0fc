"""Constants that scripts take from headers: macros, which no type information has.

Enumerations are not here: the kernel's type information has them, as ``TASK_COMM_LEN`` and
``IPPROTO_TCP``. Those that it may lack, because old kernels have macros, are here as well.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from usdt.engine.compiler import uapi_names
from usdt.engine.language.error_numbers import ERROR_NUMBERS
from usdt.engine.output.socket_addresses import FAMILIES

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ("constants",)

# include/net/tcp_states.h
_TCP_STATES = (
    "ESTABLISHED SYN_SENT SYN_RECV FIN_WAIT1 FIN_WAIT2 TIME_WAIT CLOSE CLOSE_WAIT LAST_ACK LISTEN "
    "CLOSING NEW_SYN_RECV"
)
_OTHERS = {
    # include/linux/sched.h: the state of a task
    "TASK_RUNNING": 0,
    "TASK_INTERRUPTIBLE": 1,
    "TASK_UNINTERRUPTIBLE": 2,
    # include/linux/sched.h: flags of a task
    "PF_EXITING": 0x4,
    "PF_KTHREAD": 0x200000,
    # include/uapi/linux/in.h
    "IPPROTO_IP": 0,
    "IPPROTO_ICMP": 1,
    "IPPROTO_TCP": 6,
    "IPPROTO_UDP": 17,
    "IPPROTO_IPV6": 41,
    "IPPROTO_ICMPV6": 58,
    "IPPROTO_RAW": 255,
    # include/uapi/linux/if_ether.h
    "ETH_P_IP": 0x0800,
    "ETH_P_ARP": 0x0806,
    "ETH_P_8021Q": 0x8100,
    "ETH_P_IPV6": 0x86DD,
    "ETH_ALEN": 6,
    # include/uapi/linux/time.h
    "CLOCK_REALTIME": 0,
    "CLOCK_MONOTONIC": 1,
    "CLOCK_PROCESS_CPUTIME_ID": 2,
    "CLOCK_THREAD_CPUTIME_ID": 3,
    "CLOCK_MONOTONIC_RAW": 4,
    "CLOCK_BOOTTIME": 7,
    "CLOCK_TAI": 11,
    # include/vdso/time64.h
    "MSEC_PER_SEC": 1000,
    "USEC_PER_MSEC": 1000,
    "NSEC_PER_USEC": 1000,
    "NSEC_PER_MSEC": 1_000_000,
    "USEC_PER_SEC": 1_000_000,
    "NSEC_PER_SEC": 1_000_000_000,
    # include/uapi/linux/limits.h, if.h, sched.h
    "NAME_MAX": 255,
    "PATH_MAX": 4096,
    "IFNAMSIZ": 16,
    "TASK_COMM_LEN": 16,
    # include/linux/kdev_t.h
    "MINORBITS": 20,
    "MINORMASK": (1 << 20) - 1,
    # include/linux/limits.h, vdso/limits.h
    "INT_MAX": (1 << 31) - 1,
    "UINT_MAX": (1 << 32) - 1,
    "LONG_MAX": (1 << 63) - 1,
    "ULONG_MAX": (1 << 64) - 1,
    "AT_FDCWD": -100,
    "NULL": 0,
}


@functools.cache
def constants() -> Mapping[str, int]:
    """Return the names and values of constants of headers that are macros."""
    pairs = (
        *uapi_names.OPEN_MODES,
        *uapi_names.MAP_SHARING,
        *uapi_names.SOCKET_TYPES,
        *uapi_names.SEEK_ORIGINS,
        *uapi_names.EPOLL_OPERATIONS,
        *FAMILIES.items(),
    )
    return {
        **{name: value for value, name in pairs},
        **{name.replace("AF_", "PF_", 1): value for value, name in FAMILIES.items()},
        **{f"TCP_{name}": state for state, name in enumerate(_TCP_STATES.split(), 1)},
        **uapi_names.OPEN_FLAGS,
        **uapi_names.ACCESS_MODES,
        **uapi_names.PROTECTIONS,
        **uapi_names.MAP_FLAGS,
        **uapi_names.PATH_FLAGS,
        **uapi_names.CLONE_FLAGS,
        **uapi_names.SOCKET_FLAGS,
        **uapi_names.MESSAGE_FLAGS,
        **uapi_names.SIGNALS,
        **uapi_names.FILE_MODES,
        **ERROR_NUMBERS,
        **_OTHERS,
        "MAP_ANON": uapi_names.MAP_FLAGS["MAP_ANONYMOUS"],
        "O_NDELAY": uapi_names.OPEN_FLAGS["O_NONBLOCK"],
        "O_ACCMODE": 3,
    }
