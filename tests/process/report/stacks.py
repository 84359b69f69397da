#!/usr/bin/env python3
"""What traces with stacks, marks, ranges and several devices become: replay, report, export. Reports in TAP.

usage: stacks.py VPOOL

The traces are made by tests/traces/stacks.py, and read here by a few lines of Python that know nothing of the tool's reader.
"""
# SPDX-License-Identifier: Apache-2.0
import collections
import gzip
import json
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.parse
from pathlib import Path

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, os.path.join(HERE, "../../common"))
import tap

VPOOL = os.path.realpath(sys.argv[1])
TRACES = os.path.join(HERE, "../../traces")
DUMP = os.path.join(HERE, "oom.json")
# Of GCC 12 the leak check stumbles over the thread-local variables of libraries that are loaded late, as libdw is.
ENV = {k: v + (":intercept_tls_get_addr=0" if k == "ASAN_OPTIONS" else "") for k, v in os.environ.items() if not k.startswith("VPOOL_")}
# A sanitizer's runtime has to come first in programs that the library is loaded into.
RUNTIMES = os.environ.get("TEST_PRELOAD", "").split(":")[:-1]
UNDER = {"LD_PRELOAD": ":".join(RUNTIMES), "ASAN_OPTIONS": ENV.get("ASAN_OPTIONS", "") + ":detect_leaks=0"} if RUNTIMES else {}
FOLDER = tempfile.TemporaryDirectory()
HEADER = "op,id,size,stream,us\n"


def path(name):
    return os.path.join(FOLDER.name, name)


def vpool(*args, text=True, **more):
    env = ENV | UNDER if args[0] == "run" else ENV
    done = subprocess.run([VPOOL, *args], env=env, capture_output=True, text=text, timeout=300, stdin=subprocess.DEVNULL, cwd=FOLDER.name, **more)
    return done.returncode, done.stdout, done.stderr


def made(*args, text=True):
    status, out, err = vpool(*args, text=text)
    err = err if text else err.decode()
    assert status == 0 and all("native frames have no names" in line for line in err.splitlines()), (args, status, err)
    return out


def generated(name, **options):
    words = [word for key, value in options.items() for word in (f"--{key}", str(value))]
    subprocess.run([sys.executable, os.path.join(TRACES, "stacks.py"), *words, "-o", path(name)], check=True)
    return path(name)


def written(name, text):
    with open(path(name), "w") as file:
        file.write(HEADER + text)
    return path(name)


class Trace:
    """A trace as the format says it is."""

    def __init__(self, name):
        with open(name) as file:
            lines = [line.split(",") for line in file.read().splitlines()[1:]]
        self.frames, self.stacks, self.events, self.marks, self.ranges, self.held, self.failures = {}, {0: ()}, [], [], [], [], []
        for i, f in enumerate(lines):
            if f[0] in "nlmb":
                text = f[1] if f[0] in "mb" else f[3]
                for more in lines[i + 1:]:
                    if more[0] != "+":
                        break
                    text += more[3]
                text = urllib.parse.unquote(text)
            if f[0] == "n":
                self.frames[f[1]] = f[2], text
            elif f[0] == "s":
                self.stacks[int(f[1])] = self.stacks[int(f[2])] + (self.frames[f[3]],)
            elif f[0] in "af":
                self.events.append((f[0], int(f[1]), int(f[2]), int(f[5]) if len(f) > 5 else 0, int(f[4])))
            elif f[0] == "m":
                self.marks.append((text, int(f[4])))
            elif f[0] == "b":
                self.ranges.append(text)
            elif f[0] == "h":
                self.held.append((int(f[1]), int(f[2]), int(f[3])))
            elif f[0] == "x":
                self.failures.append(int(f[1]))

    def devices(self):
        return sorted({number >> 48 for _, number, *_ in self.events})

    def of(self, device):
        return [event for event in self.events if event[1] >> 48 == device]

    def peak(self, device=None):
        """Bytes, and what was live then: number -> (size, stack)."""
        live, now, most, then = {}, 0, 0, {}
        for op, number, size, stack, _ in self.events if device is None else self.of(device):
            if op == "a":
                live[number] = size, stack
                now += size
            else:
                now -= live.pop(number)[0]
            if now > most:
                most, then = now, dict(live)
        return most, then


def shown(frame):
    """What the tool calls a frame of Python, or one in words."""
    kind, text = frame
    if kind != "p":
        return text
    line, function, file = text.split(":", 2)
    return f"{os.path.basename(file)}:{line} {function}"


def line_of(stack):
    """The innermost line that is of no installed package."""
    own = [frame for frame in stack if frame[0] == "p" and "site-packages" not in frame[1]]
    return shown(own[-1]) if own else None


def by_line(trace, blocks):
    rows = collections.Counter()
    for size, stack in blocks:
        rows[line_of(trace.stacks[stack])] += size
    return rows


# ---- the reader ----

def refused(text, line, words):
    status, out, err = vpool("replay", written("bad.csv", text))
    assert status == 1 and f"bad.csv:{line}: " in err and words in err and err.count("\n") == 1, (text, err)


def what_is_no_trace_is_refused_by_line():
    refused("a,1,512,0,0\nq,1,2,3,4\n", 3, "unknown operation 'q'")
    refused("a,1,512,0,0,7\n", 2, "stack 7 is not defined")
    refused("s,1,0,5,0\n", 2, "frame 5 is not defined")
    refused("n,1,p,1:f:x.py,0\ns,2,1,1,0\n", 3, "stack 1 is not defined")
    refused("n,1,p,1:f:x.py,0\ns,0,0,1,0\n", 3, "stack 0")
    refused("n,1,z,x,0\n", 2, "unknown kind of frame 'z'")
    refused("n,1,c,1:10,0\ns,1,0,1,0\n", 3, "module 1 is not defined")
    refused("n,1,t,x,0\nn,1,t,y,0\na,1,512,0,0\n", 4, "frame 1 is defined already")
    refused("+,,,x,0\n", 2, "no text goes on")
    refused("h,0,many,1,0\n", 2, "'many' is not a valid size")
    refused("m,x,0,0\n", 2, "expected five fields")
    refused("e,,1,0,0,9\n", 2, "expected five fields")
    refused("n,1,t,x,0\n" + "".join(f"s,{i},{i - 1},1,0\n" for i in range(1, 9000)), 4099, "of more than 4096 frames")


def modules_that_are_no_files_are_left_alone():
    """A pipe that nobody writes to would be waited for, a device may do something."""
    os.mkfifo(path("pipe"))
    name = written("pipe.csv", f"l,1,ab,{path('pipe')},0\nn,1,c,1:10,0\ns,1,0,1,0\na,1,4096,0,0,1\n")
    assert made("export", "--collapsed", name) == "pipe+0x10 4096\n"


def old_traces_and_old_marks_are_read():
    name = written("old.csv", "m,100%_of it,0,0,0\na,1,4194304,0,0\nm,%zz,0,0,5\nf,1,0,0,9\n")
    about = index_of(page(name))["inputs"][0]
    assert about["marks"] == 2 and about["stacks"] == 1 and "as_it_ran" not in about and about["peak"]["holders"] == [], about
    assert names_of(page(name)) == ["100%_of it", "%zz"]


def text_goes_on_and_is_decoded():
    long = "x" * 500
    name = written("long.csv", f"n,1,p,7:f%2c:%22a%25.py,0\ns,1,0,1,0\nn,2,p,8:{long[:200]},0\n+,,,{long[200:]}:b.py,0\ns,2,1,2,0\na,1,4194304,0,0,2\n")
    frames = shared(page(name), "frames")
    assert frames == [["\"a%.py:7 f,", "\"a%.py", "p"], [f"b.py:8 {long}", "b.py", "p"]], frames


def what_is_no_text_stays_out_of_what_is_written():
    """Bytes that are no UTF-8, as Linux allows in paths and names of threads, and long names that are cut."""
    long = "日" * 2000
    with open(path("bytes.csv"), "wb") as file:
        file.write(HEADER.encode() + b"m,\xffmark\x80,1,0,0\nb,\xed\xb2\x80,1,0,0\nn,1,t,thread \xff%FE,0\ns,1,0,1,0\n" +
                   f"n,2,p,7:{long[:50]},0\n".encode() + "".join(f"+,,,{long[i:i + 50]},0\n" for i in range(50, 2000, 50)).encode() +
                   b"+,,,:a.py,0\ns,2,1,2,0\na,1,4194304,0,0,2\n")
    json.loads(made("export", "--perfetto", path("bytes.csv"), text=False).decode())
    made("export", "--collapsed", path("bytes.csv"), text=False).decode()
    made("export", "--pprof", "-o", path("bytes.pb.gz"), path("bytes.csv"))
    with gzip.open(path("bytes.pb.gz")) as file:
        for text in fields(file.read(), 6):
            text.decode()
    pickle.loads(made("export", "--snapshot", path("bytes.csv"), text=False))
    assert names_of(page(path("bytes.csv")))[:1] == ["?mark?"], names_of(page(path("bytes.csv")))


# ---- names ----

CODE = """
#include <stdio.h>
extern "C" void plain_c(void) { puts("c"); }
namespace space { struct Thing { void method(int n) { printf("%d", n); } __attribute__((noinline)) static void both(int a, char b); };
void Thing::both(int a, char b) { printf("%d%c", a, b); } }
extern "C" void _ZN4core3fmt5Write9write_str17h0123456789abcdefE(void) { puts("rust"); }
int main() { plain_c(); space::Thing::both(1, 'x'); _ZN4core3fmt5Write9write_str17h0123456789abcdefE(); }
"""


def native_frames_have_names():
    compiler = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if not compiler or not shutil.which("nm") or not shutil.which("readelf"):
        print("# there is no C++ compiler: left out")
        return
    with open(path("code.cc"), "w") as file:
        file.write(CODE)
    subprocess.run([compiler, "-g0", "-O0", "-Wl,--build-id", "-o", path("code"), path("code.cc")], check=True)
    table = subprocess.run(["nm", path("code")], capture_output=True, text=True, check=True).stdout
    place = {line.split()[2]: int(line.split()[0], 16) for line in table.splitlines() if len(line.split()) == 3}
    notes = subprocess.run(["readelf", "-n", path("code")], capture_output=True, text=True, check=True).stdout
    build_id = re.search(r"Build ID: ([0-9a-f]+)", notes).group(1)
    wanted = {"plain_c": "plain_c", "_ZN5space5Thing4bothEic": "space::Thing::both(int, char)",
              "_ZN4core3fmt5Write9write_str17h0123456789abcdefE": "core::fmt::Write::write_str"}
    for build, known in (build_id, True), ("", True), ("00" * 20, False):
        text = f"l,1,{build},{path('code')},0\n"
        for number, name in enumerate(wanted, 1):
            text += f"n,{number},c,1:{place[name] + 3:x},0\ns,{number},{number - 1},{number},0\n"
        out = page(written("native.csv", text + "a,1,4194304,0,0,3\n"))
        frames, complaint = [text for text, _, _ in shared(out, "frames")], index_of(out)["inputs"][0].get("complaint")
        if complaint and "libdw" in complaint:
            print("# there is no libdw.so.1: left out")
            return
        if known:
            assert frames == [name + " in code" for name in wanted.values()] and not complaint, (frames, complaint)
        else:
            assert all(frame.startswith("code+0x") for frame in frames) and "is not the one" in complaint, (frames, complaint)


# ---- replay ----

def replay_has_each_device_beside_what_ran():
    name = generated("two.csv", devices=2, events=3000)
    trace, said = Trace(name), json.loads(made("replay", "--json", name))
    assert [one["device"] for one in said] == trace.devices() == [0, 1]
    for one in said:
        device, (peak, _) = one["device"], trace.peak(one["device"])
        held = [(held, calls) for d, held, calls in trace.held if d == device]
        assert one["figures"] == "replayed" and one["peak_live_bytes"] == peak
        assert one["as_it_ran"] == {"peak_live_bytes": peak, "peak_held_bytes": max(h for h, _ in held), "driver_calls": held[-1][1],
                                    "failures": trace.failures.count(device)}, one
    rows = [line.split() for line in made("replay", name).splitlines()]
    assert [row[1] for row in rows[1:]] == ["0", "0", "1", "1"] and rows[1][2:5] == ["as", "it", "ran"] and rows[2][2] == "vpool"


def several_results_are_a_list_and_one_is_an_object():
    one = generated("one.csv", events=300)
    assert isinstance(json.loads(made("replay", "--json", one)), dict)
    for words in ([one, one], ["--policy", "vpool,native", one]):
        said = json.loads(made("replay", "--json", *words))
        assert isinstance(said, list) and len(said) == 2
    status, out, err = vpool("replay", "--json", one, path("none.csv"))
    assert status == 1 and len(json.loads(out)) == 1


def tiny_traces_have_no_ratio():
    row = made("replay", written("tiny.csv", "a,1,100,0,0\n")).splitlines()[1].split()
    assert row[5] == "-", row


# ---- the page ----

def page(*args):
    return made("report", "-o", "-", *args)


def index_of(text):
    return json.loads(re.search(r'id="index">([^<]*)<', text).group(1))


def shared(text, name, group=0):
    return json.loads(re.search(rf'id="g{group}\.{name}">([^<]*)<', text).group(1))


def names_of(text):
    return shared(text, "names")


def the_page_says_which_line_holds_most():
    name = generated("one.csv", events=4000, stacks=300)
    trace, about = Trace(name), index_of(page(name))["inputs"][0]
    peak, live = trace.peak()
    rows = by_line(trace, live.values())
    assert about["peak"]["bytes"] == peak
    for holder in about["peak"]["holders"]:
        if holder["line"] in rows:
            assert holder["bytes"] == rows[holder["line"]], holder
    largest = about["peak"]["holders"][0]
    assert largest["bytes"] == max(rows.values()) and rows[largest["line"]] == largest["bytes"], (largest, rows.most_common(3))


def the_pages_own_code_counts_the_same():
    if not shutil.which("node"):
        return print("# there is no node: left out")
    name = generated("two.csv", devices=2, events=3000, threads=2)
    with open(path("page.html"), "w") as file:
        file.write(page(name))
    done = subprocess.run(["node", os.path.join(HERE, "page.js"), path("page.html")], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    trace = Trace(name)
    for device, (run,) in enumerate(json.loads(done.stdout)):
        peak, live = trace.peak(device)
        wanted = by_line(trace, live.values())
        got = {line: size for line, size, _ in run["lines"]["peak"]}
        assert not run["faults"] and run["total"] == peak == sum(got.values())
        assert {k: v for k, v in wanted.items() if k} == {k: v for k, v in got.items() if k in wanted}
        assert run["ran"] == max(held for d, held, _ in trace.held if d == device)
        assert [mark["name"] for mark in run["marks"]] == [name for name, _ in trace.marks]
        assert sum(row["count"] for row in run["ranges"]) == len(trace.ranges)
        assert len(run["failures"]) == trace.failures.count(device)
        check_spans(trace, device, run)


def check_spans(trace, device, run):
    """What was asked for in a quarter of the events, and what of it was freed there again; what is left at the end."""
    events = trace.of(device)
    begin, end = len(events) // 4, len(events) // 2
    freed = {number: i for i, (op, number, *_) in enumerate(events) if op == "f"}
    span = [(i, e) for i, e in enumerate(events) if e[0] == "a" and begin <= i <= end]
    of = lambda question: sum(size for _, size, _ in run["lines"][question])
    assert of("allocated") == sum(e[2] for _, e in span)
    assert of("temporary") == sum(e[2] for _, e in span if freed.get(e[1], end + 1) <= end)
    assert of("end") == sum(e[2] for e in events if e[0] == "a" and e[1] not in freed)


def nothing_of_a_page_is_left_by_a_signal():
    name = generated("large.csv", events=400000, stacks=2000)
    for number in signal.SIGINT, signal.SIGTERM:
        program = subprocess.Popen([VPOOL, "report", "-o", path("never.html"), name], env=ENV, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + 30
        while not any(".tmp" in file for file in os.listdir(FOLDER.name)) and time.monotonic() < end and program.poll() is None:
            time.sleep(0.002)
        program.send_signal(number)
        assert program.wait(timeout=300) == -number
        assert not [file for file in os.listdir(FOLDER.name) if ".tmp" in file or "never" in file]


# ---- exports ----

def varint(data, at):
    n = shift = 0
    while True:
        n |= (data[at] & 127) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 128:
            return n, at


def message(data):
    """The fields of a protocol buffer, in order: number, and an integer or bytes."""
    at, fields = 0, []
    while at < len(data):
        tag, at = varint(data, at)
        value, at = varint(data, at)
        assert tag & 7 in (0, 2)
        if tag & 7:
            value, at = data[at:at + value], at + value
            assert len(data) >= at
        fields.append((tag >> 3, value))
    return fields


def fields(data, number):
    return [value for key, value in message(data) if key == number]


def pprof_reads_the_profile():
    name = generated("two.csv", devices=2, events=3000)
    made("export", "--pprof", "-o", path("profile.pb.gz"), name)
    with gzip.open(path("profile.pb.gz")) as file:
        data = file.read()
    assert gzip.decompress(made("export", "--pprof", name, text=False)) == data
    strings = [text.decode() for text in fields(data, 6)]
    types = [strings[fields(one, 1)[0]] for one in fields(data, 1)]
    assert strings[0] == "" and types == ["allocated_blocks", "allocated_space", "peak_blocks", "peak_space", "inuse_blocks", "inuse_space"]
    functions = {fields(one, 1)[0]: strings[fields(one, 2)[0]] for one in fields(data, 5)}
    lines = {fields(one, 1)[0]: message(fields(one, 4)[0]) for one in fields(data, 4)}
    assert all(dict(line)[1] in functions for line in lines.values())
    trace, sums, devices = Trace(name), [0] * 6, set()
    for sample in fields(data, 2):
        assert all(location in lines for location in fields(sample, 1)) and len(fields(sample, 2)) == 6
        sums = [a + b for a, b in zip(sums, fields(sample, 2))]
        devices |= {strings[dict(message(label))[2]] for label in fields(sample, 3) if strings[dict(message(label))[1]] == "device"}
    asked = {e[1]: e[2] for e in trace.events if e[0] == "a"}
    left = set(asked) - {e[1] for e in trace.events if e[0] == "f"}
    peak, live = trace.peak()
    assert sums == [len(asked), sum(asked.values()), len(live), peak, len(left), sum(asked[n] for n in left)], sums
    assert devices == {"0", "1"}
    tool = shutil.which("pprof")
    assert not tool or subprocess.run([tool, "-top", path("profile.pb.gz")], capture_output=True).returncode == 0


def collapsed_stacks_have_the_peak():
    name = generated("one.csv", events=3000)
    trace, rows = Trace(name), {}
    for line in made("export", "--collapsed", name).splitlines():
        stack, _, n = line.rpartition(" ")
        assert stack not in rows
        rows[stack] = int(n)
    peak, live = trace.peak()
    assert sum(rows.values()) == peak
    wanted = collections.Counter()
    for size, stack in live.values():
        if all(kind != "c" for kind, _ in trace.stacks[stack]):
            wanted[";".join(map(shown, trace.stacks[stack]))] += size
    assert all(rows[stack] == n for stack, n in wanted.items())


def snapshots_have_frames():
    name = generated("two.csv", devices=2, events=2000)
    trace, snapshot = Trace(name), pickle.loads(made("export", "--snapshot", name, text=False))
    assert len(snapshot["device_traces"]) == 2
    for device, events in enumerate(snapshot["device_traces"]):
        wanted = [trace.stacks[e[3]] for e in trace.of(device) if e[0] == "a"]
        got = [e["frames"] for e in events if e["action"] == "alloc"]
        assert len(wanted) == len(got) and all(e["device"] == device for e in events)
        for stack, frames in zip(wanted, got):
            assert len(stack) == len(frames)
            for (kind, text), frame in zip(reversed(stack), frames):
                assert kind == "c" or (kind == "t" and frame["name"] == text) or text == f"{frame['line']}:{frame['name']}:{frame['filename']}"
    live = sum(b["requested_size"] for s in snapshot["segments"] for b in s["blocks"] if b["state"] == "active_allocated")
    freed = {e[1] for e in trace.events if e[0] == "f"}
    assert live == sum(e[2] for e in trace.events if e[0] == "a" and e[1] not in freed)


def perfetto_has_marks_ranges_and_stacks():
    name = generated("two.csv", devices=2, events=2000, threads=2)
    trace = Trace(name)
    made("export", "--perfetto", "-o", path("two.json.gz"), name)
    with gzip.open(path("two.json.gz")) as file:
        events = json.load(file)["traceEvents"]
    assert [(e["name"], e["ph"]) for e in events if e.get("cat") == "mark"] == [(name, "i") for name, _ in trace.marks]
    assert [e["name"] for e in events if e.get("cat") == "range"] == trace.ranges
    assert all("stack" in e["args"] and "line" in e["args"] for e in events if e.get("cat") == "block" and e["ph"] == "b")
    assert max(e["args"]["bytes"] for e in events if e["name"] == "held as it ran") == max(held for _, held, _ in trace.held)
    assert {e["pid"] for e in events if e["ph"] == "C"} == {1, 2}


def two_formats_at_once_are_an_error():
    name = generated("one.csv", events=300)
    for words in (["--perfetto", "--rmm"], ["--pprof", "--collapsed"]):
        status, out, err = vpool("export", *words, name)
        assert status == 2 and not out and "one format at a time" in err and err.count("\n") == 1
    assert vpool("export", "--rmm", "--rmm", name)[0] == 0
    for format in "--pprof", "--collapsed":
        assert vpool("export", format, DUMP)[0] == 2


# ---- run --report ----

def a_run_ends_in_a_page():
    """Whatever becomes of the program, the page is of what it did; its status is the program's."""
    program = os.path.join(os.path.dirname(VPOOL), "examples/train_runtime")
    if not os.path.exists(program):
        return print("# the examples are not built: left out")
    status, _, err = vpool("run", "--sim", f"--report={path('run.html')}", "--", program, "--steps", "3")
    lines = err.splitlines()
    assert status == 0 and len(lines) == 3 and all(line.startswith("vpool: ") for line in lines), err
    assert "alive" in lines[0] and "peak was" in lines[1] and path("run.html") in lines[2], err
    about = index_of(open(path("run.html")).read())["inputs"]
    assert len(about) == 1 and about[0]["events"] > 100 and re.fullmatch(r"train_runtime-\d+\.csv", about[0]["name"]), about[0]["name"]
    _, _, err = vpool("run", "--sim", "--stats=1", f"--report={path('run.html')}", "--", program, "--steps", "3")
    assert "device 0: peak live" in err and re.findall("look: .*", err) == [f"look: open {path('run.html')} in a browser"], err
    script = f"{program} --steps 3 >/dev/null; {program} --steps 3 >/dev/null; kill -TERM $$"
    status, _, err = vpool("run", "--sim", "--quiet", f"--report={path('killed.html')}", "--", "sh", "-c", script)
    assert status == -signal.SIGTERM and not err and len(index_of(open(path("killed.html")).read())["inputs"]) == 2, (status, err)


def a_run_finds_its_traces():
    """Wherever the program goes, and whatever the folders are called; without, a page cannot be made, and the run was for nothing."""
    program = os.path.join(os.path.dirname(VPOOL), "examples/train_runtime")
    os.makedirs(path("go/sub"))
    os.makedirs(path("go/%p"))
    go = ["--", "sh", "-c", f"cd {path('go/sub')} && exec {program} --steps 3 >/dev/null"]

    def run(**more):
        done = subprocess.run([VPOOL, "run", "--sim", "--report=page.html", *go], env=ENV | UNDER | more, capture_output=True, text=True,
                              timeout=300, cwd=path("go"), preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
        assert done.returncode == 0 and "peak was" in done.stderr, (more, done)
        assert index_of(open(path("go/page.html")).read())["inputs"][0]["events"] > 100
        os.unlink(path("go/page.html"))
    for more in {"TMPDIR": "."}, {"TMPDIR": path("go/%p")}, *({"VPOOL_TRACE": t} for t in ("a-%p.csv", path("go/%p-%p.csv.gz"), "%h.%r-%p.csv", "%r%p%r.%p.csv")):
        run(**more)
    assert len(os.listdir(path("go"))) == 6 and not os.listdir(path("go/sub")), os.listdir(path("go"))


def a_page_that_cannot_be_is_told_of_before_the_run():
    for page, wanted in (path("no/page.html"), 1), (FOLDER.name, 1), ("", 2):
        status, out, err = vpool("run", "--sim", f"--report={page}", "--", "sh", "-c", "echo ran")
        assert status == wanted and not out and err.count("\n") == 1, (page, status, out, err)
    status, out, err = vpool("run", "--sim", f"--report={path('p.html')}", "--trace=%p/t.csv", "--", "sh", "-c", "echo ran")
    assert status == 1 and not out and err.count("\n") == 1 and "%p" in err, err


def a_run_without_allocations_says_so():
    status, _, err = vpool("run", "--sim", f"--report={path('none.html')}", "--", "sh", "-c", "exit 7")
    assert status == 7 and err.count("\n") == 1 and "vpool doctor -- sh" in err and not os.path.exists(path("none.html")), err
    assert vpool("run", "--sim", f"--report={path('none.html')}", "--", "no-such-program")[0] == 127


# ---- dumps ----

ALLOCATES = """
import ctypes
rt = ctypes.CDLL("libcudart.so.13")
def malloc(mib): rt.cudaMalloc(ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(mib << 20))
def weights(): malloc(8), malloc(8)
def leak(): malloc(3)
weights(), leak(), malloc(1)
"""
WHO = {8: ["malloc", "weights", "<module>"], 3: ["malloc", "leak", "<module>"], 1: ["malloc", "<module>"]}


def dumped(name, *program, stacks="1M"):
    made("run", "--sim", "--quiet", f"--stacks={stacks}", "--dump=exit", f"--dump-file={path(name)}", "--", *program)
    with open(path(name)) as file:
        return json.load(file)


def the_blocks_of_a_dump_have_their_stacks():
    Path(path("alloc.py")).write_text(ALLOCATES)
    dump = dumped("python.json", sys.executable, path("alloc.py"))
    frames, stacks = {f["frame"]: f for f in dump["frames"]}, {s["stack"]: s for s in dump["stacks"]}
    live = [r for r in dump["devices"][0]["regions"] if r["state"] == "live"]
    assert sorted(r["asked"] >> 20 for r in live) == [1, 3, 8, 8], live
    for region in live:
        at, names = region["stack"], []
        while at:
            assert stacks[at]["parent"] < at
            names.append(frames[stacks[at]["frame"]]["function"])
            at = stacks[at]["parent"]
        assert names == WHO[region["asked"] >> 20], names
    assert len(frames) == 4 and len(stacks) == 6, (frames, stacks)  # each once
    got = pickle.loads(made("export", "--snapshot", path("python.json"), text=False))
    blocks = [b for s in got["segments"] for b in s["blocks"] if b["state"] == "active_allocated"]
    assert sorted((b["requested_size"] >> 20, [f["name"] for f in b["frames"]]) for b in blocks) == sorted(
        (r["asked"] >> 20, WHO[r["asked"] >> 20]) for r in live), blocks
    assert dumped("typed.json", sys.executable, "-c", ALLOCATES)["frames"][0]["file"] == "<string>"


def a_pages_dump_names_native_code():
    if not shutil.which("cc") or not shutil.which("node"):
        return print("# there is no node, or no compiler: left out")
    Path(path("native.c")).write_text("int cudaMalloc(void **, unsigned long);\nvoid *held;\n__attribute__((noinline)) void grows(void) { cudaMalloc(&held, 8 << 20); "
                                      "__asm__(\"\"); }\nint main(void) { grows(); grows(); return 0; }\n")
    sim = os.path.join(os.path.dirname(VPOOL), "sim")
    subprocess.run(["cc", "-O1", "-g", "-o", path("native"), path("native.c"), f"-L{sim}", "-lcudart", f"-Wl,-rpath,{sim}"], check=True)
    dumped("native.json", path("native"))
    for name, where in ("native.json", "native.c:3 grows"), ("python.json", "alloc.py:4 malloc"), ("typed.json", "<string>:4 malloc"):
        with open(path("dump.html"), "w") as file:
            file.write(page(path(name)))
        done = subprocess.run(["node", os.path.join(HERE, "page.js"), path("dump.html")], capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        ((run,),) = json.loads(done.stdout)
        assert [line[0] for line in run["lines"]] == [where] and run["blocks"] and all(b[1] == where and b[2] > 1 for b in run["blocks"]), (where, run)


def a_dump_whose_stacks_are_wrong_is_refused():
    def refused(words, **more):
        dump = {"format": "vpool-dump", "version": 1, "devices": [{"device": 0, "regions": [{"addr": "0x1000", "size": 4096, "state": "live", "stack": 2}]}],
                "frames": [{"frame": 1, "function": "f", "file": "a.py", "line": 3}], "stacks": [{"stack": 2, "parent": 0, "frame": 1}]} | more
        with open(path("wrong.json"), "w") as file:
            json.dump(dump, file)
        status, _, err = vpool("export", "--perfetto", path("wrong.json"))
        assert (status, err.count("\n")) == ((1, 1) if words else (0, 0)) and words in err, (more, status, err)
    refused("")
    refused("names a stack that is missing", stacks=[])
    refused("that is missing", frames=[])
    refused("that is missing", stacks=[{"stack": 2, "parent": 3, "frame": 1}, {"stack": 3, "parent": 2, "frame": 1}])
    refused("that is missing", stacks=[{"stack": 2, "parent": 2, "frame": 1}])
    refused("is missing", stacks=[{"stack": 0, "parent": 0, "frame": 1}])
    refused("is missing", stacks=[{"stack": 2**64 - 1, "parent": 0, "frame": 2**64 - 1}])
    refused("two of its stacks have the same number", stacks=[{"stack": n, "parent": p, "frame": 1} for n, p in ((1, 0), (2, 1), (1, 2))])
    refused("too deep", stacks=[{"stack": i + 1, "parent": i, "frame": 1} for i in range(5000)])
    refused("", frames=[{"frame": 1}])
    refused("", frames=[{"frame": 1, "text": "x", "file": "y", "line": 2**70}])


TESTS = [what_is_no_trace_is_refused_by_line, modules_that_are_no_files_are_left_alone, old_traces_and_old_marks_are_read, text_goes_on_and_is_decoded,
         what_is_no_text_stays_out_of_what_is_written, native_frames_have_names, replay_has_each_device_beside_what_ran,
         several_results_are_a_list_and_one_is_an_object, tiny_traces_have_no_ratio, the_page_says_which_line_holds_most,
         the_pages_own_code_counts_the_same, nothing_of_a_page_is_left_by_a_signal, pprof_reads_the_profile, collapsed_stacks_have_the_peak,
         snapshots_have_frames, perfetto_has_marks_ranges_and_stacks, two_formats_at_once_are_an_error, a_run_ends_in_a_page, the_blocks_of_a_dump_have_their_stacks,
         a_pages_dump_names_native_code, a_dump_whose_stacks_are_wrong_is_refused, a_run_finds_its_traces, a_page_that_cannot_be_is_told_of_before_the_run, a_run_without_allocations_says_so]

tap.run(TESTS)
