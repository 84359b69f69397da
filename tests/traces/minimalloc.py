#!/usr/bin/env python3
"""Makes traces of MiniMalloc's problems (tests/unit/minimalloc.csv), for `vpool plan`.

    minimalloc.py DIR       DIR/A.csv to DIR/K.csv
"""
# SPDX-License-Identifier: Apache-2.0
import os
import sys

PROBLEMS = os.path.join(os.path.dirname(os.path.realpath(__file__)), "../unit/minimalloc.csv")


def problems():
    """The buffers of each problem, by name: (lower, upper, size)."""
    found = {}
    with open(PROBLEMS) as file:
        for line in file:
            if not line.startswith("#"):
                name, *numbers = line.split(",")
                found.setdefault(name, []).append(tuple(map(int, numbers)))
    return found


def write(folder):
    """The paths, by name. What ends at a moment is freed before what begins then is allocated."""
    paths = {}
    for name, buffers in problems().items():
        events = [(lower, 1, block, size) for block, (lower, _, size) in enumerate(buffers)]
        events += [(upper, 0, block, 0) for block, (_, upper, _) in enumerate(buffers)]
        paths[name] = os.path.join(folder, name + ".csv")
        with open(paths[name], "w") as out:
            out.write("op,id,size,stream,us\n")
            out.writelines(f"{'fa'[begins]},{block},{size},0,{at}\n" for at, begins, block, size in sorted(events))
    return paths


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    write(sys.argv[1])
