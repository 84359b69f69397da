#!/usr/bin/env python3
"""Dumps of programs on the simulated driver. Reports in TAP.

usage: dumps.py VPOOL GUEST LIBRARY SCHEMA
From the environment: TEST_PRELOAD (a sanitizer's runtime may stand in it before libvpool.so).

Each dump is held against the schema, and against what must be true of a pool: its regions share its addresses out
among them, and every total is the sum of what it stands for.
"""
# SPDX-License-Identifier: Apache-2.0
import contextlib
import glob
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "../../common"))
import tap
from schema import fits

VPOOL, GUEST, LIBRARY, SCHEMA = map(os.path.realpath, sys.argv[1:5])
MIB = 1 << 20
ENV = {k: v for k, v in os.environ.items() if not k.startswith(("VPOOL_", "LD_"))} | {"VPOOL_PAGE": "0"}
RUNTIMES = os.environ.get("TEST_PRELOAD", "").split(":")[:-1]
if RUNTIMES:
    ENV["LD_PRELOAD"] = ":".join(RUNTIMES)
    ENV["ASAN_OPTIONS"] = ENV.get("ASAN_OPTIONS", "") + ":detect_leaks=0"

with open(SCHEMA) as schema_file:
    schema = json.load(schema_file)


# ---- what a dump must be like

def log2(size):
    return size.bit_length() - 1


def holds_together(d):
    """What vp_pool_check() proves of a pool, as far as a dump shows it."""
    spaces = [(int(s["base"], 16), s["size"]) for s in d["spaces"]]
    assert spaces == sorted(spaces) and all(a + n <= b for (a, n), (b, _) in zip(spaces, spaces[1:])), spaces
    regions = [(int(r["addr"], 16), r["size"], r) for r in d["regions"]]
    starts = {base for base, _ in spaces}
    regions_share_spaces(spaces, regions)
    regions_are_right(d, regions, starts)
    bytes_add_up(d)
    sizes_are_counted(d, regions, starts)

    worst = [p["free_bytes"] for p in d["obstacles"]["pinned"]]
    assert worst == sorted(worst, reverse=True) and sum(worst) <= d["waste"]["pinned"] and bool(worst) == bool(d["waste"]["pinned"])
    waited = [w["bytes"] for w in d["obstacles"]["waits_for"]]
    assert waited == sorted(waited, reverse=True)


def regions_share_spaces(spaces, regions):
    """They share each space out among them, without gap or overlap."""
    at = iter(regions)
    for base, size in spaces:
        end = base + size
        while base < end:
            address, length, _ = next(at)
            assert address == base, (hex(address), hex(base))
            base += length
        assert base == end, (hex(base), hex(end))
    assert next(at, None) is None


def regions_are_right(d, regions, starts):
    for (address, length, r), (_, _, after) in zip(regions, regions[1:] + [(0, 0, {"state": ""})]):
        if r["state"] == "hole":
            assert address % d["granularity"] == 0 and length % d["granularity"] == 0, r
            assert after["state"] != "hole" or int(after["addr"], 16) in starts, r
        else:
            assert address % 512 == 0 and length % 512 == 0, r
        assert ("asked" in r) == (r["state"] == "live") and r.get("asked", 1) <= length, r
        assert ("age" in r) == (r["state"] in ("free", "zombie", "retired")), r
        assert "waits_for" not in r or (r["state"] in ("free", "zombie", "retired") and r["waits_for"]), r


def bytes_add_up(d):
    """Each byte held is alive, or lost in one way."""
    live = [r for r in d["regions"] if r["state"] == "live"]
    free = [r for r in d["regions"] if r["state"] == "free"]
    waste = d["waste"]
    assert sum(r["asked"] for r in live) == d["live_bytes"] <= d["peak_live_bytes"], d["live_bytes"]
    assert sum(r["size"] - r["asked"] for r in live) == waste["internal"]
    assert sum(r["size"] for r in free) == d["free_bytes"] == waste["pinned"] + waste["pending"] + waste["idle"], waste
    assert d["live_bytes"] + waste["internal"] + d["free_bytes"] == d["held_bytes"] <= d["peak_held_bytes"]
    assert sum(c["size"] * c["count"] for c in d["chunks"]) == d["held_bytes"]
    assert [c["size"] for c in d["chunks"]] == sorted({c["size"] for c in d["chunks"]})
    assert all(c["wholly_free"] <= c["count"] and c["size"] % d["granularity"] == 0 for c in d["chunks"])
    assert sum(c["size"] * c["wholly_free"] for c in d["chunks"]) == waste["pending"] + waste["idle"]
    assert d["allocs"] - d["frees"] == len(live), (d["allocs"], d["frees"], len(live))


def sizes_are_counted(d, regions, starts):
    """The histogram: free neighbours count as one."""
    found, run, ready, largest = {}, 0, 0, 0
    for address, length, r in regions + [(0, 0, {"state": "end"})]:
        if r["state"] != "free" or address in starts:
            if run:
                found.setdefault(log2(run), [0, 0, 0, 0])[2] += 1
                found[log2(run)][3] += run
            run = ready = 0
        if r["state"] == "live":
            found.setdefault(log2(r["asked"]), [0, 0, 0, 0])[0] += 1
            found[log2(r["asked"])][1] += r["asked"]
        if r["state"] == "free":
            run += length
            ready = 0 if "waits_for" in r else ready + length
            largest = max(largest, ready)
    assert largest == d["largest_free"], (largest, d["largest_free"])
    assert found == {log2(s["from"]): [s["live"], s["live_bytes"], s["free"], s["free_bytes"]] for s in d["sizes"]}, d["sizes"]
    assert all(s["to"] == 2 * s["from"] for s in d["sizes"])


def read(path):
    with open(path) as file:
        dump = json.load(file)
    fits(dump, schema, where="dump")
    assert ("request" in dump) == (dump["reason"] == "oom"), dump
    for device in dump["devices"]:
        holds_together(device)
    return dump


# ---- programs

@contextlib.contextmanager
def folder():
    with tempfile.TemporaryDirectory() as path:
        yield path


def command(words, sim):
    return [VPOOL, "run", f"--sim={sim}", "--quiet", GUEST, *words]


def guest(words, when, name, sim="64M", **more):
    """Runs a guest to its end: its dumps in order, and what it said."""
    done = subprocess.run(command(words, sim), env=ENV | {"VPOOL_DUMP": when, "VPOOL_DUMP_FILE": name} | more,
                          capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL)
    return done


def started(words, when, name, last, **more):
    process = subprocess.Popen(command(words, "256M"), env=ENV | {"VPOOL_DUMP": when, "VPOOL_DUMP_FILE": name} | more,
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for line in process.stdout:
        if line.strip() == last:
            break
    return process


def ended(process):
    out, err = process.communicate("\n", timeout=300)
    assert process.returncode == 0, (process.returncode, err)
    return out, err


def until(what):
    end = time.monotonic() + 60
    while time.monotonic() < end:
        if what():
            return True
        time.sleep(0.02)
    return False


def dumps(path):
    """All dumps of a folder, in their order."""
    return sorted((read(name) for name in glob.glob(path + "/*.json")), key=lambda dump: dump["number"])


# ---- tests

def a_dump_at_exit():
    with folder() as path:
        done = guest(["open", "alloc=5", "bytes=700", "async=3", "alloc=4", "free"], "exit", path + "/%p-%n.json")
        assert done.returncode == 0 and not done.stderr, done
        dump, = dumps(path)
        assert os.listdir(path) == [f"{dump['pid']}-1.json"] and dump["reason"] == "exit" and dump["program"] == "guest", dump
        device, = dump["devices"]
        live = [(r["asked"], r["stream"]) for r in device["regions"] if r["state"] == "live"]
        assert len(live) == 3 and (700, 0) in live and (5 * MIB, 0) in live, live
        assert next(stream for asked, stream in live if asked == 3 * MIB), "a stream's block names its stream"
        assert device["allocs"] == 4 and device["frees"] == 1


def a_dump_as_text():
    with folder() as path:
        done = guest(["open", "alloc=5", "async=3"], "exit", path + "/%p")
        name, = os.listdir(path)
        text = open(os.path.join(path, name)).read()
        assert re.search(r"^vpool \S+, dump 1 of process \d+ \(guest\), .*Z, reason: exit, policy vpool$", text, re.M), text
        assert re.search(r"live +8\.0 MiB in 2 blocks", text) and re.search(r"0x[0-9a-f]+ +5\.0 MiB  live +5242880 bytes", text), text
        assert not re.search("[^\n -~]", text) and done.returncode == 0


def a_file_for_each_device():
    with folder() as path:
        guest(["open", "alloc=5"], "exit", path + "/%%d%d.json")
        assert os.listdir(path) == ["%d0.json"], os.listdir(path)
        assert [d["device"] for d in dumps(path)[0]["devices"]] == [0]


def out_of_memory_explains_itself():
    with folder() as path:
        done = guest(["open", "alloc=30", "bytes=1", "alloc=10", "try=40", "try=41"], "oom", path + "/%n.json")
        assert done.stdout.split()[-4:] == ["2", "try=40", "2", "try=41"], done.stdout
        dump, = dumps(path)
        assert dump["reason"] == "oom" and dump["request"] == {"asked": 40 * MIB, "device": 0, "stream": 0}, dump["request"]
        device, = dump["devices"]
        assert device["device_total"] == 64 * MIB and device["largest_request"] < 40 * MIB
        told = done.stderr
        assert told.count("out of memory on device 0") == 1, told
        for line in (r"40\.0 MiB \(41943040 bytes\) asked for by cudaMalloc", r"live +40\.0 MiB in 3 blocks", r"held +\d",
                     r"device +\d.* free of 64\.0 MiB", r"others +\d", r"largest +\d.* is the largest block that could be had now"):
            assert re.search(line, told), (line, told)
        # A large block could spill, which is said, and not where it may already.
        assert told.count("VPOOL_SPILL=8G, for example") == 1, told
        assert "VPOOL_SPILL=8G" not in guest(["open", "alloc=40", "try=40"], "oom", path + "/spill.json", VPOOL_SPILL="1M").stderr
        assert "VPOOL_SPILL=8G" not in guest(["open", "alloc=40", "try=32"], "oom", path + "/small.json").stderr
        # The others are counted, and told of at the end.
        assert "out of memory 1 more time" in told, told
        # What it says could be had can be had, and no granule more.
        largest = device["largest_request"]
        done = guest(["open", "alloc=30", "bytes=1", "alloc=10", f"bytes={largest}"], "oom", path + "/%n.json")
        assert done.returncode == 0, done
        done = guest(["open", "alloc=30", "bytes=1", "alloc=10", f"bytes={largest + 2 * MIB}"], "oom", path + "/%n.json")
        assert done.returncode == 99, done


def a_limit_is_what_could_be_had():
    with folder() as path:
        done = guest(["open", "alloc=5", "try=20"], "oom", path + "/%n.json", VPOOL_LIMIT="16M")
        dump, = dumps(path)
        assert dump["devices"][0]["largest_request"] == 10 * MIB, dump["devices"][0]["largest_request"]
        assert "VPOOL_LIMIT" in done.stderr, done.stderr


def what_can_be_had_beside_other_blocks_is_told():
    """A limit leaves some room beside a large block, less than is asked for: the driver has refused nothing."""
    with folder() as path:
        done = guest(["open", "bytes=3670016", "bytes=65536", "bytes=1000000", "bytes=1000000", "bytes=300000", "bytes=300000"],
                     "oom", path + "/%n.json", VPOOL_LIMIT="6M")
        dump, = dumps(path)
        device, = dump["devices"]
        assert 200000 < device["largest_free"] == device["largest_request"] < 300000 == dump["request"]["asked"], (dump["request"], device)
        assert "the driver refused" not in done.stderr and "do not go" not in done.stderr, done.stderr
    for ipc in "auto", "alone":
        with folder() as path:
            done = guest(["open", "bytes=4194304", "free", "async=1", "bytes=2097152"], "oom", path + "/%n.json",
                         VPOOL_LIMIT="4M", VPOOL_IPC=ipc)
            assert ("that block lies where blocks of this size are not placed" in done.stderr) == (ipc == "alone") == bool(dumps(path)), done.stderr


def a_signal_asks_for_one():
    with folder() as path:
        process = started(["open", "alloc=5", "line"], "signal", path + "/%n.json", "alloc=5")
        for number in 1, 2:
            process.send_signal(signal.SIGUSR2)
            assert until(lambda: os.path.exists(f"{path}/{number}.json")), os.listdir(path)
        ended(process)
        assert [dump["reason"] for dump in dumps(path)] == ["signal", "signal"]
        # One that comes right before the end is not lost.
        done = guest(["open", "alloc=5", f"raise={int(signal.SIGUSR2)}", "exit=0"], "signal", path + "/last.json")
        assert done.returncode == 0 and read(path + "/last.json")["reason"] == "signal", done
        process = started(["open", "alloc=5", "line"], "signal", path + "/usr1.json", "alloc=5", VPOOL_DUMP_SIGNAL="SIGUSR1")
        process.send_signal(signal.SIGUSR1)
        assert until(lambda: os.path.exists(path + "/usr1.json"))
        ended(process)


def the_programs_own_handler_stays():
    with folder() as path:
        process = started([f"handler={int(signal.SIGUSR2)}", "open", "alloc=5", "line"], "signal", path + "/%n.json", "alloc=5")
        process.send_signal(signal.SIGUSR2)
        assert process.stdout.readline() == "mine\n"
        _, err = ended(process)
        assert not os.listdir(path) and "handles SIGUSR2 itself" in err, err


def dumps_by_time():
    with folder() as path:
        process = started(["open", "alloc=5", "line"], "every:0.1", path + "/%n.json", "alloc=5")
        assert until(lambda: os.path.exists(path + "/3.json")), os.listdir(path)
        ended(process)
        assert {dump["reason"] for dump in dumps(path)} == {"every"}


def a_storm_is_seen_whole():
    """Four threads allocate and free as fast as they can, while dumps are taken by time and by signal."""
    with folder() as path:
        process = started(["open", "alloc=5", "storm=1"], "every:0.1,signal,exit", path + "/%n.json", "alloc=5")
        while process.poll() is None:
            process.send_signal(signal.SIGUSR2)
            time.sleep(0.03)
        assert process.returncode == 0, process.stderr.read()
        process.communicate()
        taken = dumps(path)
        assert {dump["reason"] for dump in taken} == {"every", "signal", "exit"} and len(taken) >= 5, len(taken)
        assert any(device["frees"] and device["free_bytes"] for dump in taken for device in dump["devices"])


def every_policy_dumps():
    for policy in "vpmm", "bfc", "es", "gmlake":
        with folder() as path:
            process = started(["open", "alloc=5", "storm=0.3"], "every:0.05,exit", path + "/%n.json", "alloc=5", VPOOL_POLICY=policy)
            process.communicate(timeout=300)
            assert process.returncode == 0 and {dump["policy"] for dump in dumps(path)} == {policy}, policy


def a_forked_child_writes_its_own():
    with folder() as path:
        done = guest(["open", "alloc=5", "fork", "exit=0"], "exit,signal,every:0.2", path + "/%p.json")
        assert done.returncode == 0, done
        assert all(dump["devices"] for dump in dumps(path)) and len(dumps(path)) >= 1


def wrong_words_are_told():
    with folder() as path:
        done = guest(["open", "alloc=5"], "exit,sometimes", path + "/%n.json")
        assert done.returncode == 0 and done.stderr.count("\n") == 1 and "VPOOL_DUMP: sometimes is not valid" in done.stderr, done
        assert len(dumps(path)) == 1, "what was right still holds"
        for wrong in "every:", "every:0", "every:x", "every:-1", "every", "OOM", "every:99999999999999999999":
            done = guest(["open", "alloc=1"], wrong, path + "/none.json")
            assert done.returncode == 0 and done.stderr.count("\n") == 1 and f"{wrong} is not valid" in done.stderr, done
        done = guest(["open", "alloc=5"], "signal", path + "/none.json", VPOOL_DUMP_SIGNAL="SIGKILL")
        assert done.returncode == 0 and "VPOOL_DUMP_SIGNAL" in done.stderr, done


def what_cannot_be_written_is_told():
    with folder() as path:
        done = guest(["open", "alloc=5"], "exit", path + "/none/%n.json")
        assert done.returncode == 0 and done.stderr.count("\n") == 1 and "No such file or directory" in done.stderr, done
        done = guest(["open", "alloc=5"], "exit", "/dev/full")
        assert done.returncode == 0 and "No space left on device" in done.stderr, done
        done = subprocess.run(["sh", "-c", 'ulimit -f 0; exec "$0" "$@"', *command(["open", "alloc=5"], "64M")], text=True,
                              env=ENV | {"VPOOL_DUMP": "exit", "VPOOL_DUMP_FILE": path + "/x.json", "VPOOL_SIM": "backing=ledger"},
                              capture_output=True)
        assert done.returncode == 0 and "File too large" in done.stderr and not os.listdir(path), (done, os.listdir(path))
        done = guest(["open", "alloc=5"], "exit", "/dev/stderr")
        assert done.returncode == 0 and "reason: exit" in done.stderr, done


def without_a_word_nothing_is_made():
    with folder() as path:
        done = guest(["open", "alloc=5", "try=60"], "", path + "/%n.json")
        assert done.returncode == 0 and not os.listdir(path) and "VPOOL_DUMP=oom" in done.stderr, done


TESTS = [a_dump_at_exit, a_dump_as_text, a_file_for_each_device, out_of_memory_explains_itself, a_limit_is_what_could_be_had,
         what_can_be_had_beside_other_blocks_is_told,
         a_signal_asks_for_one, the_programs_own_handler_stays, dumps_by_time, a_storm_is_seen_whole, every_policy_dumps,
         a_forked_child_writes_its_own, wrong_words_are_told, what_cannot_be_written_is_told, without_a_word_nothing_is_made]

tap.run(TESTS)
