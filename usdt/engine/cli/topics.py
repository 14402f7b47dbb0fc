"""The texts of ``help probes`` and ``help items``: how to write what is traced."""

from __future__ import annotations

__all__ = ("TOPICS",)

_PROBES = """\
How a probe is named

  provider:name                  a USDT probe of the traced programs and libraries
  PATH:provider:name             a USDT probe of this file
  uprobe:libc:malloc             a function of a program or a library
  uprobe:./server:f+inlined      a function, and its inlined copies
  uprobe:./server:parser.c:211   a source line, with the variables in scope there
  kprobe:do_exit                 a function of the kernel; with kprobe, do_exit is enough
  tracepoint:sched:sched_switch  a tracepoint
  rawtp:sched_switch             a raw tracepoint
  syscall:openat                 a system call

In names, * ? and […] are wildcards, as in file names. "Double quotes" take everything literally.
Put each probe in single quotes, so that the shell leaves it to the command:

  usdt trace -p 1234 'postgresql:query__start(str(arg0))'

What is there: usdt list FILE, usdt list -p PID, usdt list libc 'uprobe:mall*',
kprobe list 'tracepoint:sched:*'. What stands in the parentheses: help items.
"""

_ITEMS = """\
What stands in the parentheses of a probe: PROBE(ITEM, …)

Without items, every argument is shown. An item that is a comparison decides whether the hit counts;
every other item is a value that is shown.

  arg0, NAME                     an argument, by number or by name
  arg1 * 2 + 1, (int)arg0        a C expression
  *(int *)(arg0 + 8), req->path  memory; members, where types are known
  str(arg0), str(arg0, 16)       the string at an address, at most 16 bytes of it
  buf(arg0, 16), hex(arg0)       bytes at an address; a number in hexadecimal
  usym(arg0), ksym(arg0)         an address as a symbol, of the process or of the kernel
  reg(rdi)                       a register of the CPU
  ustack(5), kstack(5)           the first five frames of a stack
  pystack, pystack(5)            the Python functions of the thread
  return, duration               the result of a function, and the time that it took
  out(EXPR)                      EXPR when the function returns: what it wrote
  args                           all arguments
  pid tid uid gid cpu comm ts cgroup func ppid pcomm caller ustack kstack pystack
  container pod unit cgroup_path

  arg1 > 5 && arg2 != 0          conditions, with the operators of C
  comm == "nginx"                strings stand in double quotes
  str(arg0) == "GET /*"          * in a string matches any bytes
  contains(str(arg0), "orders")
  return == -ENOENT              errors, flags and enumerators by name

The same expressions are keys: usdt count -p 1234 myapp:request --by 'comm, str(arg0)'
"""

TOPICS = {"probes": _PROBES, "items": _ITEMS}
