"""The ground floor: every other folder may import it, and it imports nothing of the toolkit.

errors        the error tree; every message is one line
frozen        ``@frozen``: immutable, slotted records; ``replace()`` copies one with changes;
              ``Numbers``, for which IntEnum would take longer
text          characters safe for a terminal; the closest of known names
machine       the CPU of the kernel and of this process, word size and byte order
lazy_exports  names of a package that are imported when they are first used
closeable     ``Closeable``; file descriptors that are closed once
interrupts    ^C while a command starts
collector     a rest from the collector of garbage, while many records are created
files         files that are opened without waiting; the user's directory for caches, and what is
              kept there until the next boot
terminal      colours, columns of text, progress of long work; the import of click
protobuf      messages in the wire format of Protocol Buffers
version       that of the distribution
"""
