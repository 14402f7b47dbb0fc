"""Probes on kernel functions: ``kprobe:[MODULE:]FUNCTION[+OFFSET](ITEMS)`` and ``fentry:``.

attach       one probe → attach points, method by method; attach_methods: those this kernel has
lookup       a probe's text → functions; prototypes: functions with their BTF prototypes
symbols      /proc/kallsyms and available_filter_functions; blacklist: kprobes' blacklist
arguments    prototypes → arguments and their locations; abi: argument slots of a call
"""
