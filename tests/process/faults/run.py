#!/usr/bin/env python3
"""Runs every program of this folder bare and under libvpool.so, on the simulated driver, and compares. Reports in TAP.

usage: run.py PROGRAMS VPOOL [NAME...]     the folder of the programs, the tool; the cases to run (all)
From the environment: TEST_PRELOAD (libvpool.so, a sanitizer's runtime before it), TEST_BUILD (where sim/ is).

The table CASES, at the end, says what each fault was and what is wanted. A case that must end within some seconds
has these as its limit; times are not compared otherwise.
"""
# SPDX-License-Identifier: Apache-2.0
import concurrent.futures
import contextlib
import gzip
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
from rig import FRAMEWORKS, PRELOAD, PROGRAMS, SANITIZED, SIM, TMP, VPOOL, Skip, check, flat, modest, run, same, same_beside, says

WANTED = sys.argv[3:]


def cancelled_in_a_dump():
    """The dump at the end is made."""
    env = {"VPOOL_DUMP": "oom,exit", "VPOOL_DUMP_FILE": os.path.join(TMP, "cancelled.%n")}
    says("cancel_more oom", r"^at once, served$", env=env)()
    check(os.path.exists(os.path.join(TMP, "cancelled.2")), "", "wanted a dump at the end")


def offset(name):
    """Where a function of the driver lies, in bytes behind vp_sim_hold."""
    table = subprocess.run(["nm", "-D", os.path.join(SIM, "libcuda.so.1")], capture_output=True, text=True, check=True)
    at = {line.split()[2]: int(line.split()[0], 16) for line in table.stdout.splitlines() if len(line.split()) == 3}
    return str(at[name] - at["vp_sim_hold"])


def unseen(program, name):
    """A context comes or goes without the library: nothing is lost by that."""
    def test():
        flat([program, offset(name)], "capacity=128M")()
    return test


def retained_unseen():
    """While each release may be the context's last, its events are not asked: more is held meanwhile, and nothing fails or is lost."""
    says(["dup", offset("cuDevicePrimaryCtxRetain")], r"^some allocated, 0 errors", r"^(0 : live 0\.0 MiB held [0-9.]+ MiB\n){5}",
         sim="capacity=128M")()


# ---- 4: places that could not be reaped

def pins(path, events):
    """Temporaries of 1 to 16 GiB, and after each a block of 1 to 2 MiB that lives for two thousand rounds."""
    rng, size, serial, kept = random.Random("pins:1"), {}, 0, []
    with open(path, "w", encoding="ascii") as out:
        def event(op, block, count):
            nonlocal serial
            out.write(f"{op},{block},{count},0,{serial}\n")
            serial += 1

        def alloc(count):
            size[len(size)] = count
            event("a", len(size) - 1, count)
            return len(size) - 1

        out.write("op,id,size,stream,us\n")
        while serial < events:
            big, half = alloc(rng.randint(1, 16) << 30), alloc(rng.randint(1, 8) << 30)
            event("f", big, 0)
            kept.append(alloc(int(rng.uniform(1 << 20, 2 << 20))))
            event("f", half, 0)
            if len(kept) > 2000:
                event("f", kept.pop(rng.randrange(len(kept))), 0)
    return path


def places_are_not_forgotten():
    trace = pins(os.path.join(TMP, "replayed.csv"), 20000)
    done = run([VPOOL, "replay", "--json", trace], bare=True)
    check(done.status == 0, done, "wanted status 0")
    maps = json.loads(done.out)["driver_calls"]["map"]
    check(maps < 80000, done, f"{maps} maps for 20,000 events")


def a_stall_passes():
    trace = pins(os.path.join(TMP, "stalled.csv"), 20000)
    done = run("stall 1000 20000 5000 4000", "lazy=50,backing=ledger,capacity=100G", stdin=trace)
    check(done.status == 0, done, "wanted status 0")
    check(done.numbers(r"mappings (\d+)")[-1] < 40000, done, "too many mappings")
    check(done.numbers(r"modelled driver ([\d.]+) ms")[-1] < 20, done, "it has not recovered")


def synchronous_calls_settle():
    trace = pins(os.path.join(TMP, "synchronous.csv"), 10000)
    done = run("trace_sync 1", "backing=ledger,capacity=100G", stdin=trace)
    check(done.status == 0, done, "wanted status 0")
    check(done.numbers(r"ratio ([\d.]+)")[0] < 1.1, done, "too much is held")


# ---- 12: what adoption set

def adoption(sh, env, *wanted):
    """The frameworks' variables in a child of a shell that is under the library."""
    def test():
        clean = [f"-u{name}" for name in os.environ if name.startswith(FRAMEWORKS)]
        script = f"{sh} env | grep -E '^(PYTORCH|XLA_PYTHON|TF_|VPOOL_ADOPTED)' | sort"
        done = run(["env", *clean, "bash", "-c", script], env={"VPOOL_ADOPT": "async"} | env)
        names = [line.partition("=")[0] for line in done.out.splitlines()]
        check(names == sorted(wanted), done, f"wanted {sorted(wanted)}, found {names}")
    return test


ADOPTED = ["PYTORCH_CUDA_ALLOC_CONF", "TF_FORCE_GPU_ALLOW_GROWTH", "TF_GPU_ALLOCATOR", "VPOOL_ADOPTED",
           "XLA_PYTHON_CLIENT_ALLOCATOR"]


# ---- 13: traces of forked children

def traced(program, pattern, *events, silent=False):
    """How many events the files of a run hold, least first; nothing of one process is in another's."""
    def test():
        folder = tempfile.mkdtemp(dir=TMP)
        done = run(program, env={"VPOOL_TRACE": os.path.join(folder, pattern)})
        check(done.status == 0 and "SIGBUS" not in done.out, done, "wanted status 0")
        found = []
        for name in os.listdir(folder):
            with open(os.path.join(folder, name), encoding="ascii") as trace:
                lines = trace.read().rstrip("\0").splitlines()
            check(lines[0] == "op,id,size,stream,us" and all(line.count(",") == 4 for line in lines), done,
                  f"{name} is no trace")
            found.append(sum(line[0] in "afm" for line in lines[1:]))
        check(sorted(found) == list(events), done, f"wanted {events} events, found {found}")
        if "%p" not in pattern and not silent:
            check(done.err.count("a forked child is not recorded") > 0, done, "it does not say so")
    return test


# ---- 15: closed pipes

def closed_pipe(env):
    """stderr is a pipe that nobody reads: the program does not notice."""
    def test():
        read, write = os.pipe()
        os.close(read)
        try:
            done = run("pipe", env=env, stderr=write, restore_signals=True)
        finally:
            os.close(write)
        check(done.status == 0 and done.out == "finished\n", done, "wanted status 0")
    return test


# ---- 16: RTLD_DEEPBIND

def deep_binding():
    """Cannot be helped: the plug-in has CUDA's own functions. Its memory is anybody's, ours is not its."""
    if SANITIZED:
        raise Skip("a sanitizer refuses RTLD_DEEPBIND")
    says("deep2 1", r"plugin frees main's pointer -> 1", r"main frees the plugin's pointer -> 0")()


# ---- 18: other people's files in /dev/shm

def shared_memory_is_swept_by_and_by():
    """In a name space of its own; what is swept there by one start is bounded, and no stranger's."""
    script = """
        mount -t tmpfs none /dev/shm && chmod 1777 /dev/shm && cd /dev/shm || exit 77
        for i in $(seq 2000000 2003000); do : >vpool-0-$i; done
        touch -d '1 minute ago' vpool-0-*
        strangers=0
        if chown 12345 vpool-0-20000* 2>/dev/null; then strangers=100; fi
        before=$(ls /dev/shm | wc -l)
        "$@" >/dev/null || exit 1
        after=$(ls /dev/shm | wc -l)
        echo "$((before - after)) gone, $(find /dev/shm -uid 12345 | wc -l) of $strangers strangers' left"
    """
    program = ["env", "LD_PRELOAD=" + PRELOAD, os.path.join(PROGRAMS, "dump")]
    done = run(["unshare", "-rm", "sh", "-c", script, "sh", *program], bare=True)
    if done.status in (1, 77) and "unshare" in done.err or done.status == 77:
        done = run(["unshare", "-m", "sh", "-c", script, "sh", *program], bare=True)
        if done.status == 77 or "unshare" in done.err:
            raise Skip("no name space to be had")
    check(done.status == 0, done, "wanted status 0")
    gone, left, strangers = map(int, re.findall(r"\d+", done.out))
    check(0 < gone <= 64 and left == strangers, done, "wanted some gone, but few")


# ---- 19: links, hard links, pipes

def outputs(path):
    """What writes to a path: a dump, statistics, a trace."""
    return {"dump": {"VPOOL_DUMP": "exit", "VPOOL_DUMP_FILE": path}, "stats": {"VPOOL_STATS": path},
            "trace": {"VPOOL_TRACE": path}}


def links_are_not_followed(link, replaced=()):
    """Somebody's file, led to by the name that we were told to write to. Some replace the name, not the file."""
    def test():
        for what in ("dump", "stats", "trace"):
            folder = tempfile.mkdtemp(dir=TMP)
            target, path = os.path.join(folder, "precious"), os.path.join(folder, "out")
            with open(target, "w", encoding="ascii") as out:
                out.write("precious")
            link(target, path)
            done = run("dump", env=outputs(path)[what])
            with open(target, encoding="ascii") as out:
                check(out.read() == "precious", done, f"{what}: written over")
            check(done.status == 0, done, "wanted status 0")
            if what not in replaced:
                # Where statistics cannot be written, the summary follows.
                told = done.err.split("\nvpool: ")[0] if what == "stats" else done.err
                check(told.count("vpool:") == 1 and "link" in told, done, f"{what}: wanted one line")
            else:
                check(done.err == "" and os.stat(path).st_nlink == 1, done, f"{what}: wanted a file of its own")
    return test


def devices_and_pipes_are():
    """/dev/stderr, /dev/fd/N, named pipes with a reader and without, and links to these."""
    for what in ("dump", "stats"):
        for path in ("/dev/stderr", "/dev/fd/2", "/proc/self/fd/2"):
            done = run("dump", env=outputs(path)[what])
            check(done.status == 0 and len(done.err) > 100 and "written" not in done.err, done, f"{what} to {path}")
        pipe, link = (os.path.join(tempfile.mkdtemp(dir=TMP), "pipe") for _ in range(2))
        os.mkfifo(pipe)
        os.symlink(pipe, link)
        done = run("dump", env=outputs(pipe)[what])
        check("no process reads" in done.err, done, f"{what} to a pipe without a reader")
        for path in (pipe, link):
            reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
            done = run("dump", env=outputs(path)[what])
            text = os.read(reader, 1 << 16)
            os.close(reader)
            check(done.status == 0 and len(text) > 100, done, f"{what} to {path}")
    with open(os.path.join(TMP, "log"), "w+", encoding="ascii") as log:
        log.write("before\n")
        log.flush()
        run("dump", env=outputs("/dev/stderr")["stats"], stderr=log)
        log.seek(0)
        check(log.read().startswith("before\n{"), "", "what is in the file is not cut off")


def a_reader_that_sleeps_is_left():
    """A pipe that is full: its reader sleeps."""
    pipe = os.path.join(tempfile.mkdtemp(dir=TMP), "pipe")
    os.mkfifo(pipe)
    reader, writer = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK), os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    with contextlib.suppress(BlockingIOError):
        while os.write(writer, b"x" * 4096):
            pass
    try:
        done = run("dump", env=outputs(pipe)["stats"])
    finally:
        os.close(reader)
        os.close(writer)
    check(done.status == 0 and "does not read" in done.err, done, "wanted one line")


def traps_are_not_stepped_into():
    """Another user's pipe, link and file under the name that we were told to write to, in a folder like /tmp."""
    if os.geteuid():
        raise Skip("another user's files are for root to make")
    pipe, path = (os.path.join(tempfile.mkdtemp(dir=TMP), "out") for _ in range(2))
    os.mkfifo(pipe)
    os.chmod(os.path.dirname(path), 0o1777)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    for make in os.mkfifo, lambda at: os.symlink(pipe, at), lambda at: open(at, "x", encoding="ascii").close():
        make(path)
        os.chmod(path, 0o666)
        os.lchown(path, 12345, 12345)
        own = reader if os.path.islink(path) else os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        done = run("dump", env=outputs(path)["stats"])
        with contextlib.suppress(BlockingIOError):
            check(not os.read(own, 1), done, "wanted nothing to be written")
        refused = "Permission denied" if os.path.islink(path) else "another user"  # the former by the kernel
        check(done.status == 0 and refused in done.err, done, "wanted one line")
        os.unlink(path)


# ---- 30: descriptors that another file has since

def a_descriptor_that_was_given(closed):
    """Statistics and dumps are to go to it; the program's own file has the number since."""
    def test():
        with open(os.path.join(TMP, "given"), "w+b") as given:
            path = f"/dev/fd/{given.fileno()}"
            env = {"VPOOL_STATS": path, "VPOOL_DUMP": "oom,exit", "VPOOL_DUMP_FILE": path}
            command = ["taken"] + ["given", str(given.fileno())] * closed
            done = run(command, env=env, pass_fds=[given.fileno()])
            check(done.status == 0, done, "wanted status 0")
            written = given.seek(0, os.SEEK_END)
        if not closed:
            check(written > 1000, done, "wanted statistics and dumps where nothing was closed")
            return
        with open(os.path.join(TMP, "taken.given"), encoding="ascii") as own:
            check(own.read() == "data\n" and not written, done, "wanted the program's file as it wrote it")
    return test


# ---- 27: descriptors 0, 1 and 2

def a_trace_is_none_of_the_standard_descriptors():
    trace = os.path.join(tempfile.mkdtemp(dir=TMP), "trace.csv")
    program = os.path.join(PROGRAMS, "closed")
    done = run(["sh", "-c", 'exec "$0" <&- >&- 2>&-', program], env={"VPOOL_TRACE": trace})
    with open(trace, encoding="ascii") as lines:
        text = lines.read()
    check(done.status == 0 and text.startswith("op,id,size,stream,us\n") and "trace" not in text, done,
          f"what the program wrote is in the trace:\n{text}")


# ---- 29: small stacks

def on_the_smallest_stack(env, times=1):
    """A sanitizer's own frames do not fit."""
    def test():
        if SANITIZED:
            raise Skip("a sanitizer takes more of the stack")
        for _ in range(times):
            same("smallstack", env=env)()
    return test


# ---- 34: small stacks of all threads

def ends_by_a_signal_and_tells(kilobytes):
    def test():
        done = run(f"littlestacks {kilobytes}", env={"VPOOL_STATS": "1"})
        check(done.status == -signal.SIGTERM and "peak live 3.0 MiB" in done.err, done, "wanted the summary, and SIGTERM")
    return test


# ---- 38: threads beside a capture

def enough_for_all():
    """It hangs on who comes when, so in four runs."""
    for seed in range(4):
        says("together", r"^failed: 0$", sim=f"capacity=40M,seed={seed}")()


# ---- 31: descriptors that the program has closed

def all_closed(name):
    """The program's files are as it wrote them, and the trace goes on in its own."""
    def test():
        trace = os.path.join(tempfile.mkdtemp(dir=TMP), name)
        done = run("all_closed", env={"VPOOL_TRACE": trace})
        check(done.status == 0 and re.search(r"changed: 0\n(.|\n)*at the end: 0\n", done.out), done, "wanted no change")
        with (gzip.open if name.endswith(".gz") else open)(trace, "rt", encoding="ascii") as lines:
            events = sum(line[0] in "af" for line in lines)
        check(events == 200001 and not done.err, done, f"wanted 200001 events, not {events}")
    return test


# ---- 48: libraries whose constructors wait

def others_are_told_of():
    """As NVML knows them, which the program has loaded."""
    done = run("loads")
    check("; process 4242 has 1.0 GiB" in done.err, done, "wanted the other process")


# ---- the table: the fault's number, what it was, how the program is run, what is wanted

PAIR = {"CUR0": "1"}
REFUSED = (r"^cuMemcpyAsync.* -> 1$", r"^cuStreamEndCapture.* -> 0$", r"^1 1, violations 0$")
# ---- 53: few addresses

def addresses_are_left():
    if SANITIZED:
        raise Skip("a sanitizer takes more addresses")
    says("addresses", r"^24 GiB$")()


def is_told_once():
    """By the program, and not by its child, which exits before it."""
    done = run("told")
    check(done.status == 0 and done.err.count("without a message of") == 1, done, "wanted one line of the rest")


CASES = [
    ("1 a copy between two devices", same("mg", "devices=2")),
    ("2 a host function on a third stream", says("hostfn 0", r"stream S: 0 ")),
    ("2 a host function before a cudaFree", says("hostfn 2", r"stream S: 0 ")),
    ("2 a stream that the host holds up", says("held_up", r"cuStreamSynchronize\(S\) -> 0 ")),
    ("2 a kernel that spins", says("spin 16", r"producer's stream: 0 ", sim="lazy=50")),
    ("3 a reset during a capture", flat("capture_reset", "capacity=128M")),
    ("3 a context destroyed during a capture", flat("ctxcap")),
    ("3 a thread that ends during a capture", flat("ctxcap 1")),
    ("3 a green context destroyed during a capture", flat("green")),
    ("4 places whose mappings cannot go yet", places_are_not_forgotten),
    ("4 a stall", a_stall_passes),
    ("4 synchronous calls", synchronous_calls_settle),
    ("5 cuMemCreate while a free is pending", same("relieve 0", "capacity=64M")),
    ("5 managed memory while a free is pending", same("relieve 1", "capacity=64M")),
    ("6 a thread's first call", same("cur")),
    ("7 threads with per-thread streams", modest("ptds 8000", "lazy=0")),
    ("7 threads beside a stream", modest("ptds2")),
    ("7 what threads leave", says("threads", r"after +4000 threads: held \d\d? MiB", sim="lazy=0")),
    ("8 out of memory beside a capture", same("wrap", "capacity=128M")),
    ("9 hope on another device", says("hope", r"stream -> 0 ", sim="devices=2,capacity=64M",
                                      env=PAIR | {"VPOOL_WAIT": "never"})),
    ("10 an error of another device", same("err", "devices=2,lazy=100,capacity=64M", but="cuMemFree")),
    ("11 VPOOL_SYNC_FREE on another device", says("syncfree", r"stream query then: 0", sim="devices=2,lazy=100",
                                                 env=PAIR | {"VPOOL_SYNC_FREE": "1"})),
    ("12 adoption is inherited", adoption("", {}, *ADOPTED)),
    ("12 a child that adopts nothing", adoption("VPOOL_ADOPT=0", {})),
    ("12 a child under the native policy", adoption("VPOOL_POLICY=native", {})),
    ("12 a child of a child", adoption("bash -c 'VPOOL_ADOPT=0 exec \"$@\"' bash", {})),
    ("12 a child with a value of its own", adoption("PYTORCH_ALLOC_CONF=expandable_segments:True", {},
                                                   "PYTORCH_ALLOC_CONF", *ADOPTED[1:])),
    ("12 the user's value stays", adoption("VPOOL_ADOPT=0", {"TF_GPU_ALLOCATOR": "mine"}, "TF_GPU_ALLOCATOR")),
    ("12 a value changed since stays", adoption("export TF_GPU_ALLOCATOR=mine; VPOOL_ADOPT=0", {}, "TF_GPU_ALLOCATOR")),
    ("13 children with traces of their own", traced("tracefork", "%p.csv", 1, 10, 10)),
    ("13 a child that outlives its parent", traced("tracefork2", "%p.csv", 1, 2000)),
    ("13 children of one name", traced("tracefork", "t.csv", 1)),
    ("13 a child of one name that outlives its parent", traced("tracefork2", "t.csv", 1)),
    ("13 a child of clone() that exits", says("rawfork", r"^its page is there, its memory is served$")),
    ("13 a trace beside such a child", traced("rawfork", "t.csv", 3, silent=True)),
    ("14 a thread cancelled in a call", says("cancel", r"cuMemAlloc.* -> 0$")),
    ("14 a thread cancelled while it waits", says("resetrace", r"cuCtxDestroy.* -> 0$", sim="capacity=64M")),
    ("15 a warning to a closed pipe", closed_pipe({"PYTORCH_CUDA_ALLOC_CONF": "x"})),
    ("15 statistics to a closed pipe", closed_pipe({"VPOOL_STATS": "1"})),
    ("15 a file of statistics that is a closed pipe", closed_pipe({"VPOOL_STATS": "/dev/stderr"})),
    ("15 a dump to a closed pipe", closed_pipe({"VPOOL_DUMP": "exit", "VPOOL_DUMP_FILE": "/dev/stderr"})),
    ("16 a plug-in", same("deep2")),
    ("16 a plug-in opened with RTLD_DEEPBIND", deep_binding),
    ("17 a context destroyed unseen", unseen("detach", "cuCtxDestroy_v2")),
    ("17 a context retained unseen", retained_unseen),
    ("18 other people's files in /dev/shm", shared_memory_is_swept_by_and_by),
    ("19 a link to a file", links_are_not_followed(os.symlink)),
    ("19 a file with two names", links_are_not_followed(os.link, replaced=["dump"])),
    ("19 devices and pipes", devices_and_pipes_are),
    ("19 a pipe whose reader sleeps", a_reader_that_sleeps_is_left),
    ("19 another user's pipe, link and file", traps_are_not_stepped_into),
    ("20 a fork while another process is waited for", says("ipcfork", r"fork took [01]\.")),
    ("20 descriptors that a child would inherit", says("inherit", r"^descriptors passed on: 0 stay open")),
    ("21 out of memory waits once", says("pitch", r"cudaMalloc -> 2 after [0-7]\.", r"cudaMallocPitch -> 2 after [0-7]\.",
                                         sim="capacity=64M")),
    # Work on freed memory cannot be refused: its last line.
    ("21 odd sizes and freed pointers", same("sizes", "capacity=64M", but="^cuMemsetD8")),
    # Weak references are the dynamic linker's; a call fails.
    ("21 a program without CUDA", says("dflt", r"cuMemAlloc_v2\) no, .*ByVersion\) no", r"cudaMalloc -> 500")),
    ("21 contexts that come and go", modest("ctxs 8000", most=0.05)),
    ("22 another device that is busy", same("other_busy", "devices=2")),
    ("23 memory beside a capture on another device", same("blocking_capture 1", "devices=2")),
    ("24 a copy captured on a stream of a device that is not current", same("copies 1 0 1 0 c", "devices=2")),
    ("24 a copy on such a stream that joined a capture", same("copies 1 0 1 0 j", "devices=2")),
    ("24 the same within one device", same("copies 1 0 1 1 c", "devices=2,peers=0")),
    ("24 from the host on a stream of a device that is not current", same("copies 0 1 1 h", "devices=2,peers=0")),
    ("24 to the host on a stream of a device that is not current", same("copies 0 1 h 1", "devices=2,peers=0")),
    # docs/limits.md: refused, in the capture, and nothing is written.
    ("24 from the host, captured", says("copies 0 0 1 h c", *REFUSED, sim="devices=2,peers=0")),
    ("24 to the host, captured", says("copies 0 0 h 1 c", *REFUSED, sim="devices=2,peers=0")),
    ("24 between devices apart, captured", says("copies 0 0 1 0 c", *REFUSED, sim="devices=2,peers=0")),
    ("25 a reference given back while a thread waits", same("attached", "backing=ledger,capacity=8G")),
    ("26 one thread that waits in vain", says("crowd 1", r"^waited: 1$", sim="backing=ledger,capacity=8G")),
    ("26 threads that wait in vain at once", says("crowd 8", r"^waited: 1$", sim="backing=ledger,capacity=8G")),
    ("27 a trace with the standard descriptors closed", a_trace_is_none_of_the_standard_descriptors),
    ("28 a thread cancelled in the first call",
     says("cancel_more first", r"^at once, served$", env={"VPOOL_LOG": "debug"})),
    ("28 a thread cancelled in a mark",
     says("cancel_more mark", r"^at once, served$", env={"VPOOL_TRACE": "m.csv"})),
    ("28 a thread cancelled in a mark that comes behind earlier ones",
     says("cancel_more early", r"^at once, served$", env={"VPOOL_TRACE": "early.csv"})),
    ("28 a thread cancelled as the file of a trace grows",
     says("cancel_more pairs", r"^at once, served$", env={"VPOOL_TRACE": "pairs.csv.gz"})),
    ("28 a thread cancelled while an error is explained", cancelled_in_a_dump),
    ("28 a thread cancelled in a snapshot", says("cancel_more snapshot", r"^at once, served$")),
    ("28 a thread cancelled as a line is said of its ranges", says("cancel_more names", r"^at once, served$")),
    ("29 the smallest stack", on_the_smallest_stack({})),
    ("29 the smallest stack, and a dump", on_the_smallest_stack({"VPOOL_DUMP": "oom", "VPOOL_DUMP_FILE": "%p.small"})),
    ("29 the smallest stack, and a dump as JSON",
     on_the_smallest_stack({"VPOOL_DUMP": "oom", "VPOOL_DUMP_FILE": "%p.small.json"})),
    ("29 the smallest stack, and a trace", on_the_smallest_stack({"VPOOL_TRACE": "%p.small.csv"})),
    ("29 the smallest stack, and a compressed trace", on_the_smallest_stack({"VPOOL_TRACE": "%p.small.csv.gz"})),
    ("29 the smallest stack, and statistics", on_the_smallest_stack({"VPOOL_STATS": "%p.small.stats"})),
    ("29 the smallest stack, and stacks",
     on_the_smallest_stack({"VPOOL_STACKS": "1,native", "VPOOL_STATS": "%p.small.stats", "VPOOL_POISON": "1"})),
    ("29 the smallest stack, a plan is written and followed",
     on_the_smallest_stack({"VPOOL_PLAN": "auto", "XDG_CACHE_HOME": os.path.join(TMP, "caches", "of", "plans")}, times=2)),
    ("29 the smallest stack, and spilling", on_the_smallest_stack({"VPOOL_SPILL": "1G", "VPOOL_SPILL_TEST": "1M"})),
    ("32 a signal's handler that frees within a call", same("handler")),
    ("32 the same, and a trace", says("handler", r"^freed: 0, live: 0$", env={"VPOOL_TRACE": "handler.csv"})),
    ("31 descriptors that the program has closed, and a trace", all_closed("closed.csv")),
    ("31 descriptors that the program has closed, and a packed trace", all_closed("closed.csv.gz")),
    ("31 descriptors that the program has closed, and shared memory",
     says("all_closed 1", r"^block 0 -> 0\nblock 1 -> 0\nblock 2 -> 0\nfiles changed: 0", r"at the end: 0$")),
    ("30 a file of the program's where its stderr was", says("taken", "^as it was$")),
    ("30 a file that its stderr goes to", says("taken written", "^told of there$")),
    ("30 a file without a name that its stderr goes to", says("taken nameless", "^told of there$")),
    ("30 a file without a name that has stderr's number by chance", says("taken alone", "^as it was$")),
    ("30 a pipe that has stderr's number by chance", says("taken pipe", "^as it was$")),
    ("30 the same, and statistics and dumps are to go to stderr",
     says("taken pipe", "^as it was$", env={"VPOOL_STATS": "/dev/stderr", "VPOOL_DUMP": "oom", "VPOOL_DUMP_FILE": "/dev/stderr"})),
    ("30 a descriptor that the program was given, and has a file of its own for", a_descriptor_that_was_given(True)),
    ("30 the same, which it has left alone", a_descriptor_that_was_given(False)),
    ("33 many threads' first call", same("firsts")),
    ("34 threads with stacks of 16 KiB", ends_by_a_signal_and_tells(16)),
    ("34 threads with stacks of 24 KiB", ends_by_a_signal_and_tells(24)),
    ("35 a context that is made while the library opens",
     same("opening", "lazy=100,memset=late", env={"VPOOL_LOG": "debug"})),
    ("36 batches that CUDA refuses", same("batches")),
    ("37 a dlopen() of the program's that looks CUDA up", same("opens")),
    ("38 threads that allocate at once beside a capture", enough_for_all),
    ("39 CUDA's own memory beside a capture", same("beside", "capacity=64M,lazy=100")),
    ("40 functions of the driver that another has written into", same("patched")),
    ("40 such functions, which UCX can write into", says("patched heads", r"^can be moved: 9$")),
    ("41 another interposer, in front and behind", same_beside("libtells.so", "patched")),
    ("42 contexts made by a name without a version", same("old_contexts cuCtxCreate", sim="lazy=100")),
    ("42 contexts made for OpenGL", same("old_contexts cuGLCtxCreate_v2", sim="lazy=100")),
    ("43 a timer that ticks beside a page and a pause", says("ticks", r"^page 0, paused 0, resumed 0, byte 7$")),
    ("43 a timer that ticks beside a trace", traced("ticks", "t.csv", 2, silent=True)),
    ("44 two of us", same_beside("libvpool-compare.so", "cur")),
    ("44 two of us, and two devices", same_beside("libvpool-compare.so", "mg", "devices=2")),
    ("45 what is freed while another waits", same("later", "capacity=64M,lazy=100")),
    ("46 threads that lack memory of CUDA's own at once", same("at_once", "capacity=64M")),
    ("47 what a thread's own stream used, freed on the legacy one", says("implied own", "^byte 2$")),
    ("47 what the legacy stream used, freed on one that is waited for", says("implied wait", "^byte 2$")),
    ("47 the same, and it is asked", says("implied query", "^byte 2$")),
    ("47 the same, after a copy", says("implied copy", "^byte 2$")),
    *[(f"47 the same, where the legacy stream has had {what} alone", says(f"implied {how}", "^byte 2$", sim="driver=13020"))
      for how, what in (("slices", "a copy with attributes"), ("value", "a value written"), ("event", "a wait for an event"), ("record", "an event"),
                        ("flags", "an event with flags"), ("until", "a wait for a value"), ("batch", "a batch of such"))],
    *[(f"47 what others used, for which {what} waits, freed on a stream of it that had nothing to do", says(f"implied {how}", "^byte 2$"))
      for how, what in (("context", "a context"), ("parts", "a green context"))],
    ("48 a library that waits, as it is loaded, for a thread that allocates", same("loads")),
    ("48 others' memory is told of meanwhile", others_are_told_of),
    ("49 a snapshot into a pipe that a signal's handler empties", same("drained")),
    ("49 a signal's handler that forks within marks and ranges",
     same("forks", "lazy=0", env={"VPOOL_TRACE": "forked.csv", "VPOOL_LOG": "quiet"})),
    ("49 a signal's handler that allocates within a snapshot", same("snaps", "lazy=0", env={"VPOOL_STACKS": "1"})),
    ("50 plug-ins with functions of CUDA's that the program's overrule", same("overruled")),
    ("51 a library that is told of memory that goes, and asks under the same lock", same("unmaps")),
    ("52 a descriptor that lacks as others' pages are looked at", says("swept", r"^the other's page 0$")),
    ("53 a clock of the program's own that stands still",
     says("clock", r"^cuMemAlloc.* -> 2\ncuMemAlloc.* -> 0$", sim="capacity=64M")),
    ("54 a program that may have few addresses", addresses_are_left),
    ("55 a fork in the middle of a driver call, while another thread allocates", same("midway", "lazy=0")),
    ("56 a child that exits, of a program that lacked memory", is_told_once),
    ("all is freed", says("free_all", r"all freed.*cuMemGetInfo says 0 MiB", sim="capacity=16G,backing=ledger")),
]


def main():
    chosen = [case for case in CASES if not WANTED or any(name in case[0] for name in WANTED)]
    print(f"1..{len(chosen)}", flush=True)
    failed = 0
    begin = time.monotonic()
    # Most of them wait for most of their time.
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        tests = [(name, pool.submit(test)) for name, test in chosen]
        for number, (name, test) in enumerate(tests, 1):
            try:
                test.result()
                print(f"ok {number} - {name}", flush=True)
            except Skip as why:
                print(f"ok {number} - {name} # SKIP {why}", flush=True)
            except Exception as error:  # whatever it is, the others are worth hearing of
                failed += 1
                print(f"# {error}"[:2000].replace("\n", "\n# "))
                print(f"not ok {number} - {name}", flush=True)
    print(f"# {time.monotonic() - begin:.0f} s")
    return failed > 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    finally:
        shutil.rmtree(TMP, ignore_errors=True)
