"""Probes on kernel functions: ``kprobe:[MODULE:]FUNCTION[+OFFSET](ITEMS)`` and ``fentry:``.

Variables and types of the kernel serve its other probes too.

attach       one probe → attach points, method by method; attach_methods: those this kernel has
hit_order    the order of attaching, by which probes at one place fire as given
lookup       a probe's text → functions; prototypes: functions with their BTF prototypes
symbols      /proc/kallsyms and available_filter_functions; blacklist: kprobes' blacklist
variables    variables of the kernel by name → arguments; kernel_types: types for items
arguments    prototypes → arguments and their locations; abi: argument slots of a call
"""
