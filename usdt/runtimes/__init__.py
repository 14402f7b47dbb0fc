"""Language runtimes: what their probes and stacks need that no file says.

``quirks`` has the probes that do not fire, or not always, and why: the only module that knows this.
``hotspot`` finds the Java virtual machine of a process and reads its options; ``jvm_attach`` sends
it commands; ``jit_maps`` lets it write its perf map.
"""
