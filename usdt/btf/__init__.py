"""BTF, the kernel's description of its own types: reading, finding, declaring in C.

``files.kernel_btf()`` and ``files.load(path)`` make a :class:`~usdt.btf.reader.Btf`; nothing is
decoded before it is asked for.
"""
