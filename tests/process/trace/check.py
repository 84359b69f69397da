"""What the tests of traces (run) have Python look at, each by a word.

usage: check.py events TRACE COUNTER SLACK     one event for each call that COUNTER has, and at most SLACK more
       check.py figures FILE NAME=VALUE...     the figures in the JSON of a replay
       check.py progress VPOOL TRACE           what a replay shows on a terminal of its own
"""
# SPDX-License-Identifier: Apache-2.0
import gzip
import json
import os
import pty
import struct
import subprocess
import sys
import time


def events(name, counter, slack):
    with (gzip.open if name.endswith(".gz") else open)(name, "rb") as file:
        text = file.read()
    if not name.endswith(".gz"):  # zeros, or a line without its first byte and zeros
        text = text.partition(b"\n\0")[0].rstrip(b"\0").rstrip(b"\n") + b"\n"
    lines = text.decode().split("\n")
    assert lines[0] == "op,id,size,stream,us" and lines[-1] == "", (lines[0], lines[-1])
    live, last, held, count = set(), 0, 0, 0
    for op, block, size, _, us in (line.split(",") for line in lines[1:-1]):
        assert int(us) >= last, (us, last)
        last = int(us)
        if op == "h":
            held = int(size)
            continue
        count += 1
        assert held, "events before anything was held"
        if op == "a":
            assert block not in live and int(size) > 0
            live.add(block)
        else:
            assert op == "f" and size == "0"
            live.remove(block)
    with open(counter, "rb") as file:
        served = struct.unpack("Q", file.read(8))[0]
    print(count, "events,", served, "calls")
    assert served <= count <= served + int(slack)


def figures(name, *wanted):
    with open(name) as file:
        result = json.load(file)
    for key, value in (pair.split("=") for pair in wanted):
        assert result[key] == json.loads(value), (key, result[key], value)


def progress(vpool, trace):
    """Some lines, each over the last one, and nothing left of them."""
    master, slave = pty.openpty()
    begin = time.time()
    run = subprocess.Popen([vpool, "replay", "--repeat", "3", trace], stdout=subprocess.DEVNULL, stderr=slave)
    os.close(slave)
    shown = b""
    try:
        while piece := os.read(master, 65536):
            shown += piece
    except OSError:
        pass
    assert run.wait() == 0
    seconds = time.time() - begin
    lines = shown.count(b" events, ")
    print(lines, "lines in", seconds, "seconds", shown[-100:])
    assert seconds < 0.5 or 1 <= lines <= seconds * 5 + 1
    assert b"\n" not in shown and (not lines or shown.endswith(b"\r\x1b[K"))


if __name__ == "__main__":
    {"events": events, "figures": figures, "progress": progress}[sys.argv[1]](*sys.argv[2:])
