#!/usr/bin/env python3
"""vpool report and vpool export. Reports in TAP.

usage: report.py VPOOL

Reads what they write by other means than those that wrote it: a decoder of the page's columns in Python, the page's own in
node where there is one, pickle and json. A browser is not needed; scripts/report-check has one.
"""
# SPDX-License-Identifier: Apache-2.0
import base64
import collections
import gzip
import io
import json
import os
import pickle
import pickletools
import re
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "../../common"))
import tap

VPOOL = os.path.realpath(sys.argv[1])
HERE = os.path.dirname(os.path.realpath(__file__))
TRACES = os.path.join(HERE, "../../traces")
SCRIPTS = os.path.join(HERE, "../../../scripts")
FSDP, GPT2, RMM = (os.path.join(TRACES, name) for name in ("fsdp.csv.gz", "gpt2-R-var.csv.gz", "rmm.csv"))
DUMPS = [os.path.join(HERE, name) for name in ("oom.json", "run.json")]
ENV = {k: v for k, v in os.environ.items() if not k.startswith("VPOOL_")}
FOLDER = tempfile.TemporaryDirectory()


def vpool(*args, text=True):
    done = subprocess.run([VPOOL, *args], env=ENV, capture_output=True, text=text, timeout=240, stdin=subprocess.DEVNULL, cwd=FOLDER.name)
    return done.returncode, done.stdout, done.stderr


def made(*args, text=True):
    """What a command that succeeds writes."""
    status, out, err = vpool(*args, text=text)
    assert status == 0 and not err, (args, status, err)
    return out


def path(name):
    return os.path.join(FOLDER.name, name)


def page(*args):
    return made("report", "-o", "-", *args)


def replayed(trace, *policies):
    """What vpool replay says, by policy."""
    said = json.loads(made("replay", "--json", "--policy", ",".join(policies), trace))
    return {one["policy"]: one for one in (said if isinstance(said, list) else [said])}


# ---- the page ----

class Column:
    def __init__(self, text, name):
        self.bytes = iter(base64.b64decode(re.search(f'id="{re.escape(name)}">([^<]*)<', text).group(1)))

    def next(self):
        n, shift = 0, 0
        for byte in self.bytes:
            n |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return n
        raise AssertionError("a column ends early")

    def signed(self):
        n = self.next()
        return n >> 1 ^ -(n & 1)

    def over(self):
        return next(self.bytes, None) is None


def index_of(text):
    return json.loads(re.search(r'id="index">([^<]*)<', text).group(1))


def the_page_needs_nothing_else():
    for text in page(RMM, DUMPS[0]), page(FSDP):
        head = text.partition("<script type=")[0]
        assert "default-src 'none'" in head, "no policy keeps the page from the network"
        assert not re.search(r"\b(?:src|href)=[\"']?(?!#|data:)[^\s\"'>]", text), "refers to a file"
        assert not re.search(r"https?://|url\((?!data:)|@import|fetch\(|XMLHttpRequest|WebSocket", text), "refers to the network"
        assert text.count("<!-- style -->") + text.count("<!-- script -->") == 0 and text.rstrip().endswith("</html>")


def the_page_has_what_replay_says():
    policies = ["vpool", "bfc", "es", "gmlake", "vpmm"]
    text, said = page("--policy", ",".join(policies), FSDP), replayed(FSDP, *policies)
    about = index_of(text)["inputs"][0]
    with gzip.open(FSDP, "rt") as file:
        events = [line.split(",") for line in file.read().splitlines()[1:]]
    assert about["events"] == len(events) and [run["policy"] for run in about["runs"]] == policies
    blocks, sizes, streams, times = (Column(text, f"0.{name}") for name in ("blocks", "sizes", "streams", "times"))
    asked, order, numbers, clock = [], [], {}, int(events[0][4])
    latest = clock
    for op, number, size, stream, us in events:
        ago = blocks.next()
        assert (ago == 0) == (op == "a")
        if ago:
            order.append(len(asked) - ago)
            assert order[-1] == numbers.pop(number)
        else:
            numbers[number] = len(asked)
            order.append(len(asked))
            asked.append(sizes.next())
            assert asked[-1] == int(size)
        streams.next()
        clock, latest = clock + times.next(), max(latest, int(us))
        assert clock == latest
    assert blocks.over() and sizes.over() and streams.over() and times.over()
    for run in about["runs"]:
        check_run(text, run, said[run["policy"]], asked, order)


def check_run(text, run, said, asked, order):
    for figure in "peak_live_bytes", "peak_held_bytes", "ooms", "passed_on":
        assert run[figure] == said[figure], (run["policy"], figure)
    name = "0." + run["policy"] + "."
    places, mappings, samples, calls = (Column(text, name + column) for column in ("places", "mappings", "samples", "calls"))
    served, place, last = {}, {}, 0
    for block, size in enumerate(asked):
        more = places.next()
        if more:
            last += places.signed() * 512
            served[block], place[block] = size, (last, size + more - 1)
    live, peak, alive, changes = 0, 0, set(), collections.Counter()
    for block in order:
        live += 0 if block not in served else -served[block] if block in alive else served[block]
        alive ^= {block}
        peak = max(peak, live)
    assert places.over() and peak == said["peak_live_bytes"], (run["policy"], peak)
    start = address = 0
    for _ in range(run["mappings"]):
        start += mappings.next()
        length, current = divmod(mappings.next(), 2)
        address += mappings.signed() * run["granularity"]
        size = mappings.next() * run["granularity"]
        mappings.signed()
        if current:
            changes[start] += size
            changes[start + length] -= size
    held, most, at = 0, 0, {}
    for event in range(len(order)):
        held += changes[event]
        most, at[event] = max(most, held), held
    assert mappings.over() and most == said["peak_held_bytes"], (run["policy"], most)
    event = 0
    for _ in range(run["samples"]):
        event += samples.next()
        assert sum(samples.next() for _ in range(5)) == at[event], (run["policy"], event)
    assert samples.over() and event == len(order) - 1
    total = [0] * 9
    for _ in range(run["calls"]):
        calls.next()
        total = [a + calls.next() for a in total]
        calls.next()
    names = ["reserve", "create", "map", "set_access", "unmap", "release"]
    assert calls.over()
    # At its end a replay frees what the trace leaves live, which may call, too.
    assert all(0 <= said["driver_calls"][name] - total[i] for i, name in enumerate(names)), (run["policy"], total, said["driver_calls"])


def the_pages_own_code_agrees():
    if not shutil.which("node"):
        print("# there is no node: left out")
        return
    policies = ["vpool", "gmlake", "bfc"]
    for trace in FSDP, GPT2, RMM:
        with open(path("page.html"), "w") as file:
            file.write(page("--policy", ",".join(policies), trace, *DUMPS))
        done = subprocess.run(["node", os.path.join(HERE, "page.js"), path("page.html")], capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, done.stderr
        (*runs,), *dumps = json.loads(done.stdout)
        said = replayed(trace, *policies)
        for run in runs:
            assert not run["faults"], (trace, run["policy"], run["faults"])
            for figure in "peak_live_bytes", "peak_held_bytes":
                assert run[figure] == said[run["policy"]][figure], (trace, run["policy"], figure)
        for name, devices in zip(DUMPS, dumps):
            with open(name) as file:
                wanted = json.load(file)["devices"][0]
            sizes = {2 ** b["power"]: (b["live"], b["liveBytes"], b["free"], b["freeBytes"]) for b in devices[0]["sizes"]["buckets"]}
            assert sizes == {s["from"]: (s["live"], s["live_bytes"], s["free"], s["free_bytes"]) for s in wanted["sizes"]}, name


def what_the_charts_draw_can_be_read():
    """A failure is often the last that a trace has. Room for the numbers beside the axis is for nine narrow letters."""
    if not shutil.which("node"):
        return print("# there is no node: left out")
    with open(path("last.csv"), "w") as file:
        file.write("op,id,size,stream,us\nm,first,1,0,0\na,1,4096,0,10\na,2,4096,0,20\na,3,4096,0,30\nm,last,1,0,40\nx,0,99999999,0,50\n")
    with open(path("page.html"), "w") as file:
        file.write(page(path("last.csv")))
    done = subprocess.run(["node", os.path.join(HERE, "drawn.js"), path("page.html")], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    drawn = json.loads(done.stdout)
    lines = {colour: [x for c, x in drawn["lines"] if c == colour] for colour in ("--mark", "--pinned")}
    assert [len(at) for at in lines.values()] == [2, 1] and all(drawn["from"] <= x <= drawn["to"] - 0.5 for at in lines.values() for x in at), drawn["lines"]
    for size, texts in drawn["scales"].items():
        assert 2 <= len(texts) <= 6 and max(map(len, texts)) <= 8, (size, texts)


def large_recordings_are_shown_as_they_are():
    if not shutil.which("node"):
        return print("# there is no node: left out")
    with open(path("page.html"), "w") as file:
        file.write(page(RMM))
    done = subprocess.run(["node", os.path.join(HERE, "large.js"), path("page.html")], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and not done.stdout, done.stdout + done.stderr


def a_dump_is_in_the_page():
    text = page(*DUMPS)
    for number, name in enumerate(DUMPS):
        with open(name, "rb") as file:
            assert base64.b64decode(re.search(f'id="{number}.dump">([^<]*)<', text).group(1)) == file.read()


def names_are_no_markup():
    name = path("<script>alert(1)<b>\"&.csv")
    shutil.copy(RMM, name)
    text = page(name)
    assert "alert(1)<b>" not in text and index_of(text)["inputs"][0]["name"] == os.path.basename(name)


def names_that_are_no_utf8_can_be_read():
    name = os.fsencode(path("")) + b"\xff\n.csv"
    shutil.copy(RMM, name)
    for about, read in ("--snapshot", pickle.loads), ("--perfetto", json.loads):
        done = subprocess.run([VPOOL, "export", about, name], capture_output=True, env=ENV, timeout=300)
        assert done.returncode == 0 and read(done.stdout), done


# ---- exports ----

def in_order(trace):
    """A trace with its allocations and streams numbered in order: what matters of it."""
    live, streams, events, made_so_far = {}, {}, [], 0
    opened = gzip.open if trace.endswith(".gz") else open
    with opened(trace, "rt") as file:
        lines = [line.split(",") for line in file.read().splitlines()]
    rmm = lines[0][0] == "Thread"
    for fields in lines[1:]:
        if rmm:
            action, key, size, stream = fields[2] == "allocate", fields[3], int(fields[4]), fields[5]
            if not size or fields[2] == "allocate failure":
                continue
        else:
            action, key, size, stream = fields[0] == "a", fields[1], int(fields[2]), fields[3]
        if action:
            live[key] = made_so_far
            made_so_far += 1
        number = live[key] if action else live.pop(key)
        events.append((action, number, size if action else 0, streams.setdefault(stream, len(streams))))
    return events


def without_times(said):
    return {k: v for k, v in said.items() if k not in ("trace", "malloc_ns", "free_ns", "metadata_bytes")}


def rmm_is_read_back_the_same():
    for trace in FSDP, RMM, GPT2:
        with open(path("log.csv"), "w") as file:
            file.write(made("export", "--rmm", trace))
        assert in_order(path("log.csv")) == in_order(trace), trace
        assert without_times(replayed(path("log.csv"), "vpool")["vpool"]) == without_times(replayed(trace, "vpool")["vpool"]), trace
    with open(path("again.csv"), "w") as file:
        file.write(made("export", "--rmm", "--policy", "bfc", path("log.csv")))
    times = [[line.split(",")[1] for line in open(path(name)).read().splitlines()] for name in ("log.csv", "again.csv")]
    assert times[0] == times[1] and in_order(path("again.csv")) == in_order(GPT2)


def perfetto_reads_counters_and_slices():
    events = json.loads(made("export", "--perfetto", FSDP))["traceEvents"]
    said = replayed(FSDP, "vpool")["vpool"]
    counters = collections.defaultdict(list)
    for e in events:
        assert e["ph"] in "MCXbe", e
        if e["ph"] == "C":
            counters[e["name"]].append((e["ts"], e["args"]["bytes"]))
    assert set(counters) == {"live", "held", "waste: internal", "waste: pinned", "waste: pending", "waste: idle"}
    assert max(n for _, n in counters["live"]) == said["peak_live_bytes"] and max(n for _, n in counters["held"]) == said["peak_held_bytes"]
    assert all(at == sorted(at) for at in ([ts for ts, _ in all_of] for all_of in counters.values()))
    begun = collections.Counter((e["ph"], e["id"]) for e in events if e["ph"] in "be")
    assert all(n == 1 for n in begun.values()) and all(("b", number) in begun for _, number in begun)
    slices = [e for e in events if e["ph"] == "X"]
    assert len(slices) > 100 and any("cuMemCreate" in e["args"] for e in slices)
    # The first calls of all, which make the pool's first memory, take time like the others.
    assert all(e["args"]["modelled_us"] > 0 for e in slices if "cuMemCreate" in e["args"])
    assert abs(sum(e["args"]["modelled_us"] for e in slices) - said["driver_us"]) < said["driver_us"] / 1000, said["driver_us"]
    ends = collections.Counter()
    for e in slices:
        assert e["ts"] >= ends[e["tid"]] - 0.001, "slices of a stream overlap"
        ends[e["tid"]] = e["ts"] + e["dur"]


# What the reader in PyTorch's viewer knows, of what is written here.
VIEWER = {"PROTO", "EMPTY_DICT", "EMPTY_LIST", "MARK", "BINUNICODE", "BINPUT", "BINGET", "BININT", "BININT1", "BININT2", "LONG1",
          "SETITEMS", "APPENDS", "TUPLE2", "NEWTRUE", "NEWFALSE", "STOP"}


def walk_back(snapshot):
    """As the viewer does: from the end back to the beginning. Every block must lie in a segment, always; nothing is left."""
    held, blocks, peak = set(), {}, 0
    step = 2 << 20
    for s in snapshot["segments"]:
        held |= set(range(s["address"], s["address"] + s["total_size"], step))
        at = s["address"]
        for b in s["blocks"]:
            assert b["address"] == at
            at += b["size"]
            if b["state"] == "active_allocated":
                blocks[b["address"]] = b["requested_size"]
        assert at == s["address"] + s["total_size"]
        assert s["requested_size"] == sum(b["requested_size"] for b in s["blocks"])
    for e in reversed(snapshot["device_traces"][0]):
        part = set(range(e["addr"], e["addr"] + e["size"], step)) if e["action"].startswith("segment") else None
        if e["action"] == "segment_unmap":
            assert not part & held
            held |= part
        elif e["action"] == "segment_map":
            assert part <= held
            held -= part
        elif e["action"] == "free_completed":
            assert e["addr"] not in blocks and e["addr"] // step * step in held and (e["addr"] + e["size"] - 1) // step * step in held, e
            blocks[e["addr"]] = e["size"]
        elif e["action"] == "alloc":
            assert blocks.pop(e["addr"]) == e["size"]
        peak = max(peak, len(held) * step)
    assert not blocks and not held
    return peak


def memory_viz_reads_snapshots():
    for trace in FSDP, RMM:
        data = made("export", "--snapshot", trace, text=False)
        assert {op.name for op, _, _ in pickletools.genops(io.BytesIO(data))} <= VIEWER
        snapshot = pickle.loads(data)
        assert set(snapshot) >= {"segments", "device_traces"} and len(snapshot["device_traces"]) == 1
        assert {e["action"] for e in snapshot["device_traces"][0]} <= {"alloc", "free_requested", "free_completed", "segment_map", "segment_unmap"}
        assert walk_back(snapshot) == replayed(trace, "vpool")["vpool"]["peak_held_bytes"]
        with open(path("snapshot.pickle"), "wb") as file:
            file.write(data)
        subprocess.run([sys.executable, os.path.join(SCRIPTS, "snapshot-to-trace"), path("snapshot.pickle"), path("back.csv")], check=True)
        assert in_order(path("back.csv")) == in_order(trace), trace


def dumps_are_exported():
    for name in DUMPS:
        with open(name) as file:
            device = json.load(file)["devices"][0]
        live = [r for r in device["regions"] if r["state"] == "live"]
        lines = made("export", "--rmm", name).splitlines()[1:]
        assert [(line.split(",")[3], int(line.split(",")[4])) for line in lines] == [(r["addr"], r["asked"]) for r in live]
        snapshot = pickle.loads(made("export", "--snapshot", name, text=False))
        assert sum(s["total_size"] for s in snapshot["segments"]) == device["held_bytes"]
        assert sum(s["requested_size"] for s in snapshot["segments"]) == device["live_bytes"]
        counters = {e["name"]: e["args"]["bytes"] for e in json.loads(made("export", "--perfetto", name))["traceEvents"] if e["ph"] == "C"}
        assert counters["held"] == device["held_bytes"] and counters["waste: pinned"] == device["waste"]["pinned"]


# ---- what goes wrong ----

def broken(*args):
    """Exit status 1, one line that names file and line, and nothing left behind."""
    before = sorted(os.listdir(FOLDER.name))
    status, out, err = vpool(*args)
    assert status == 1 and not out and err.count("\n") == 1, (args, status, out, err)
    assert sorted(os.listdir(FOLDER.name)) == before, (args, "something is left")
    return err


def broken_input_leaves_nothing():
    cases = {"cut.csv": "op,id,size,stream,us\na,1,512,0,0\nf,2,0,0,1\n", "cut.json": open(DUMPS[0]).read()[:2000], "other.json": '{"format": "x"}',
             "new.json": '{"format": "vpool-dump", "version": 99}',
             "mixed.json": '{"format": "vpool-dump", "version": 1, "devices": [{"regions": [{"addr": "0x2000", "size": 512, "state": "live"}, {"addr": "0x1000", "size": 512, "state": "free"}]}]}'}
    for name, text in cases.items():
        with open(path(name), "w") as file:
            file.write(text)
        for command in ["report", "-o", path("broken.html")], ["report", "-o", "-"], *(["export", f, "-o", path("broken.out")] for f in ("--rmm", "--snapshot", "--perfetto")):
            if command[2] == "-":
                continue
            err = broken(*command, path(name))
            assert re.search(rf"{re.escape(name)}:\d+: ", err), err
    assert re.search(r"cut\.csv:3: ", broken("report", "-o", path("x.html"), path("cut.csv")))
    assert re.search(r"cut\.json:\d\d+: ", broken("export", "--rmm", path("cut.json")))
    broken("report", path("nothing.csv"))
    broken("report", RMM, path("nothing.csv"))
    broken("report", "-o", path("no/such/folder.html"), RMM)
    with open(path("kept.html"), "w") as file:
        file.write("before")
    broken("report", "-o", path("kept.html"), RMM, path("cut.csv"))
    assert open(path("kept.html")).read() == "before"


def wrong_arguments_get_one_line():
    for args in ((), ("--nothing",), ("--policy", "nothing", RMM), ("--policy", "native", RMM), ("--capacity", "lots", RMM), ("--capacity", "1K", RMM),
                 ("--capacity", "65T", RMM), ("-o",)):
        status, out, err = vpool("report", *args)
        assert status == 2 and not out and err.count("\n") == 1, args
    for args in ((), (RMM,), ("--rmm",), ("--rmm", RMM, RMM), ("--rmm", "--policy", "vpool,bfc", RMM), ("--rmm", "--policy", "native", RMM), ("--nothing", RMM)):
        status, out, err = vpool("export", *args)
        assert status == 2 and not out and err.count("\n") == 1, args


def the_page_is_where_it_was_asked_for():
    assert made("report", RMM) == "report.html\n" and os.path.exists(path("report.html"))
    assert made("report", "--output", path("other.html"), RMM) == path("other.html") + "\n"
    assert index_of(open(path("other.html")).read())["inputs"][0]["name"] == "rmm.csv"
    made("export", "--rmm", "-o", "/dev/null", RMM)


TESTS = [the_page_needs_nothing_else, the_page_has_what_replay_says, the_pages_own_code_agrees, what_the_charts_draw_can_be_read, large_recordings_are_shown_as_they_are, a_dump_is_in_the_page, names_are_no_markup, names_that_are_no_utf8_can_be_read,
         rmm_is_read_back_the_same, perfetto_reads_counters_and_slices, memory_viz_reads_snapshots, dumps_are_exported, broken_input_leaves_nothing,
         wrong_arguments_get_one_line, the_page_is_where_it_was_asked_for]

tap.run(TESTS)
