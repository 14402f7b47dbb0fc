"""The BPF ring buffer: :mod:`.ringbuf`, and :mod:`.groups`: several of them, read as one."""
