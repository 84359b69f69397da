#!/usr/bin/env python3
"""A page of a trace that never repeats takes no more than a few times what its replay does. Reports in TAP.

usage: never.py VPOOL

Blocks of sizes that never come again make the pool map, move and unmap chunks until the end, while it has ten thousands
of them. What a page needs to know of that is to be in proportion to what changes, and not to what there is. CPU time is
compared with CPU time of the same machine at the same moment; how many seconds it is says nothing.
"""
# SPDX-License-Identifier: Apache-2.0
import os
import random
import resource
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, os.path.join(HERE, "../../common"))
import tap

VPOOL = os.path.realpath(sys.argv[1])
ENV = {k: v for k, v in os.environ.items() if not k.startswith("VPOOL_")}
FOLDER = tempfile.TemporaryDirectory()
EVENTS, LIVE, STREAMS = 40000, 150 << 30, 3

# A page takes 1.5 times what the replay does, 6 where each change looks at all mappings, and an export less.
MOST = 3


def path(name):
    return os.path.join(FOLDER.name, name)


def make_trace(name):
    rng, live, sizes, total, number = random.Random(7), [], {}, 0, 0
    with open(path(name), "w") as out:
        out.write("op,id,size,stream,us\n")
        for us in range(EVENTS):
            if live and (total > LIVE or rng.random() < 0.2):
                at = rng.randrange(len(live))
                live[at], live[-1] = live[-1], live[at]
                block = live.pop()
                total -= sizes.pop(block)
                out.write(f"f,{block},0,{block % STREAMS},{us}\n")
            else:
                number += 1
                sizes[number] = int(2 ** rng.uniform(20, 23))
                total += sizes[number]
                live.append(number)
                out.write(f"a,{number},{sizes[number]},{number % STREAMS},{us}\n")
    return path(name)


def seconds(*words):
    """CPU time of the command."""
    def used():
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime
    before = used()
    done = subprocess.run([VPOOL, *words], env=ENV, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    return used() - before


def a_page_takes_a_few_times_the_replay():
    trace = make_trace("never.csv")
    replay = seconds("replay", trace)
    for words in ("report", "-o", path("never.html")), ("export", "--perfetto", "-o", path("never.json")):
        took = seconds(*words, trace)
        print(f"# {words[0]}: {took:.1f} s, {took / replay:.1f} times the replay's {replay:.1f} s")
        assert took <= MOST * replay, (words[0], took, replay)


tap.run([a_page_takes_a_few_times_the_replay])
