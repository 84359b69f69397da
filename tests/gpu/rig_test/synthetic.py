#!/usr/bin/env python3
"""Tests of the made-up programs: each is the same for the same seed, well formed, and as long as asked for. Reports in TAP."""
# SPDX-License-Identifier: Apache-2.0
import os
import sys

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, folder) for folder in ("../../traces", "../../common")]

import synthetic
import tap

NAMES = [generator.__name__ for generator in synthetic.GENERATORS]
OPS = 3000


def events(trace):
    last = 0
    for number, row in enumerate(trace.rows):
        op, *rest = row.split(",")
        block, size, stream, us = map(int, rest)
        assert us == number if trace.us is None else us >= last, row
        last = us
        yield op, block, size, stream


def the_seed_decides():
    for name in NAMES:
        one, again, other = (synthetic.make(name, seed, OPS).rows for seed in (1, 1, 2))
        assert one == again, name
        assert one != other or name in ("robson", "gather"), name  # the dice say only in which order robson frees at last


def each_is_well_formed():
    for name in NAMES:
        trace, live, peak, known = synthetic.make(name, 1, OPS), {}, 0, set()
        for op, block, size, stream in events(trace):
            if op == "a":
                assert size > 0 and stream >= 0 and block not in known, (name, block)
                known.add(block)
                live[block] = size
                peak = max(peak, sum(live.values())) if len(live) < 300 else peak
            elif op == "w":
                assert block != stream and size == 0, name
            else:
                assert op == "f" and size == 0, name
                del live[block]  # KeyError: it was not alive
        assert OPS <= len(trace.rows) and trace.live == sum(live.values()) >= 0 and trace.peak >= peak > 0, name


def they_are_as_large_as_asked_for():
    for name in NAMES:
        whole, half = synthetic.make(name, 1, OPS), synthetic.make(name, 1, OPS, 0.5)
        for (op, block, size, stream), other in zip(events(whole), events(half)):
            assert other == (op, block, max(1, size // 2) if op == "a" else 0, stream), name


def robson_comes_to_nothing_between_rounds():
    assert synthetic.make("robson", 1, 60000).drained >= 3


tap.run([the_seed_decides, each_is_well_formed, they_are_as_large_as_asked_for, robson_comes_to_nothing_between_rounds])
