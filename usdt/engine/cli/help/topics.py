"""The topics of ``help``: two short texts, and the pages of docs/ (``usdt/docs`` is a link)."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING

import click

from usdt.base.errors import TargetError
from usdt.base.text import closest, printable

if TYPE_CHECKING:
    from collections.abc import Collection
    from importlib.resources.abc import Traversable

__all__ = ("TOPICS", "show_topic", "topics")

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

_LIST = "topics"
_SUFFIX = ".md"


def show_topic(name: str, ctx: click.Context, commands: Collection[str]) -> None:
    """Print a topic, through a pager if it is a page; ``topics`` lists them.

    Args:
        name: the topic; ``.md`` may follow the name of a page.
        ctx: of the command, for its name and its usage errors.
        commands: names that ``help`` takes for commands: a page of such a name needs its ``.md``.
    """
    if name in TOPICS:
        click.echo(TOPICS[name], nl=False)
        return
    if name == _LIST:
        _list_topics(commands, ctx.info_name)
        return
    pages = _pages()
    page = pages.get(name.removesuffix(_SUFFIX))
    if page is None:
        near = closest(name, [*TOPICS, *pages, *commands])
        hint = f" Did you mean {near!r}?" if near else ""
        list_them = f"List topics with: {ctx.info_name} help {_LIST}"
        ctx.fail(f"No such command or topic {printable(name)!r}.{hint} {list_them}")
    click.echo_via_pager(page.read_text(encoding="utf-8"))


def topics(commands: Collection[str]) -> dict[str, str]:
    """Return each topic and its title; a page with the name of a command is followed by ``.md``."""
    rows = {name: text.partition("\n")[0] for name, text in TOPICS.items()}
    for name, page in _pages().items():
        title = page.read_text(encoding="utf-8").partition("\n")[0]
        rows[f"{name}{_SUFFIX if name in commands else ''}"] = title.removeprefix("# ")
    return rows


def _list_topics(commands: Collection[str], program: str | None) -> None:
    rows = topics(commands)
    width = max(map(len, rows))
    for name, title in rows.items():
        click.echo(f"{name.ljust(width)}  {title}")
    click.echo(f"show one with: {program} help TOPIC", err=True)


def _pages() -> dict[str, Traversable]:
    # Name → page; in a ZIP archive if the package is in one.
    folder = files("usdt") / "docs"
    found = {page.name: page for page in _files_below(folder)} if folder.is_dir() else {}
    pages = {
        name.removesuffix(_SUFFIX): page
        for name, page in sorted(found.items())
        if name.endswith(_SUFFIX)
    }
    if not pages:
        raise TargetError(f"{folder}: no pages here; install the package again")
    return pages


def _files_below(folder: Traversable) -> list[Traversable]:
    found = []
    for entry in folder.iterdir():
        found += _files_below(entry) if entry.is_dir() else [entry]
    return found
