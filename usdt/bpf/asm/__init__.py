"""eBPF instructions: written, assembled and shown as text; pure, no system calls.

insn        registers, operation codes and their eight-byte encoding
assembler   instructions with labels and named maps → code
disasm      instructions → text, as the verifier's log and bpftool print them
"""
