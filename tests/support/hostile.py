"""Texts of traced processes that try to leave the place where a page shows them."""

from __future__ import annotations

__all__ = ("HOSTILE",)

#: Commands, functions, paths, arguments, hosts: any text may be any of these.
HOSTILE = (
    "<script>document.title = 'injected'</script>",
    "</script><script>document.title = 'injected'</script>",
    "<!--<script>",
    "--><img src=x onerror=\"document.title='injected'\">",
    "\"'><svg onload=document.title='injected'>",
    "]]><x/>",
    "&lt;b&gt;&amp;amp;",
    "javascript:alert(1)",
    "${document.title='injected'} {{7*7}} `x`",
    "a;b\nc 7\r\n\t",
    "\u202egnp.exe\u2066\u200f",
    "\u2028\u2029\ufeff",
    "\x00\x1b[2J\x07",
    "\udcff\ud800",
    "__proto__",
    "constructor",
    "\\u003c/script>\\",
    "http://example.com/",
    "x" * 100_000,
    "",
)
