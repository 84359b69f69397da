#!/usr/bin/env python3
"""Makes pairs of traces: a program, and the same program with another seed. For plans, which are made of one and used on the other.

    pairs.py --list                       names, and what the second trace of each is
    pairs.py NAME DIR                     DIR/NAME-1.csv.gz and DIR/NAME-2.csv.gz
    pairs.py --jitter KIND TRACE.csv.gz OUT.csv.gz [--seed N]

Made-up programs (synthetic.py, marked.py) are made with the seeds 1 and 2. Recorded ones were recorded once, so that their second
trace is the recording with what another seed changes, drawn from a seed. KIND says what that is:

    order     one event in fifty comes after the one that follows it, as another thread's timing would have it; no size changes
    lengths   between two of the program's lowest points all that is both allocated and freed there is larger or smaller by one
              factor, from 0.9 to 1.1, as with sequences of other lengths; and order
"""
# SPDX-License-Identifier: Apache-2.0
import argparse
import gzip
import os
import random
import sys

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, HERE)
import marked
import synthetic
from synthetic import save

EVENTS = 60_000
SWAPPED, FACTOR, STRETCHES = 0.02, 0.1, 12
QUANTUM = 512

SYNTHETIC = ("serving_kv_cat", "moe_routing", "phases", "drift", "hash_tables", "video")
MARKED = tuple(g.__name__ for g in marked.GENERATORS)
# What a second seed changes of a recorded program: nothing but the order, or the lengths of its sequences.
RECORDED = {"fsdp": "order", "gen": "lengths", "opt1.3b-LRO": "order", "gpt2-R-var": "lengths", "llama7b-LR": "lengths", "moe-R": "lengths"}
NAMES = (*SYNTHETIC, *MARKED, *RECORDED)


def rows_of(path):
    with (gzip.open if path.endswith(".gz") else open)(path, "rt") as file:
        header, *rows = file.read().splitlines()
    return header, [row.split(",") for row in rows]


def swap(rows, rng):
    """Neighbours that are of different blocks change places, each at the other's time."""
    i = 0
    while i + 1 < len(rows):
        one, two = rows[i], rows[i + 1]
        if one[0] in "af" and two[0] in "af" and one[1] != two[1] and rng.random() < SWAPPED:
            one[4], two[4] = two[4], one[4]
            rows[i], rows[i + 1] = two, one
            i += 1
        i += 1


def stretches_of(rows):
    """The number of each row's stretch: they are cut where least is alive, in each of a dozen equal parts."""
    live, alive, sizes = 0, [], {}
    for row in rows:
        if row[0] == "a":
            sizes[row[1]] = int(row[2])
            live += sizes[row[1]]
        elif row[0] == "f":
            live -= sizes.pop(row[1])
        alive.append(live)
    part = max(1, len(rows) // STRETCHES)
    cuts = {min(range(begin, min(begin + part, len(rows))), key=alive.__getitem__) for begin in range(0, len(rows), part)}
    number, numbers = 0, []
    for i in range(len(rows)):
        number += i in cuts
        numbers.append(number)
    return numbers


def stretch(rows, rng):
    numbers = stretches_of(rows)
    factors = [rng.uniform(1 - FACTOR, 1 + FACTOR) for _ in range(numbers[-1] + 1)] if rows else []
    begins = {}
    for i, row in enumerate(rows):
        if row[0] == "a":
            begins[row[1]] = i
        elif row[0] == "f":
            begin = begins.pop(row[1])
            if numbers[begin] == numbers[i] and int(rows[begin][2]) > QUANTUM:
                rows[begin][2] = str(max(1, int(int(rows[begin][2]) * factors[numbers[i]] / QUANTUM)) * QUANTUM)


def jitter(kind, path, out, seed=2):
    header, rows = rows_of(path)
    rng = random.Random(f"{kind}:{seed}")
    if kind == "lengths":
        stretch(rows, rng)
    swap(rows, rng)
    save([",".join(row) for row in rows], out, header)


def write(name, folder):
    """The paths of the two."""
    first, second = (os.path.join(folder, f"{name}-{seed}.csv.gz") for seed in (1, 2))
    for seed, path in ((1, first), (2, second)):
        if name in SYNTHETIC:
            synthetic.write(name, seed, EVENTS, path)
        elif name in MARKED:
            marked.write(name, seed, path)
    if name in RECORDED:
        recorded = os.path.join(HERE, name + ".csv.gz")
        header, rows = rows_of(recorded)
        save([",".join(row) for row in rows], first, header)
        jitter(RECORDED[name], recorded, second)
    return first, second


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--jitter", choices=("order", "lengths"))
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("names", nargs="*", metavar="NAME DIR")
    args = parser.parse_args()
    if args.list:
        for name in NAMES:
            print(f"{name:18} {RECORDED.get(name, 'another seed')}")
    elif len(args.names) != 2 or (not args.jitter and args.names[0] not in NAMES):
        parser.error("a NAME of --list and a folder, or --jitter KIND TRACE OUT")
    elif args.jitter:
        jitter(args.jitter, *args.names, args.seed)
    else:
        write(*args.names)


if __name__ == "__main__":
    main()
