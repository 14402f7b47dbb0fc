"""Values of any BTF type as text, JSON or Python objects.

read_plan, batched_reads   what is at which offset; reads of generated code; ``scalars``: one number
renderer, tree_codegen     a tree of lines, laid out as libbpf's ``btf_dump__dump_type_data()`` does
compact, json_codegen      one short line for events; JSON text and Python objects
libbpf, options            the same text as libbpf, byte for byte, including its errors
type_snapshot              a type as a value, for plans and recordings

A :class:`Renderer` keeps the functions it generated: use one for many values of a type.
Names are loaded on first use: modules that need only types do not load the renderers.
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
