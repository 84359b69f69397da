#!/usr/bin/env python3
"""Stacks, marks and ranges of programs whose holders are known. Reports in TAP.

usage: stacks.py VPOOL GUEST NVTX EMBED ODD PYTHON_GUEST
From the environment: TEST_PRELOAD (a sanitizer's runtime may stand in it before libvpool.so); TEST_PYTHONS, a list of
interpreters with colons between them: else this one, the system's and those of pyenv.
"""
# SPDX-License-Identifier: Apache-2.0
import functools
import glob
import json
import os
import re
import subprocess
import sys
import tempfile
import urllib.parse

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "../../common"))
import tap

VPOOL, GUEST, NVTX, EMBED, ODD, PYTHON_GUEST = map(os.path.realpath, sys.argv[1:7])
MIB = 1 << 20
ENV = {k: v for k, v in os.environ.items() if not k.startswith(("VPOOL_", "LD_", "NVTX_"))} | {"VPOOL_PAGE": "0"}
RUNTIMES = os.environ.get("TEST_PRELOAD", "").split(":")[:-1]
if RUNTIMES:
    ENV["LD_PRELOAD"] = ":".join(RUNTIMES)
    ENV["ASAN_OPTIONS"] = ENV.get("ASAN_OPTIONS", "") + ":detect_leaks=0"


# ---- traces

class Trace:
    """What a trace says, held against the rules of its format."""

    def __init__(self, path):
        self.events, self.marks, self.frames, self.stacks, self.modules, self.held, self.failures = [], [], {}, {0: ()}, {}, [], []
        with open(path, "rb") as file:
            lines = file.read().rstrip(b"\0").decode().split("\n")
        assert lines[0] == "op,id,size,stream,us" and not lines.pop()
        assert all(len(line.encode()) < 256 for line in lines)
        last = 0
        for line in lines[1:]:
            op, *fields = line.split(",")
            us = int(fields[3])
            assert len(fields) == 4 or (op == "a" and len(fields) == 5), line
            assert us >= last, line
            last = us
            getattr(self, "on_" + {"+": "more"}.get(op, op))([urllib.parse.unquote(f) for f in fields])

    def on_a(self, f):
        assert len(f) == 4 or int(f[4]) in self.stacks, f
        self.events.append(("a", int(f[0]), int(f[1]), int(f[4]) if len(f) == 5 else 0))

    def on_f(self, f):
        self.events.append(("f", int(f[0]), 0, 0))

    def on_m(self, f):
        self.marks.append(("m", f[0], int(f[1]), int(f[2])))

    def on_b(self, f):
        self.marks.append(("b", f[0], int(f[1]), int(f[2])))

    def on_e(self, f):
        self.marks.append(("e", f[0], int(f[1]), int(f[2])))

    def on_h(self, f):
        self.held.append(tuple(map(int, f[:3])))

    def on_x(self, f):
        self.failures.append(tuple(map(int, f[:3])))

    def on_l(self, f):
        assert int(f[0]) == len(self.modules) + 1
        self.modules[int(f[0])] = f[2]
        self.last = (self.modules, int(f[0]), None)

    def on_n(self, f):
        assert int(f[0]) == len(self.frames) + 1 and f[1] in "pct", f
        self.frames[int(f[0])] = (f[1], f[2])
        self.last = (self.frames, int(f[0]), f[1])

    def on_s(self, f):
        number, parent, frame = map(int, f[:3])
        assert number == len(self.stacks) and parent < number, f
        self.stacks[number] = (self.frames[frame],) + self.stacks[parent]

    def on_more(self, f):
        table, key, kind = self.last
        table[key] = (kind, table[key][1] + f[2]) if kind else table[key] + f[2]

    def allocations(self, least=0):
        return [(size, self.stacks[stack]) for op, _, size, stack in self.events if op == "a" and size >= least]


def run(*words, stacks="1M", check=True, **more):
    """Runs a program: its trace (of its process alone) and what it said."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([VPOOL, "run", "--sim=1G", "--quiet", *words], capture_output=True, text=True, timeout=300,
                              env=ENV | {"VPOOL_TRACE": f"{folder}/%p.csv", "VPOOL_STACKS": stacks} | more,
                              stdin=subprocess.DEVNULL)
        assert not check or done.returncode == 0, (done.returncode, done.stderr[-1500:])
        traces = [Trace(name) for name in glob.glob(folder + "/*.csv")]
    return (traces[0] if len(traces) == 1 else traces), done


@functools.lru_cache(None)
def symbols(path):
    lines = subprocess.run(["nm", "--defined-only", path], capture_output=True, text=True, check=True).stdout.splitlines()
    return sorted((int(a, 16), name) for a, kind, name in map(str.split, lines) if kind in "tT")


def named(trace, stack, path):
    """The functions of a program in a stack, by its own table of symbols."""
    names = []
    for kind, text in stack:
        if kind == "c" and trace.modules[int(text.split(":")[0])] == path:
            names.append([name for at, name in symbols(path) if at <= int(text.split(":")[1], 16)][-1])
    return names


# ---- native

def holders_are_known():
    trace, _ = run(GUEST, "planted")
    large = trace.allocations(MIB)
    assert [named(trace, s, GUEST)[:2] for n, s in large if n == 4 * MIB] == [["weights", "planted"]] * 16
    lines = [s for n, s in large if n == 8 * MIB]
    assert all(named(trace, s, GUEST)[:2] == ["activations", "planted"] for s in lines), lines
    assert all(named(trace, s, GUEST)[-2:] == ["main", "_start"] for _, s in large)


def small_blocks_are_sampled():
    trace, _ = run(GUEST, "planted")
    small = [s for n, s in trace.allocations() if n == 10000]
    assert len(small) == 1000 and sum(s != () for s in small) == 1000 // 105, sum(s != () for s in small)
    trace, _ = run(GUEST, "planted", stacks="10000")
    assert all(s for _, s in trace.allocations())


def samples_keep_no_time_with_the_program():
    """What is told of adds up to what is alive, whatever the program's period is."""
    for stacks in ("1M", "2M", "1000K"):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([VPOOL, "run", "--sim=1G", "--quiet", f"--stats={folder}/s.json", f"--stacks={stacks}", GUEST, "turns"],
                           env=ENV, check=True, timeout=300)
            with open(f"{folder}/s.json") as file:
                device = json.load(file)["devices"][0]
        told = sum(h["bytes"] for h in device["holders"])
        assert device["live_bytes"] == 200 * MIB and abs(told - 200 * MIB) <= 16 * MIB, (stacks, told / MIB)


def nothing_without_the_option():
    for value in ("", "0"):
        trace, _ = run(GUEST, "planted", stacks=value)
        assert len(trace.stacks) == 1 and not trace.modules and all(not s for _, s in trace.allocations())


def a_wrong_value_is_told():
    for value in ("much", "1M,all", "1M "):
        trace, done = run(GUEST, "planted", stacks=value)
        assert done.stderr.count("VPOOL_STACKS") == 1 and len(trace.stacks) == 1, done.stderr
        done = subprocess.run([VPOOL, "run", "--sim", f"--stacks={value}", GUEST, "planted"], env=ENV, capture_output=True)
        assert done.returncode == 2 and b"VPOOL_STACKS" in done.stderr, done.stderr


def deep_recursion():
    trace, _ = run(GUEST, "deep")
    (_, stack), = trace.allocations()
    names = named(trace, stack, GUEST)
    assert names[:3] == ["weights", "deep", "deep"] and stack[-1] == ("t", "deeper: only the innermost frames are recorded")
    assert len(stack) == 193, len(stack)


def threads_come_and_go():
    trace, _ = run(GUEST, "threads")
    stacks = [named(trace, s, GUEST) for _, s in trace.allocations()]
    assert len(stacks) == 8000 and all(s[:2] == ["weights", "thread"] for s in stacks)


def a_child_of_fork_has_a_trace_of_its_own():
    traces, _ = run(GUEST, "fork")
    assert len(traces) == 2
    for trace in traces:
        assert all(named(trace, s, GUEST)[0] in ("weights", "activations") for _, s in trace.allocations(MIB))


def what_is_held_is_told():
    trace, done = run(GUEST, "oom")
    assert trace.failures == [(0, 1 << 40, 3)] or trace.failures[0][:2] == (0, 1 << 40), trace.failures
    assert all(d == 0 for d, _, _ in trace.held) and [c for _, _, c in trace.held] == sorted(c for _, _, c in trace.held)
    assert max(h for _, h, _ in trace.held) == 106 * MIB
    said = re.findall(r"vpool:   holder +([0-9.]+ MiB) in (?:about )?(\d+) block", done.stderr)
    assert said[0] == ("64.0 MiB", "16") and 3 <= len(said) <= 5, done.stderr


# ---- marks and ranges

def marks_and_ranges_are_recorded():
    trace, _ = run(GUEST, "planted", stacks="")
    thread = trace.marks[0][2]
    assert thread > 1 and trace.marks == [("b", "forward", thread, 0), ("b", "inner", thread, 1), ("e", "", thread, 1),
                                          ("e", "", thread, 0), ("m", "a, b%", thread, 0)], trace.marks


def what_comes_before_cuda_is_kept():
    trace, _ = run(GUEST, "early", stacks="")
    assert [m[:2] for m in trace.marks] == [("m", "before"), ("b", "loading"), ("e", "")], trace.marks


def ranges_have_a_peak():
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([VPOOL, "run", "--sim=1G", f"--stats={folder}/s.json", "--dump=exit", f"--dump-file={folder}/d.json",
                        "--stacks", GUEST, "planted"], check=True, env=ENV)
        for name in ("s", "d"):
            with open(f"{folder}/{name}.json") as file:
                told = json.load(file)
            assert told["ranges"] == [{"name": "forward", "peak_bytes": 96 * MIB, "times": 1},
                                      {"name": "inner", "peak_bytes": 88 * MIB, "times": 1}], told["ranges"]
            holders = told["devices"][0]["holders"]
            assert [(h["bytes"], h["blocks"]) for h in holders[:1]] == [(64 * MIB, 16)], holders
            alive = told["devices"][0]["live_bytes"]
            assert abs(sum(h["bytes"] for h in holders) - alive) < MIB, (holders, alive)
    said = subprocess.run([VPOOL, "run", "--sim=1G", GUEST, "planted"], check=True, env=ENV, capture_output=True, text=True).stderr
    assert re.findall(r"vpool:   peak +(.*)", said) == ["96.0 MiB at most in range forward, 1 time", "88.0 MiB at most in range inner, 1 time"], said


def ranges_with_most_are_told():
    """Of many, five in the summary."""
    program = "import ctypes; v = ctypes.CDLL(None); c = ctypes.CDLL('libcuda.so.1'); a = ctypes.c_uint64(); x = ctypes.c_void_p()\n" \
              "c.cuInit(0); c.cuDevicePrimaryCtxRetain(ctypes.byref(x), 0); c.cuCtxSetCurrent(x)\n" \
              "for n in 3, 1, 7, 5, 2, 6, 4, 7:\n" \
              "    v.vpool_range_push(b'r%d' % n); c.cuMemAlloc_v2(ctypes.byref(a), n << 20); c.cuMemFree_v2(a); v.vpool_range_pop()\n"
    said = subprocess.run([VPOOL, "run", "--sim=1G", sys.executable, "-c", program], check=True, env=ENV, capture_output=True, text=True).stderr
    told = re.findall(r"vpool:   peak +(.*)", said)
    assert told[:5] == [f"{n}.0 MiB at most in range r{n}, {1 + (n == 7)} time{'s' * (n == 7)}" for n in (7, 6, 5, 4, 3)], said
    assert told[5:] == ["and 2 more, named in VPOOL_STATS=FILE"], said


def what_is_alive_at_the_end_is_told():
    with_stacks, without = (subprocess.run([VPOOL, "run", "--sim=1G", *option, GUEST, "planted"], env=ENV, check=True,
                                           capture_output=True, text=True).stderr for option in (["--stacks"], []))
    assert re.search(r"vpool:   alive +64.0 MiB in 16 blocks", with_stacks), with_stacks
    assert "alive " not in without and "the peak" not in without and without.count("vpool run --report=FILE") == 1, without
    assert re.search(r"the peak was 0\.\d{3} s after the first block: stacks-guest\+0x\w+ held most, 64\.0 MiB \(65 %\)", with_stacks)


def a_block_written_to_after_its_free_has_a_line():
    for stacks, name in ("1M", "activations"), ("", ""):
        _, done = run(GUEST, "dangling", stacks=stacks, VPOOL_POISON="1")
        assert "freed by cudaFree, was written to afterwards: 1 word of 4 bytes" in done.stderr, done.stderr
        found = re.search(r"afterwards.*\nvpool:   it was asked for by\nvpool: +\S+\+0x(\w+)\nvpool: +\S+\+0x", done.stderr)
        assert bool(found) == bool(name), done.stderr
        assert not found or [n for at, n in symbols(GUEST) if at <= int(found[1], 16)][-1] == name, done.stderr


def the_peak_has_a_line():
    for path in [path for path, free, _ in PYTHONS if not free][:1]:
        with tempfile.TemporaryDirectory() as folder:
            said = subprocess.run([VPOOL, "run", "--sim=1G", "--stacks", f"--trace={folder}/t.csv", path, PYTHON_GUEST,
                                   f"{folder}/e", "free", "plain"], env=ENV, check=True, capture_output=True, text=True).stderr
            assert re.search(r"the peak was [0-9.]+ s after the first block:\s+guest\.py:\d+\s+alloc\s+held\s+most", said), said
            assert f"`vpool report {folder}/t.csv`" in said.replace("\nvpool:  ", ""), said


def nvtx_is_taken_up():
    trace, done = run(NVTX, stacks="")
    assert done.stdout == "attached: 1\n", done.stdout
    main = trace.marks[0][2]
    other = next(m[2] for m in trace.marks if m[1] == "dies")
    threads = {main: "main", 0: "process", other: "other"}
    assert len(threads) == 3 and [(*m[:2], threads[m[2]], m[3]) for m in trace.marks] == [
        ("m", "early", "main", 0), ("b", "outer", "main", 0), ("b", "registered", "main", 1), ("e", "", "main", 1),
        ("b", "größe", "main", 1), ("e", "", "main", 1), ("m", "there", "main", 0), ("m", "(no name)", "main", 0),
        ("b", "request", "process", 0), ("b", "on the stack", "main", 1), ("b", "of a domain", "process", 1),
        ("e", "", "process", 0), ("b", "größer", "process", 0), ("e", "", "main", 1), ("e", "", "process", 0),
        ("e", "", "process", 1), ("b", "of one", "main", 1), ("b", "of two", "main", 2), ("e", "", "main", 1),
        ("b", "of one again", "main", 3), ("e", "", "main", 2), ("e", "", "main", 3), ("b", "dies", "other", 0), ("b", "dies within", "other", 1), ("e", "", "other", 1),
        ("e", "", "other", 0), ("e", "", "main", 0)], trace.marks


def nvtx_is_left_alone():
    def said(*words, **more):
        return subprocess.run([*words, NVTX], capture_output=True, text=True, check=True, env=ENV | more).stdout
    assert said(VPOOL, "run", "--sim", "--quiet") == "attached: 0\n"  # nobody would tell of it
    assert said(VPOOL, "run", "--sim", "--adopt=0", "--stats=/dev/null") == "attached: -1\n"
    library = subprocess.run([VPOOL, "run", "--quiet", "sh", "-c", "echo $NVTX_INJECTION64_PATH"], capture_output=True,
                             text=True, check=True, env=ENV).stdout.strip()
    assert library.endswith("/libvpool.so"), library
    sim = os.path.dirname(library) + "/sim"
    # A child without the preload has it loaded by NVTX alone.
    assert said(LD_LIBRARY_PATH=sim, NVTX_INJECTION64_PATH=library, VPOOL_STATS="1") == "attached: 0\n"
    assert said(VPOOL, "run", "--sim", NVTX_INJECTION64_PATH="/none.so") == "attached: -1\n"


# ---- Python

def interpreters():
    there = os.environ.get("TEST_PYTHONS", "").split(":") if "TEST_PYTHONS" in os.environ else [
        sys.executable, "/usr/bin/python3", *sorted(glob.glob(os.path.expanduser("~/.pyenv/versions/*/bin/python3")))]
    found = {}
    for path in filter(os.path.exists, there):
        asked = subprocess.run([path, "-c", "import sys, sysconfig; print(sys.version_info[:2] >= (3, 9), "
                                "bool(sysconfig.get_config_var('Py_GIL_DISABLED')), sys.base_exec_prefix, "
                                "sysconfig.get_config_var('INSTSONAME') or '-')"], capture_output=True, text=True).stdout.split()
        if asked and asked[0] == "True":
            library = f"{asked[2]}/lib/{asked[3]}"
            found[os.path.realpath(path)] = (path, asked[1] == "True", library if ".so" in library and os.path.exists(library) else None)
    return list(found.values())


PYTHONS = interpreters()


def python(path, way, *cases, check=True, **more):
    with tempfile.NamedTemporaryFile("r", encoding="utf-8") as expected:
        trace, done = run(path, PYTHON_GUEST, expected.name, way, *cases, check=check, **more)
        return trace, [json.loads(line) for line in expected], done


def told(stack):
    """Frames of Python as Python tells them."""
    return [[int(line), name, file] for line, name, file in (text.split(":", 2) for kind, text in stack if kind == "p")]


def matches(trace, expected):
    """Every block's stack is alloc's, and then what Python said of its caller, as deep as stacks are recorded."""
    found = {size: stack for size, stack in trace.allocations(MIB)}
    for size, frames in expected:
        stack = told(found[size])
        assert stack[0][1:] == ["alloc", PYTHON_GUEST], stack[:2]
        assert stack[1:] == frames[:len(stack) - 1] and (len(stack) == len(frames) + 1 or len(stack) > 190), (stack, frames)
        assert (len(stack) == len(frames) + 1) == all(kind == "p" for kind, _ in found[size]), found[size]
    assert expected


def each_python(*cases, ways=("held", "free")):
    for path, free, _ in PYTHONS:
        for way in ways:
            trace, expected, _ = python(path, way, *cases)
            if free:
                assert all("free-threaded" in s[-1][1] for _, s in trace.allocations(MIB)), path
                continue
            try:
                matches(trace, expected)
            except Exception as error:
                raise AssertionError(f"{path}, {way}: {error}") from error


def python_lines():
    each_python("plain", "generators", "coroutines")


def python_code_that_comes_and_goes():
    each_python("cells", ways=("free",))


def python_names_of_any_kind():
    """The trace stays one that can be read, and what it says is text."""
    def fit(text):
        return re.sub("[\0\ud800-\udfff]", "\ufffd", text)
    for path, free, _ in PYTHONS:
        if free:
            continue
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([VPOOL, "run", "--sim=1G", "--quiet", "--stacks", f"--trace={folder}/t.csv", "--dump=exit",
                            f"--dump-file={folder}/d.txt", path, PYTHON_GUEST, f"{folder}/expected", "free", "names"], env=ENV,
                           check=True, timeout=300)
            with open(f"{folder}/d.txt", "rb") as file:
                assert not re.search(rb"[\0-\x09\x0b-\x1f\x7f]", file.read()), path
            trace = Trace(f"{folder}/t.csv")
            subprocess.run([VPOOL, "export", "--perfetto", "-o", f"{folder}/p.json", f"{folder}/t.csv"], check=True, env=ENV)
            with open(f"{folder}/p.json", encoding="utf-8") as file:
                json.load(file)
            with open(f"{folder}/expected", encoding="utf-8") as file:
                expected = [[size, [[line, fit(name).replace(":", "\ua789"), fit(f)] for line, name, f in frames]]
                            for size, frames in map(json.loads, file)]
        matches(trace, expected)


def python_names_are_cut_between_characters():
    """Names and paths longer than the room for them: whatever is written is UTF-8, line by line."""
    code = ["import ctypes", "cuda = ctypes.CDLL('libcuda.so.1')", "context = ctypes.c_void_p()", "cuda.cuInit(0)",
            "cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)", "cuda.cuCtxSetCurrent(context)"]
    for number, letters in enumerate(("x" + 60 * "é", 90 * "日", "x" + 90 * "日", "xx" + 90 * "日", 100 * "é日", "x" + 100 * "é日")):
        code += [f"def f{number}{letters}():", "    return cuda.cuMemAlloc_v2(ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(2 << 20))",
                 f"f{number}{letters}()"]
    path, free, _ = PYTHONS[0]
    with tempfile.TemporaryDirectory() as folder:
        program = f"{folder}/{60 * '日'}.py"
        with open(program, "w", encoding="utf-8") as file:
            file.write("\n".join(code) + "\n")
        done = subprocess.run([VPOOL, "run", "--sim=1G", "--stacks", f"--trace={folder}/t.csv", "--dump=exit",
                               f"--dump-file={folder}/d-%n.json", path, program], env=ENV, check=True, timeout=300, capture_output=True)
        texts = [done.stderr]
        subprocess.run([VPOOL, "run", "--sim=1G", "--quiet", "--stacks", "--dump=exit", f"--dump-file={folder}/d.txt", path, program],
                       env=ENV, check=True, timeout=300)
        for name in "t.csv", "d-1.json", "d.txt":
            with open(f"{folder}/{name}", "rb") as file:
                texts.append(file.read())
        for text in texts:
            assert free or "日".encode() in text, text
            for line in text.splitlines():
                assert "\ufffd" not in line.decode("utf-8"), line


def python_recursion():
    each_python("deep", ways=("free",))


def python_threads():
    each_python("threads", ways=("free",))


def python_is_undisturbed():
    each_python("exceptions")
    each_python("traced", ways=("held",))


def python_forks():
    each_python("forks", ways=("free",))


def python_ends():
    for path, _, _ in PYTHONS:
        for way in ("held", "free"):
            for _ in range(2 if way == "free" else 1):
                trace, _, _ = python(path, way, "ends")
                assert trace.allocations(MIB)


def python_in_several_interpreters():
    for path, free, _ in PYTHONS:
        trace, expected, _ = python(path, "free", "interpreters")
        if not free:
            matches(trace, expected)


def python_greenlets():
    for path, free, _ in PYTHONS:
        if not free and not subprocess.run([path, "-c", "import greenlet"], capture_output=True).returncode:
            trace, expected, _ = python(path, "free", "greenlets")
            matches(trace, expected)


def python_with_native_frames():
    for path in [path for path, free, _ in PYTHONS if not free][:1]:
        trace, expected, _ = python(path, "free", "plain", stacks="1M,native")
        matches_python = [(size, [f for f in stack if f[0] == "p"]) for size, stack in trace.allocations(MIB)]
        assert all(s[0][0] == "c" and s[-1][0] == "p" for _, s in trace.allocations(MIB))
        assert [told(s)[1:] for _, s in matches_python][:3] == [f for _, f in expected][:3]


def python_embedded():
    for _, free, library in PYTHONS:
        if not library or free:
            continue
        trace, _ = run(EMBED, library, LD_LIBRARY_PATH=os.path.dirname(library))
        by_size = {size // MIB: stack for size, stack in trace.allocations(MIB)}
        assert [named(trace, by_size[n], EMBED)[:2] for n in (2, 5, 6)] == [["ask", "main"]] * 3, library
        for n in (3, 4):
            assert [f[1:] for f in told(by_size[n])] in ([["spin", "<string>"], ["<module>", "<string>"]], [["<module>", "<string>"]]), (
                library, by_size[n])


def an_odd_interpreter_is_left_alone():
    for which, said in (("free-threaded", "a free-threaded build"), ("later", "a version of Python that is not"),
                        ("undescribed", "does not describe itself"), ("another-table", "describes itself in another way"),
                        ("other-objects", "whose objects are not the usual ones")):
        trace, _ = run(ODD, which)
        (_, stack), = trace.allocations(MIB)
        assert stack[-1][0] == "t" and stack[-1][1].startswith("no Python stack: ") and said in stack[-1][1], (which, stack)
        assert named(trace, stack, ODD)[0] == "main", (which, stack)


if __name__ == "__main__":
    tap.run([holders_are_known, small_blocks_are_sampled, samples_keep_no_time_with_the_program,
             nothing_without_the_option, a_wrong_value_is_told, deep_recursion,
             threads_come_and_go, a_child_of_fork_has_a_trace_of_its_own, what_is_held_is_told,
             marks_and_ranges_are_recorded, what_comes_before_cuda_is_kept, ranges_have_a_peak, ranges_with_most_are_told, what_is_alive_at_the_end_is_told, the_peak_has_a_line,
             a_block_written_to_after_its_free_has_a_line,
             nvtx_is_taken_up,
             nvtx_is_left_alone, python_lines, python_code_that_comes_and_goes,
             python_names_of_any_kind, python_names_are_cut_between_characters, python_recursion, python_threads,
             python_is_undisturbed, python_forks, python_ends, python_in_several_interpreters, python_greenlets,
             python_with_native_frames, python_embedded, an_odd_interpreter_is_left_alone])
