"""Run by gdb: stop a program at many places; at each, tell what gdb sees and wait for an answer.

The environment has the file descriptors (STOPS_OUT, STOPS_IN), the number of stops (STOPS), a seed,
and the functions to stop in.
"""

import json
import os
import random

import gdb  # type: ignore[import-not-found]

REGISTERS = [
    *("rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp", "rip"),
    *(f"r{number}" for number in range(8, 16)),
]
TAILCALL = 3  # gdb.TAILCALL_FRAME: made up from debug information; it has nothing on the stack

out = os.fdopen(int(os.environ["STOPS_OUT"]), "w")
answers = os.fdopen(int(os.environ["STOPS_IN"]))
chance = random.Random(int(os.environ["STOPS_SEED"]))

for setting in (
    "pagination off",
    "confirm off",
    "backtrace past-main on",
    "backtrace past-entry on",
    "debuginfod enabled off",
    "breakpoint pending on",
    "disable-randomization off",
):
    gdb.execute(f"set {setting}", to_string=True)
gdb.execute("handle SIGSEGV SIGUSR1 SIGALRM nostop noprint pass", to_string=True)


def frames():
    frame, found = gdb.newest_frame(), []
    while frame is not None and len(found) < 127:
        if frame.type() not in (gdb.INLINE_FRAME, TAILCALL):
            found.append(frame.pc())
        try:
            frame = frame.older()
        except gdb.error:
            break
    return found


def tell():
    newest = gdb.newest_frame()
    mask = (1 << 64) - 1
    registers = {name: int(newest.read_register(name)) & mask for name in REGISTERS}
    pid = gdb.selected_inferior().pid
    json.dump({"pid": pid, "registers": registers, "frames": frames()}, out)
    out.write("\n")
    out.flush()
    answers.readline()


try:
    gdb.execute(f"break {os.environ['STOPS_FIRST']}", to_string=True)
    gdb.execute("run >/dev/null 2>&1 </dev/null", to_string=True)
    for name in os.environ["STOPS_AT"].split():
        gdb.execute(f"break {name}", to_string=True)
    for _ in range(int(os.environ["STOPS"])):
        for _ in range(chance.randrange(25)):
            gdb.execute("stepi", to_string=True)
        tell()
        for point in gdb.breakpoints():
            point.ignore_count = chance.randrange(20)
        gdb.execute("continue", to_string=True)
except gdb.error:
    pass  # the program has ended
gdb.execute("kill", to_string=True)
