"""BTF, the kernel's description of its own types: read, look up, print as C or JSON, write.

``Btf.from_kernel()`` and ``Btf.from_file(path)`` return a :class:`~usdt.btf.reader.Btf`, which
decodes a type when it is first asked for.
"""
