"""Tests of scripts/snapshot-to-trace: snapshots shaped as PyTorch writes them, each case by name.

usage: snapshots.py CASE SNAPSHOT-TO-TRACE VPOOL FOLDER
"""
# SPDX-License-Identifier: Apache-2.0
import gzip
import json
import os
import pickle
import random
import resource
import subprocess
import sys

case, script, vpool, folder = sys.argv[1:]
path = os.path.join(folder, "snapshot.pickle")

BASE = 0x7F2C00000000
OTHER_STREAM = 94038123


def event(action, offset, size, stream=0, us=0):
    return {"action": action, "addr": BASE + offset, "size": size, "stream": stream, "time_us": 1700000000000000 + us, "frames": []}


def block(offset, size, requested, state="active_allocated"):
    return {"address": BASE + offset, "size": size, "requested_size": requested, "state": state, "frames": []}


def segment(offset, blocks, stream=0, device=0):
    return {
        "device": device, "address": BASE + offset, "total_size": sum(b["size"] for b in blocks), "allocated_size": 0, "active_size": 0,
        "requested_size": 0, "stream": stream, "segment_type": "large", "segment_pool_id": (0, 0), "is_expandable": False,
        "frames": [], "blocks": blocks,
    }


def make():
    """Blocks at 0 and 512 are older than the history, which frees the first; the one at 1024 is waiting to be freed."""
    return {
        "segments": [
            segment(0, [block(0, 512, 300), block(512, 512, 500), block(1024, 1024, 1000, "active_pending_free"), block(2048, 512, 0, "inactive")]),
            segment(1 << 21, [block(1 << 21, 1 << 21, 2000000)], stream=OTHER_STREAM),
            segment(1 << 30, [block(1 << 30, 512, 77)], device=1),
        ],
        "device_traces": [
            [
                event("segment_map", 1 << 21, 1 << 21, OTHER_STREAM, 0),
                event("free_requested", 0, 200, 0, 10),
                event("free_completed", 0, 200, 0, 11),
                event("segment_alloc", 1 << 22, 1 << 21, 0, 12),
                event("alloc", 0, 300, 0, 15),
                event("alloc", 1024, 1000, 0, 18),
                {"action": "oom", "size": 1 << 40, "stream": 0, "device_free": 5, "time_us": 1700000000000019, "frames": []},
                event("alloc", 1 << 22, 4000, OTHER_STREAM, 20),
                event("free_requested", 1024, 1000, 0, 21),
                event("free_completed", 1 << 22, 4000, OTHER_STREAM, 25),
                event("snapshot", 0, 0, 0, 30),
            ],
            [event("alloc", 1 << 30, 77, 0, 5)],
        ],
        "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1, "expandable_segments": False},
    }


def dump(what):
    with open(path, "wb") as file:
        pickle.dump(what, file)


def run(*arguments):
    return subprocess.run([sys.executable, script, *arguments], capture_output=True, text=True)


def converted(*arguments):
    done = run(*arguments, path)
    assert done.returncode == 0 and not done.stderr, done
    header, *lines = done.stdout.splitlines()
    assert header == "op,id,size,stream,us"
    return lines


# The other stream comes second: its block was there before the history, behind those of the first.
WANTED = [
    "a,0,200,0,0", "a,1,500,0,0", "a,2,2000000,1,0", "f,0,0,0,0", "a,3,300,0,4", "a,4,1000,0,7", "a,5,4000,1,9", "f,5,0,1,14",
]


def converts_a_snapshot():
    dump(make())
    assert converted() == WANTED, converted()
    assert converted("--device", "1") == ["a,0,77,0,0"]


def converts_an_old_snapshot():
    """Neither addresses of blocks nor sizes as asked for nor times."""
    old = make()
    for part in old["segments"]:
        for b in part["blocks"]:
            del b["address"], b["requested_size"]
    for e in old["device_traces"][0]:
        del e["time_us"]
    dump(old)
    wanted = [line.rsplit(",", 1)[0] + ",0" for line in WANTED]
    wanted[1:3] = ["a,1,512,0,0", "a,2,2097152,1,0"]
    assert converted() == wanted, converted()


def converts_a_snapshot_without_history():
    bare = make()
    bare["device_traces"] = [[], []]
    dump(bare)
    assert converted() == ["a,0,300,0,0", "a,1,500,0,0", "a,2,1000,0,0", "a,3,2000000,1,0"], converted()


def replays_what_it_makes():
    dump(make())
    for name in "trace.csv", "trace.csv.gz":
        trace = os.path.join(folder, name)
        done = run(path, trace)
        assert done.returncode == 0 and not done.stdout + done.stderr, done
        with (gzip.open if name.endswith(".gz") else open)(trace, "rt") as file:
            assert file.read().splitlines()[1:] == WANTED
        result = json.loads(subprocess.check_output([vpool, "replay", "--json", trace]))
        assert result["peak_live_bytes"] == 500 + 2000000 + 300 + 1000 + 4000, result


class Code:
    def __reduce__(self):
        return os.system, (f"touch '{folder}/ran'",)


def refuses(pattern, *arguments):
    done = run(*arguments)
    assert done.returncode == 1 and not done.stdout, done
    assert len(done.stderr.splitlines()) == 1 and pattern in done.stderr, done


def runs_no_code():
    dump({**make(), "extra": Code()})
    refuses("plain data only", path)
    assert not os.path.exists(os.path.join(folder, "ran"))


def refuses_what_is_wrong():
    refuses("No such file or directory", os.path.join(folder, "none"))
    refuses("Is a directory", folder)
    # Rubbish of many kinds; a float's opcode with control characters behind it is one that the unpickler quotes.
    for rubbish in [b"F\x1e\x85\r\x1b[2J\n", *(random.Random(seed).randbytes(1000) for seed in range(8))]:
        with open(path, "wb") as file:
            file.write(rubbish)
        refuses("no pickle", path)
    with open(path, "wb") as file:
        file.write(pickle.dumps(make())[:500])
    refuses("no pickle", path)
    for wrong, pattern in (
        ([], "no list of device_traces"),
        ({"segments": []}, "no list of device_traces"),
        ({"device_traces": [[event("alloc", 0, 5)]]}, "no list of segments"),
        ({"segments": [], "device_traces": []}, "no events of device 0"),
        ({"segments": [], "device_traces": [[event("alloc", 0, 5), event("alloc", 0, 5)]]}, "event 1 of device 0 allocates"),
        ({"segments": [], "device_traces": [[event("alloc", 0, 5), event("free_completed", 0, 5), event("free_completed", 0, 5)]]}, "is free"),
        ({"segments": [], "device_traces": [[event("moved", 0, 5)]]}, "unknown action 'moved'"),
        ({"segments": [], "device_traces": [[event("alloc", 0, "5")]]}, "size is '5'"),
        ({"segments": [], "device_traces": [[event("alloc", 0, -5)]]}, "size is -5"),
        ({"segments": [], "device_traces": [[{"action": "alloc"}]]}, "has no addr"),
        ({"segments": [3], "device_traces": [[]]}, "segment 0 is no dict"),
        ({"segments": [], "device_traces": [[event([], 0, 5)]]}, "event 0 of device 0 has no action"),
        ({"segments": [], "device_traces": [[event("alloc", 0, 1 << 64)]]}, "size is too large"),
        ({"segments": [], "device_traces": [[event("alloc", 0, 10 ** 5000)]]}, "size is too large"),
        ({"segments": [segment(0, [{**block(0, 512, 5), "address": []}])], "device_traces": [[]]}, "block 0: address is []"),
    ):
        dump(wrong)
        refuses(pattern, path)
    dump(make())
    # Python's own lists have a last one for it.
    refuses("no device -1", "--device", "-1", path)
    closed = subprocess.run([sys.executable, script, path], stderr=subprocess.PIPE, text=True, preexec_fn=lambda: os.close(1))
    assert closed.returncode == 1 and closed.stderr == "snapshot-to-trace: standard output: Bad file descriptor\n", closed
    refuses("No such file or directory", path, os.path.join(folder, "no", "such", "trace.csv"))
    with open(path, "rb") as file:
        before = file.read()
    refuses("would be overwritten", path, os.path.join(folder, ".", "snapshot.pickle"))
    with open(path, "rb") as file:
        assert file.read() == before


def writes_whole_or_not_at_all():
    dump(make())
    for name in "trace.csv", "trace.csv.gz":
        trace, link = os.path.join(folder, name), os.path.join(folder, "link to " + name)
        os.symlink(name, link)
        with open(trace, "w") as file:
            file.write("what was there")
        for to in trace, link:
            done = subprocess.run([sys.executable, script, path, to], capture_output=True, text=True,
                                  preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10)))
            assert done.returncode == 1 and done.stderr == f"snapshot-to-trace: {to}: File too large\n", done
            with open(trace) as file:
                assert file.read() == "what was there"
        assert not run(path, link).returncode and os.path.islink(link)
        with (gzip.open if name.endswith(".gz") else open)(trace, "rt") as file:
            assert file.read().splitlines()[1:] == WANTED
    assert not [name for name in os.listdir(folder) if name.endswith(".tmp")], os.listdir(folder)


globals()[case]()
