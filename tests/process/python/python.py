#!/usr/bin/env python3
"""The Python package, in processes that are under the library and in some that are not. Reports in TAP.

usage: python.py VPOOL LIBRARY PACKAGE     PACKAGE is the folder that PYTHONPATH is to name
From the environment: TEST_PRELOAD (a sanitizer's runtime may stand in it before libvpool.so).

What a test has a process do is Python in a string: it begins with BEGIN, which reaches the simulated driver by ctypes.
"""
# SPDX-License-Identifier: Apache-2.0
import ast
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "../../common"))
import tap

VPOOL, LIBRARY, PACKAGE = map(os.path.realpath, sys.argv[1:4])
ENV = {k: v for k, v in os.environ.items() if not k.startswith(("VPOOL_", "LD_", "PYTHON"))}
ENV |= {"PYTHONPATH": PACKAGE, "PYTHONDONTWRITEBYTECODE": "1"}
RUNTIMES = os.environ.get("TEST_PRELOAD", "").split(":")[:-1]
if RUNTIMES:
    ENV["LD_PRELOAD"] = ":".join(RUNTIMES)
    ENV["ASAN_OPTIONS"] = ENV.get("ASAN_OPTIONS", "") + ":detect_leaks=0"

BEGIN = """
import ctypes, vpool
cuda = None
def start():
    global cuda
    cuda, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
    assert not cuda.cuInit(0) and not cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
    assert not cuda.cuCtxSetCurrent(context)
def allocate(mib):
    address = ctypes.c_uint64()
    assert not cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(mib << 20))
    return address
def release(address):
    assert not cuda.cuMemFree_v2(address)
"""


def python(text, *before, env={}, **more):
    """Runs it to its end: (exit status, stdout, stderr)."""
    done = subprocess.run([*before, sys.executable, "-W", "always", "-c", BEGIN + text], env={**ENV, **env}, text=True,
                          capture_output=True, timeout=300, stdin=subprocess.DEVNULL, **more)
    return done.returncode, done.stdout, done.stderr


def served(text, **more):
    """Under the library, on the simulated driver; what it printed."""
    status, out, err = python(text, VPOOL, "run", "--sim", "--quiet", **more)
    assert status == 0 and not err, (status, out, err)
    return out


def nothing_fails_without_the_library():
    status, out, err = python("""
for _ in range(2):
    assert vpool.stats() is None and vpool.snapshot() is None and vpool.trim() == 0 and vpool.devices() == []
    assert vpool.mark("a") is False and not vpool.preloaded() and vpool.version() is None
    with vpool.range("b"):
        print(vpool.range("c")(lambda: 5)())
""")
    assert status == 0 and out == "5\n5\n", (status, out, err)
    assert err.count("NotPreloaded") == 1 and "vpool run" in err and "<string>" in err, err
    for quiet in "import warnings; warnings.simplefilter('ignore', vpool.NotPreloaded)", "assert not vpool.preloaded()":
        loud = "assert vpool.stats() is None\n" if "warnings" in quiet else ""
        assert python(quiet + "\n" + loud) == (0, "", ""), quiet
    assert python("vpool.mark('a')", env={"VPOOL_LOG": "quiet"}) == (0, "", "")


def an_interpreter_without_ctypes_has_all_functions():
    """Such as a sub-interpreter of Python 3.12 has none; under the library, too."""
    text = """
import sys
sys.modules["ctypes"] = None
import warnings
with warnings.catch_warnings(record=True) as said:
    import vpool
    with vpool.range("r"):
        assert not vpool.mark("m") and not vpool.range_pop() and vpool.stats() is None and vpool.trim() == 0
    assert vpool.devices() == [] and vpool.snapshot() is None and not vpool.pause() and not vpool.resume()
    assert not vpool.preloaded() and vpool.version() is None
assert len(said) == 1 and "no ctypes" in str(said[0].message), said
"""
    for before in [], [VPOOL, "run", "--sim", "--quiet"]:
        done = subprocess.run([*before, sys.executable, "-W", "always", "-c", text], env=ENV, text=True, capture_output=True, timeout=300)
        assert done.returncode == 0 and not done.stderr, done


def a_device_sleeps_and_wakes():
    assert served("""
start()
assert vpool.pause() is False and vpool.resume() is False, "there is no pool yet"
a = allocate(5)
assert not cuda.cuMemsetD8_v2(a, ctypes.c_ubyte(7), ctypes.c_size_t(5 << 20))
seen = (ctypes.c_ubyte * 16)()
name = "/tmp/vpool-python-%d" % __import__("os").getpid()
for how in ({}, {"contents": "drop"}, {"file": name}, {"contents": "file", "file": name}):
    assert vpool.pause(**how) and vpool.stats().held_bytes == 0
    try:
        vpool.pause()
        print("no error")
    except OSError as problem:
        assert problem.errno == __import__("errno").EALREADY
    assert vpool.resume() and vpool.stats().held_bytes >= 5 << 20
    if how.get("contents") == "drop":
        assert not cuda.cuMemsetD8_v2(a, ctypes.c_ubyte(7), ctypes.c_size_t(5 << 20))
    assert not cuda.cuMemcpyDtoH_v2(seen, a, ctypes.c_size_t(16)) and set(seen) == {7}
with vpool.asleep() as sleeps:
    assert sleeps and vpool.stats().held_bytes == 0
assert vpool.stats().held_bytes
for wrong in (lambda: vpool.pause(64), lambda: vpool.pause(contents="burn"), lambda: vpool.pause(contents="drop", file="x"),
              lambda: vpool.pause(contents="file")):
    try:
        wrong()
    except ValueError:
        continue
    print("no error")
""") == ""
    assert python("assert vpool.pause() is False", env={"VPOOL_LOG": "quiet"}) == (0, "", "")


def an_import_starts_nothing():
    assert served("""
import sys
assert vpool.preloaded() and vpool.version() == vpool.__version__, (vpool.version(), vpool.__version__)
assert vpool.stats() is None and vpool.stats(5) is None and vpool.devices() == [] and vpool.snapshot() is None
assert vpool.trim() == 0 and vpool.mark("early") in (True, False)
with open("/proc/self/maps") as maps:
    assert "libcuda" not in maps.read()
for wrong in (lambda: vpool.stats(-1), lambda: vpool.stats(64), lambda: vpool.trim(64), lambda: vpool.trim(0, -1)):
    try:
        wrong()
    except ValueError:
        continue
    assert False
""") == ""


def figures_are_the_pools():
    assert served("""
start()
a, b = allocate(3), allocate(5)
release(b)
s = vpool.stats()
assert s.allocs == s["allocs"] == 2 and s.frees == 1 and s.live_bytes == 3 << 20 and s.peak_live_bytes == 8 << 20, s
assert s.held_bytes >= 8 << 20 and 0 < s.efficiency <= 1 and vpool.devices() == [0], s
assert not hasattr(s, "nothing") and vpool.trim(keep=1 << 64) == 0
given = vpool.trim()
assert vpool.stats().given_back_bytes == s.given_back_bytes + given and s.spilled_bytes == s.lent_bytes == s.asleep_bytes == 0, s
assert vpool.pause(wait=float("inf")) and vpool.stats().asleep_bytes >= 3 << 20 and vpool.resume() and vpool.stats().asleep_bytes == 0
assert given > 0 and vpool.stats().held_bytes == s.held_bytes - given and vpool.trim(0) == vpool.trim(0, 1 << 30) == 0
""") == ""


def efficiency_is_a_share():
    """Also where what sleeps is alive beside what was made meanwhile, and was never held with it."""
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "stats.json")
        assert served("""
start()
a = allocate(8)
assert vpool.pause(contents="drop")
b = allocate(4)
s = vpool.stats()
assert s.peak_live_bytes > s.peak_held_bytes and s.efficiency == 1, s
""", env={"VPOOL_STATS": file}) == ""
        with open(file) as stats:
            assert json.load(stats)["devices"][0]["efficiency"] == 1


def a_snapshot_is_a_dump():
    with tempfile.TemporaryDirectory() as folder:
        served("""
start()
a = allocate(3)
s = vpool.snapshot("dump.json")
assert s["format"] == "vpool-dump" and s["reason"] == "request", s
assert [r["asked"] for r in s["devices"][0]["regions"] if r["state"] == "live"] == [3 << 20], s
assert vpool.snapshot()["number"] == 2
try:
    vpool.snapshot("/nowhere/at/all")
except OSError:
    print("refused")
""", cwd=folder)
        with open(folder + "/dump.json") as file:
            assert json.load(file)["devices"][0]["live_bytes"] == 3 << 20
        done = subprocess.run([VPOOL, "report", "-o", "page.html", "dump.json"], cwd=folder, env=ENV, capture_output=True)
        assert done.returncode == 0 and os.path.getsize(folder + "/page.html") > 10000, done


def a_snapshots_bytes_add_up():
    """Where some of what is alive is not held, too: it is spilled, or asleep."""
    out = served("""
start()
kept = [allocate(n) for n in (3, 40, 1, 5)]
for paused in (False, True):
    assert vpool.pause() if paused else True
    d = vpool.snapshot()["devices"][0]
    assert d["live_bytes"] + sum(d["waste"].values()) == d["held_bytes"] + d["spilled_bytes"] + d.get("asleep_bytes", 0), d
    assert d["spilled_bytes"] == 40 << 20 and (d["held_bytes"] == 0) == paused == ("asleep_bytes" in d), d
""", env={"VPOOL_SPILL": "64M", "VPOOL_SPILL_TEST": "40M", "VPOOL_LOG": "quiet"})
    assert out == "", out


def marks_are_in_the_trace():
    with tempfile.TemporaryDirectory() as folder:
        served("""
start()
a = allocate(1)
assert vpool.mark("step 1") and vpool.mark("Schritt zwei: \\u00fc") and vpool.mark(3) and vpool.mark("a\\0b")
""", env={"VPOOL_TRACE": folder + "/trace"})
        trace = Path(folder, "trace").read_bytes()
        assert b"m,step 1," in trace and "ü".encode() in trace and b"m,a?b," in trace, trace[-500:]


# The library's own two, by others that write down what they are asked.
WATCHED = """
from vpool import _library
said = []
_library._found["vpool_range_push"] = lambda name: said.append("+" + name.decode()) or 0
_library._found["vpool_range_pop"] = lambda: said.append("-") or 0
"""


def ranges_open_and_close():
    assert python(WATCHED + """
with vpool.range("a"), vpool.range("b"):
    pass
try:
    with vpool.range("c"):
        raise KeyError
except KeyError:
    pass
@vpool.range("d")
def d(x):
    "about d"
    return d(x - 1) if x else 7
assert d(1) == 7 and d.__name__ == "d" and d.__doc__ == "about d"
class Thing:
    @vpool.range
    def method(self):
        return self
thing = Thing()
assert thing.method() is thing
assert said == ["+a", "+b", "-", "-", "+c", "-", "+d", "+d", "-", "-", "+Thing.method", "-"], said
with vpool.range("out"):
    with vpool.range(""), vpool.range(b"of bytes"):
        pass
    assert said[-5:] == ["+out", "+range", "+of bytes", "-", "-"], said
assert vpool.range_push("e") and vpool.range_pop() and said[-2:] == ["+e", "-"]
""") == (0, "", "")


def what_is_suspended_is_not_open():
    assert python(WATCHED + """
import asyncio
@vpool.range("g")
def g():
    try:
        got = yield 1
        said.append(got)
        yield 2
    except ValueError:
        yield 3
    return 4
def outer():
    said.append((yield from g()))
steps = outer()
assert next(steps) == 1 and said == ["+g", "-"]
assert steps.send("in") == 2 and said == ["+g", "-", "+g", "in", "-"]
assert steps.throw(ValueError) == 3 and list(steps) == [] and said[-1] == 4 and said.count("+g") == said.count("-") == 4, said
said.clear()
steps = g(); next(steps); steps.close()
assert said == ["+g", "-", "+g", "-"], said
said.clear()
@vpool.range("c")
async def c(n):
    await asyncio.sleep(0.001 * n)
    return n
async def both():
    return await asyncio.gather(c(1), c(2))
assert asyncio.run(both()) == [1, 2] and said == ["+c", "-"] * (len(said) // 2) and len(said) >= 8, said
said.clear()
@vpool.range("a")
async def a():
    try:
        await asyncio.sleep(0)
        said.append((yield 1))
        yield 2
    except ValueError:
        yield 3
async def walk():
    steps = a()
    assert await steps.asend(None) == 1 and said == ["+a", "-"] * 2, said
    said.clear()
    assert await steps.asend("in") == 2 and said == ["+a", "in", "-"], said
    assert await steps.athrow(ValueError) == 3 and [x async for x in steps] == []
    steps = a()
    await steps.asend(None)
    await steps.aclose()
    async for _ in a():
        break
asyncio.run(walk())
assert said.count("+a") == said.count("-") and len(said) > 12, said
""") == (0, "", "")


def many_threads_may_ask():
    assert served("""
import threading
start()
a = allocate(1)
def ask():
    for i in range(200):
        vpool.mark("m"), vpool.stats(), vpool.trim()
        if i % 50 == 0:
            vpool.snapshot()
threads = [threading.Thread(target=ask) for _ in range(4)]
[t.start() for t in threads], [t.join() for t in threads]
""") == ""


def a_forked_child_has_no_pool():
    assert served("""
import os
start()
a = allocate(1)
if not os.fork():
    os._exit(not (vpool.stats() is None and vpool.snapshot() is None and vpool.trim() == 0 and vpool.preloaded()))
assert os.wait()[1] == 0 and vpool.stats().live_bytes == 1 << 20
""") == ""


def an_interrupt_brings_the_summary():
    """Ctrl-C, which ends an interpreter by the signal if nobody catches it, whatever other threads are there."""
    begin = """
import os, signal, threading, time
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
start()
a = allocate(3)
"""
    for text, status in ("os.kill(os.getpid(), signal.SIGINT); time.sleep(60)", -signal.SIGINT), (
            "try:\n os.kill(os.getpid(), signal.SIGINT); time.sleep(60)\nexcept KeyboardInterrupt: release(a)\nos.sys.exit(3)", 3):
        got, _, err = python(begin + text, VPOOL, "run", "--sim")
        assert got == status and err.count("peak live 3.0 MiB") == 1, (got, err)
        assert ("1 frees" in err) == (status == 3) and ("KeyboardInterrupt" in err) == (status < 0), err
    with tempfile.TemporaryDirectory() as folder:
        got, _, err = python(begin + "os.kill(os.getpid(), signal.SIGINT); time.sleep(60)", VPOOL, "run", "--sim",
                             f"--stats={folder}/stats")
        assert got == -signal.SIGINT and json.load(open(folder + "/stats"))["devices"][0]["peak_live_bytes"] == 3 << 20, err
    # What the program does with the signal later is its own affair.
    for text in "signal.signal(signal.SIGINT, signal.SIG_IGN)", "signal.signal(signal.SIGINT, lambda *_: print('mine'))":
        got, out, err = python(f"{begin}{text}\nos.kill(os.getpid(), signal.SIGINT)", VPOOL, "run", "--sim")
        assert got == 0 and err.count("peak live") == 1 and out == ("mine\n" if "mine" in text else ""), (got, out, err)


def the_module_is_the_command():
    def run(*words, path=os.environ["PATH"]):
        env = {**ENV, "PATH": f"{os.path.dirname(VPOOL)}:{path}"}
        return subprocess.run([sys.executable, "-m", "vpool", *words], env=env, capture_output=True, text=True, timeout=300)
    assert run("version").stdout == subprocess.run([VPOOL, "version"], capture_output=True, text=True).stdout
    assert run("run", "sh", "-c", "exit 7").returncode == 7
    assert run("run", "sh", "-c", "kill -TERM $$").returncode == -signal.SIGTERM
    assert run("nothing").returncode == 2
    closed = subprocess.run([sys.executable, "-m", "vpool", "version"], env={**ENV, "PATH": os.path.dirname(VPOOL)}, stderr=subprocess.PIPE,
                            text=True, preexec_fn=lambda: os.close(1))
    assert closed.returncode == 1 and closed.stderr == "vpool version: standard output: Bad file descriptor\n", closed
    with tempfile.TemporaryDirectory() as folder:
        # A script of that name is not what is meant.
        script, copy = Path(folder, "bin/vpool"), Path(folder, "lib")
        script.parent.mkdir()
        script.write_text("#!/bin/sh\nexit 99\n")
        script.chmod(0o755)
        copy.mkdir()
        (copy / "vpool").symlink_to(PACKAGE + "/vpool")
        done = subprocess.run([sys.executable, "-m", "vpool", "version"], capture_output=True, text=True,
                              env={**ENV, "PATH": str(script.parent), "PYTHONPATH": str(copy)})
        assert done.returncode != 99, done


def old_pythons_can_read_it():
    for path in Path(PACKAGE, "vpool").glob("*.py"):
        ast.parse(path.read_text(), feature_version=(3, 8))


tap.run([nothing_fails_without_the_library, an_interpreter_without_ctypes_has_all_functions, a_device_sleeps_and_wakes,
         an_import_starts_nothing, figures_are_the_pools, efficiency_is_a_share, a_snapshot_is_a_dump, a_snapshots_bytes_add_up,
         marks_are_in_the_trace, ranges_open_and_close, what_is_suspended_is_not_open, many_threads_may_ask,
         a_forked_child_has_no_pool, an_interrupt_brings_the_summary, the_module_is_the_command, old_pythons_can_read_it])
