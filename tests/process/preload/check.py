"""What the tests of the preloaded library (run) have Python look at, each by a word.

usage: check.py statistics FILE...     those of cuda_calls_at_exit: one file, named by the process
       check.py others FILE            those of others_memory
       check.py marks TRACE            the trace of marks: they stand in their order among the allocations
"""
# SPDX-License-Identifier: Apache-2.0
import gzip
import json
import sys


def statistics(*names):
    assert len(names) == 1, names
    with open(names[0]) as file:
        stats = json.load(file)
    assert names[0].endswith(f"stats-{stats['pid']}")
    assert stats["devices"][0]["allocs"] == stats["devices"][0]["frees"] == 2, stats


def others(name):
    with open(name) as file:
        found = json.load(file)["others"]
    assert found == [{"device": 0, "handles": 1, "bytes": 4 << 20, "peak_bytes": 6 << 20}], found


def marks(name):
    with (gzip.open if name.endswith(".gz") else open)(name, "rt") as file:
        lines = [line.split(",") for line in file.read().splitlines()]
    assert lines[0] == ["op", "id", "size", "stream", "us"] and all(len(line) == 5 for line in lines), lines
    ops = [line[:2] if line[0] == "m" else line[:1] for line in lines[1:] if line[0] != "h"]
    assert ops[:4] == [["a"], ["m", "step 1"], ["f"], ["m", "a%2Cb%22c%0Ad%1B"]], ops[:4]
    assert ops[4] == ["m", "x" * 128], ops[4]
    assert sorted(ops[5:]) == [["m", "one"]] * 500 + [["m", "two"]] * 500
    times = [int(line[4]) for line in lines[1:]]
    assert times == sorted(times)


if __name__ == "__main__":
    {"statistics": statistics, "others": others, "marks": marks}[sys.argv[1]](*sys.argv[2:])
