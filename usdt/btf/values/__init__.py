"""Typed data as text: any value of any BTF type, as ``btf_dump__dump_type_data()`` shows it.

``render(btf, type_id, data, Options(...))`` makes a :class:`Rendered`; a :class:`Renderer` keeps
what it compiled, for many values of a type. ``render_libbpf()`` is libbpf to the byte, with its
bugs. ``values`` has the JSON form and the one for one-line events.
"""

from __future__ import annotations

from usdt.btf.values.libbpf import render_libbpf
from usdt.btf.values.options import Options, Rendered
from usdt.btf.values.renderer import Renderer, render

__all__ = ("Options", "Rendered", "Renderer", "render", "render_libbpf")
