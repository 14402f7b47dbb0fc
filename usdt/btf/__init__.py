"""BTF, the kernel's description of its own types: read, look up, print as C or JSON, write.

``Btf.from_kernel()`` and ``Btf.from_file(path)`` return a :class:`~usdt.btf.reader.Btf`, which
decodes a type when it is first asked for.

format, types, decode     the format; one record per kind; words → records
files, reader, lookup     files and sections → ``Btf``; types by their C names
positions                 where each record begins; the kernel's are kept until the next boot
kernel_files              where the kernel's types are; ``elf_sections``: sections of its image
kernel_offsets            where members of a structure are, without finding all types first
tagged_union              structures whose discriminant selects a member
writer, minimize          records → bytes; the types of one value as BTF of their own
dump/                     types as text: declarations and headers in C, bpftool's output
values/                   data of these types as text
"""
