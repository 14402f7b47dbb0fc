"""Values with the types of BTF: members, elements, casts; the kernel's types, or a program's."""
