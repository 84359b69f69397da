"""Tests of what vpool top tells of who holds a process's memory: for tool.py."""
# SPDX-License-Identifier: Apache-2.0
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile

import tap
from guests import ENV, Guest, MIB, RUNTIMES, VPOOL, one_line, page, top, until, vpool
from schema import fits
from terminal import Terminal

SCHEMA = os.path.join(os.path.dirname(os.path.realpath(__file__)), "../../../docs/top.schema.json")
STACKS = {"VPOOL_STACKS": "1M"}
WORDS = "open", "alloc=5", "alloc=24", "async=3", "sleep=60"

# Two functions, one of which holds more.
PROGRAM = """
import ctypes, time
cuda, pointer = ctypes.CDLL("libcuda.so.1"), ctypes.c_uint64()
def start():
    context = ctypes.c_void_p()
    assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0 and cuda.cuCtxSetCurrent(context) == 0
def weights():
    for _ in range(3):
        assert cuda.cuMemAlloc_v2(ctypes.byref(pointer), 8 << 20) == 0
def batch():
    assert cuda.cuMemAlloc_v2(ctypes.byref(pointer), 2 << 20) == 0
start()
weights()
batch()
print("ready", flush=True)
time.sleep(60)
"""


@tap.by_the_clock
def keys_list_the_holders():
    with Guest(*WORDS, last="async=3", env=STACKS) as guest:
        terminal = Terminal(guest.pid)
        assert "s holders" in terminal.read("guest")
        terminal.press(b"s")
        shown = terminal.read(r"guest\+0x")
        assert f"of process {guest.pid} on device 0" in terminal.read("SHARE") + shown
        assert terminal.read(r"29M|29\.0M").count("%") >= 2
        terminal.press(b"s")
        terminal.read("PID")
        terminal.press(b"?")
        terminal.read("list the stacks that hold most")
        terminal.press(b"q")
        terminal.end()
        assert not os.path.exists(page(guest.pid) + ".holders")


@contextlib.contextmanager
def python_program(text):
    """Runs it, with stacks, until it is ready; gives the process and the file's name."""
    with tempfile.TemporaryDirectory() as folder:
        name = os.path.join(folder, "prog.py")
        with open(name, "w", encoding="utf-8") as file:
            file.write(text)
        process = subprocess.Popen([VPOOL, "run", "--sim", "--quiet", sys.executable, name], env=ENV | STACKS, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout.readline() == "ready\n"
            yield process, name
        finally:
            process.kill()
            process.wait()
            if os.path.exists(page(process.pid)):
                os.unlink(page(process.pid))


@tap.by_the_clock
def lines_of_python_are_named():
    if RUNTIMES:
        return
    with python_program(PROGRAM) as (process, name):
        first, second = top("--holders", process.pid)["devices"][0]["holders"]
        assert (first["bytes"], first["blocks"], second["bytes"], second["blocks"]) == (24 * MIB, 3, 2 * MIB, 1)
        assert first["stack"][0] == {"function": "weights", "file": name, "line": 9}, first
        terminal = Terminal(process.pid)
        terminal.read("python")
        terminal.press(b"s")
        terminal.read(r"24M +92% +3  weights \(.*prog.py:9\)|24\.0M +92% +3  weights \(.*prog.py:9\)")
        terminal.press(b"q")
        terminal.end()


@tap.by_the_clock
def names_are_shown_as_the_terminal_can():
    """In a locale of UTF-8 as they are, cut between characters at the terminal's width; else with question marks."""
    if RUNTIMES:
        return
    with python_program(PROGRAM.replace("weights", "größe_" + 30 * "日")) as (process, _):
        for locale, shown in (("C.UTF-8", "größe_日日日日日日日日\x1b[K"), ("C", "gr??e_????????????????\x1b[K"), ("C.UTF-8", "größe_日日日日日日日\x1b[K")):
            terminal = Terminal(process.pid, env={"LC_ALL": locale})
            terminal.size(20, 46 if shown.count("日") != 7 else 45)
            terminal.read("SHARE|python")
            terminal.press(b"s")
            terminal.read(re.escape(shown))
            terminal.press(b"q")
            terminal.end()


def stopped(pid):
    """All of its threads?"""
    def state(task):
        with open(f"/proc/{pid}/task/{task}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0]
    return all(state(task) == "T" for task in os.listdir(f"/proc/{pid}/task"))


@tap.by_the_clock
def who_does_not_tell_is_told_of():
    with Guest(*WORDS, last="async=3") as guest:
        terminal = Terminal(guest.pid)
        terminal.read("guest")
        terminal.press(b"s")
        terminal.read("records no stacks: start it with VPOOL_STACKS=1M")
        status, out, err = vpool("top", "--json", "--holders", guest.pid)
        assert status == 0 and "VPOOL_STACKS" in err and err.count("\n") == 1, err
        assert "holders" not in json.loads(out)["processes"][0]["devices"][0]
        os.kill(guest.pid, signal.SIGSTOP)
        try:
            assert until(lambda: stopped(guest.pid))
            terminal.press(b"s")
            terminal.read("has not answered within a second")
        finally:
            os.kill(guest.pid, signal.SIGCONT)
        terminal.press(b"s")
        terminal.read("records no stacks")
        terminal.press(b"q")
        terminal.end()


@tap.by_the_clock
def json_has_them_where_asked_for():
    with Guest(*WORDS, last="async=3", env=STACKS) as guest:
        assert "holders" not in top(guest.pid)["devices"][0]
        status, out, err = vpool("top", "--json", "--holders", guest.pid)
        told = json.loads(out)
        holders = told["processes"][0]["devices"][0]["holders"]
        with open(SCHEMA) as file:
            fits(told, json.load(file))
        assert status == 0 and not err and [(h["bytes"], h["blocks"]) for h in holders] == [(29 * MIB, 2), (3 * MIB, 1)], (holders, err)
        assert all("guest" in h["stack"][0]["module"] for h in holders), holders
        assert not os.path.exists(page(guest.pid) + ".holders")
    one_line("top", "--holders")
    one_line("top", "--once", "--holders")


@tap.by_the_clock
def what_nobody_has_fetched_is_swept():
    with Guest(*WORDS, last="async=3", env=STACKS) as guest:
        with open(page(guest.pid) + ".holders", "w") as file:
            file.write("{}")
        assert top("--holders", guest.pid)["devices"][0]["holders"]
        guest.process.send_signal(signal.SIGSTOP)
        with open(page(guest.pid) + ".holders", "w") as file:
            file.write("{}")
        os.utime(page(guest.pid) + ".holders", (0, 0))
        guest.process.kill()
        guest.process.wait()
        assert until(lambda: vpool("top", "--once") and not os.path.exists(page(guest.pid) + ".holders"))


# A process has a second to answer.
TESTS = [keys_list_the_holders, lines_of_python_are_named, names_are_shown_as_the_terminal_can, who_does_not_tell_is_told_of, json_has_them_where_asked_for,
         what_nobody_has_fetched_is_swept]
