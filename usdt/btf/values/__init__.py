"""Typed data as text: any value of any BTF type, as ``btf_dump__dump_type_data()`` shows it.

``render(btf, type_id, data, Options(...))`` makes a :class:`Rendered`; a :class:`Renderer` keeps
what it compiled, for many values of a type. ``render_libbpf()`` is libbpf to the byte, with its
bugs. ``values`` has the JSON form and the one for one-line events.

Names are loaded when they are first used: modules that need only types do not load the renderers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.base.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from usdt.btf.values.libbpf import render_libbpf
    from usdt.btf.values.options import Options, Rendered
    from usdt.btf.values.renderer import Renderer, render

__all__ = ("Options", "Rendered", "Renderer", "render", "render_libbpf")

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "usdt.btf.values.libbpf": ("render_libbpf",),
        "usdt.btf.values.options": ("Options", "Rendered"),
        "usdt.btf.values.renderer": ("Renderer", "render"),
    },
)
