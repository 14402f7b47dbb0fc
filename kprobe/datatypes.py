"""``kprobe.types()``: the kernel's types by name, and values of them as text.

``kprobe.types()["struct sk_buff"].render(data)`` returns an ``sk_buff`` as text, ``value()`` as an
object for JSON, and ``line()`` as one short line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from usdt.btf.dump.c_dump import definition
from usdt.btf.lookup import find_type
from usdt.btf.reader import Btf
from usdt.btf.values.compact import CompactFormatter
from usdt.btf.values.libbpf import render_libbpf
from usdt.btf.values.options import Options
from usdt.btf.values.read_plan import ReadPlans
from usdt.btf.values.renderer import Renderer

if TYPE_CHECKING:
    from usdt.btf.values.options import Rendered

__all__ = ("DataType", "Types", "types")


class DataType:
    """A type of the kernel or of a file; get it from :func:`types`.

    Attributes:
        id: its ID in the BTF.

    Raises:
        BtfError: from its methods: the type has no size, is nested too deeply or too large.

    Examples:
        >>> head = kprobe.types()["struct list_head"]
        >>> head.size, head.value(bytes(16))
        (16, {'next': '0x0', 'prev': '0x0'})
    """

    def __init__(self, owner: Types, number: int) -> None:
        self._owner = owner
        self.id = number

    @property
    def size(self) -> int:
        """The size of a value in bytes.

        Raises:
            BtfError: the type has no size.
        """
        return self._owner.btf.size_of(self.id)

    @property
    def declaration(self) -> str:
        """The type's definition in C."""
        return definition(self._owner.btf, self.id)

    def render(self, data: bytes, *, compat: str = "", **options: Any) -> str:
        """Return a value as text, up to the end of the data.

        Options are those of ``usdt.btf.values.Options``; ``compat="libbpf"`` gives libbpf's text.

        Raises:
            BtfError: the type is nested too deeply, or too large.
            TypeError: an option does not exist.
            ValueError: ``compat`` is neither "" nor "libbpf".
        """
        return self.rendered(data, compat=compat, **options).text

    def rendered(self, data: bytes, *, compat: str = "", **options: Any) -> Rendered:
        """Return a value as text, with its size or the error; arguments as for render().

        Raises:
            BtfError: the type is nested too deeply, or too large.
            TypeError: an option does not exist.
            ValueError: ``compat`` is neither "" nor "libbpf".
        """
        chosen = Options(**options)
        if compat == "libbpf":
            return render_libbpf(self._owner.btf, self.id, bytes(data), chosen)
        if compat:
            raise ValueError(f"compat={compat!r}: expected 'libbpf' or ''")
        return self._owner.renderer(chosen).render(self.id, data)

    def value(self, data: bytes) -> Any:
        """Return a value as dicts, lists, strings and numbers, for JSON.

        Raises:
            BtfError: the type is nested too deeply, or too large.
        """
        return self._owner.values.read(self.id, bytes(data))

    def line(self, data: bytes) -> str:
        """Return a value as one short line without members that are zero.

        Raises:
            BtfError: the type is nested too deeply, or too large.
        """
        return self._owner.concise.line(self.id, bytes(data))


class Types:
    """The types of one BTF by name or ID; get them from :func:`types`.

    Attributes:
        btf: the :class:`usdt.bpf.BTF` that has the types.

    Raises:
        BtfError: ``types[name]``: no type has that name; the message names the closest one.

    Examples:
        >>> types = kprobe.types()
        >>> types["struct sock"].size, types["unsigned int"].size
        (760, 4)
    """

    def __init__(self, btf: Btf) -> None:
        self.btf = btf
        self.values = ReadPlans(btf)
        self.concise = CompactFormatter(btf)
        self._renderers: dict[Options, Renderer] = {}

    def __getitem__(self, name: str | int) -> DataType:
        """Return a type by its name in C or its ID.

        Raises:
            BtfError: no type has that name; the message names the closest one.
        """
        return DataType(self, find_type(self.btf, str(name)))

    def renderer(self, options: Options) -> Renderer:
        """Return the renderer with these options; it keeps the functions it generated."""
        found = self._renderers.get(options)
        if found is None:
            found = self._renderers[options] = Renderer(self.btf, options)
        return found


def types(path: str | None = None, *, base: str | None = None) -> Types:
    """Return the running kernel's types, or those of a file.

    Args:
        path: a file with BTF; by default the running kernel's BTF.
        base: a file with the BTF that split BTF continues.

    Raises:
        BtfError: the file has no BTF, or it is damaged.
        NotSupported: the kernel has no BTF.

    Examples:
        >>> print(kprobe.types()["struct list_head"].declaration)
        struct list_head {
            struct list_head *next;
            struct list_head *prev;
        };
    """
    if path is None:
        return Types(Btf.from_kernel())
    return Types(Btf.from_file(path, base=Btf.from_file(base) if base else None))
