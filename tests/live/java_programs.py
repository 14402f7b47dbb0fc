"""Java programs for tests, compiled once, and what their virtual machine says of itself."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

from kept_builds import compile_in
from services import Dialogue
from skips import need_program

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ("compiled", "java", "thread_dump")

_JDK = "openjdk-17-jdk-headless"

# Methods that are compiled, and then called until they stop at a known place.
_STOPS = """
import java.io.*;
public class Stops {
    interface Step { int go(int depth, boolean stop) throws Exception; }
    static BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
    static int stop(boolean stop) throws Exception {
        if (stop) { Thread.sleep(1); System.out.println("stopped"); in.readLine(); }
        return 1;
    }
    static class Deep implements Step {
        public int go(int depth, boolean stop) throws Exception {
            return depth == 0 ? Stops.stop(stop) + 1 : Stops.choose(depth - 1, stop) + 1;
        }
    }
    static class Other implements Step {
        public int go(int depth, boolean stop) throws Exception {
            return new Deep().go(depth, stop) + 2;
        }
    }
    static Step[] steps = { new Deep(), new Other() };
    static int choose(int depth, boolean stop) throws Exception {
        return steps[depth & 1].go(depth, stop) + 1;
    }
    public static void main(String[] args) throws Exception {
        int sum = 0;
        for (int i = 0; i < 40000; i++) sum += choose(i & 7, false);
        System.out.println("ready");
        for (String line; (line = in.readLine()) != null;)
            sum += choose(Integer.parseInt(line), true);
        System.out.println("sum " + sum);
    }
}
"""

# Three threads that contend for a monitor, and a lot of garbage.
_CONTENDS = """
public class Contends {
    static class Account {
        int balance;
        synchronized void add() throws Exception { balance++; Thread.sleep(2); }
    }
    static byte[] last;
    static byte[] order(int size) { return new byte[size]; }
    public static void main(String[] args) throws Exception {
        Account account = new Account();
        for (int i = 0; i < 3; i++) {
            Thread thread = new Thread("worker-" + i) {
                public void run() {
                    try { while (true) account.add(); } catch (Exception error) { }
                }
            };
            thread.setDaemon(true);
            thread.start();
        }
        System.out.println("ready");
        while (true) {
            last = order(1000);
            Thread.sleep(1);
            if (account.balance % 9 == 0) System.gc();
        }
    }
}
"""

_PROGRAMS = {"Stops": _STOPS, "Contends": _CONTENDS}


def compiled(folder: Path, name: str, text: str = "") -> Path:
    """Compile a program of ours, or this text; return the folder of its classes."""
    classes = folder / name
    classes.mkdir()
    source = classes / f"{name}.java"
    source.write_text(text or _PROGRAMS[name])
    compile_in(classes, [need_program("javac", _JDK), "-d", classes, source])
    return classes


def java(folder: Path, name: str, *options: str, **more: object) -> Dialogue:
    """A virtual machine that runs a compiled program; it says "ready"."""
    found = Dialogue(need_program("java", _JDK), *options, "-cp", folder, name, **more)
    found.hear("ready")
    return found


def thread_dump(pid: int, thread: str) -> list[str]:
    """The methods of a thread's stack, innermost first, by jstack."""
    done = subprocess.run(
        [need_program("jstack", _JDK), str(pid)], check=True, capture_output=True, text=True
    )
    _, _, rest = done.stdout.partition(f'\n"{thread}" ')
    return re.findall(r"^\tat ([\w.$<>/]+)\(", rest.partition("\n\n")[0], re.MULTILINE)
