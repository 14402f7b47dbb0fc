"""``kprobe.types()``: the kernel's types by name, and values of them as text.

``kprobe.types()["struct sk_buff"].render(data)`` is an ``sk_buff`` as text; ``value()`` makes an
object for JSON of it, ``line()`` one short line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from usdt.btf.c_dump import definition
from usdt.btf.lookup import find_type
from usdt.btf.reader import Btf
from usdt.btf.values.compact import CompactFormatter
from usdt.btf.values.libbpf import render_libbpf
from usdt.btf.values.options import Options
from usdt.btf.values.renderer import Renderer
from usdt.btf.values.value_reader import ValueReader

if TYPE_CHECKING:
    from usdt.btf.values.options import Rendered

__all__ = ("DataType", "Types", "types")


class DataType:
    """A type; made by :class:`Types`.

    Attributes:
        id: its number in the BTF.

    Raises:
        BtfError: from its methods: values of it have no size, or the type is absurd.

    Example:
        >>> head = kprobe.types()["struct list_head"]
        >>> head.size, head.value(bytes(16))
        (16, {'next': '0x0', 'prev': '0x0'})
    """

    def __init__(self, owner: Types, number: int) -> None:
        self._owner = owner
        self.id = number

    @property
    def size(self) -> int:
        """Bytes of a value.

        Raises:
            BtfError: values of it have no size.
        """
        return self._owner.btf.size_of(self.id)

    @property
    def declaration(self) -> str:
        """Its definition in C."""
        return definition(self._owner.btf, self.id)

    def render(self, data: bytes, *, compat: str = "", **options: Any) -> str:
        """A value as text, as far as there is data; options as in ``usdt.btf.values.Options``.

        Raises:
            BtfError: the type is absurd.
            TypeError: no such option.
            ValueError: ``compat`` is neither "" nor "libbpf".
        """
        return self.rendered(data, compat=compat, **options).text

    def rendered(self, data: bytes, *, compat: str = "", **options: Any) -> Rendered:
        """The same, with the size or the error.

        Raises:
            BtfError: the type is absurd.
            TypeError: no such option.
            ValueError: ``compat`` is neither "" nor "libbpf".
        """
        chosen = Options(**options)
        if compat == "libbpf":
            return render_libbpf(self._owner.btf, self.id, bytes(data), chosen)
        if compat:
            raise ValueError(f"compat={compat!r}; it is 'libbpf' or nothing")
        return self._owner.renderer(chosen).render(self.id, data)

    def value(self, data: bytes) -> Any:
        """A value as dicts, lists, strings and numbers, fit for JSON.

        Raises:
            BtfError: the type is absurd.
        """
        return self._owner.values.read(self.id, bytes(data))

    def line(self, data: bytes) -> str:
        """A value as one short line: what is zero is left out.

        Raises:
            BtfError: the type is absurd.
        """
        return self._owner.concise.line(self.id, bytes(data))


class Types:
    """The types of one BTF by name or ID, as :func:`types` makes them.

    Attributes:
        btf: what they are read from, a :class:`usdt.bpf.BTF`.

    Raises:
        BtfError: ``types[name]``: there is none of that name; the message names the nearest.

    Example:
        >>> types = kprobe.types()
        >>> types["struct sock"].size, types["unsigned int"].size
        (760, 4)
    """

    def __init__(self, btf: Btf) -> None:
        self.btf = btf
        self.values = ValueReader(btf)
        self.concise = CompactFormatter(btf)
        self._renderers: dict[Options, Renderer] = {}

    def __getitem__(self, name: str | int) -> DataType:
        """A type.

        Raises:
            BtfError: there is none; the message names the nearest.
        """
        return DataType(self, find_type(self.btf, str(name)))

    def renderer(self, options: Options) -> Renderer:
        """The renderer with some options; what it compiled is kept."""
        found = self._renderers.get(options)
        if found is None:
            found = self._renderers[options] = Renderer(self.btf, options)
        return found


def types(path: str | None = None, *, base: str | None = None) -> Types:
    """The running kernel's types, or those of a file (and what that continues).

    Raises:
        BtfError: there is no BTF in the file, or it is damaged.
        NotSupported: the kernel has none.

    Example:
        >>> print(kprobe.types()["struct list_head"].declaration)
        struct list_head {
            struct list_head *next;
            struct list_head *prev;
        };
    """
    if path is None:
        return Types(Btf.from_kernel())
    return Types(Btf.from_file(path, base=Btf.from_file(base) if base else None))
