#!/usr/bin/env python3
"""Do the arrows of the preloaded library point one way? Reads includes and calls between files. Reports in TAP.

usage: layers.py BUILD

A folder may include, and call, only what is below it; and no circle of files may call each other, in one folder or across
them. Calls are what a linker sees: names that one object file defines and another one needs. Functions that a layer calls
upwards go through a struct of pointers, which the upper one fills in; and what whoever links the core provides is in PROVIDED.
"""
# SPDX-License-Identifier: Apache-2.0
import functools
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "common"))
import tap

ROOT = Path(__file__).resolve().parent.parent.parent
BUILD = Path(sys.argv[1])

# From the top. What stands on one line are neighbours that know nothing of each other.
LAYERS = [["preload"], ["watch"], ["process"], ["compare"], ["pool"], ["memory"], ["order"], ["driver"], ["base"]]
LEVEL = {folder: len(LAYERS) - i for i, folders in enumerate(LAYERS) for folder in folders}

# Constant tables that a lower layer calls through, and an upper one or whoever links the core provides. vp_door_table: the
# addresses of the doors, which the preloaded library is topped with, for those who exchange a function for its door and call none.
PROVIDED = {"vp_policies", "vp_watch", "vp_door_table"}

# What the preloaded library exports under names of the system's and CUDA's. Who calls these below means the system.
DOORS = set(re.findall(r"^    (?:X\(|VP_\w+\(X, )(\w+)", (ROOT / "preload/doors_list.h").read_text(), re.M))


def folder_of(path):
    """The layer that a file is of; None: it is of none (the tool, the simulator, third parties)."""
    parts = Path(path).parts
    folder = parts[1] if parts[0] == "src" and len(parts) > 2 else parts[0]
    return folder if folder in LEVEL else None


def sources():
    return sorted(path.relative_to(ROOT) for top in ("src", "preload") for path in (ROOT / top).rglob("*.[chS]")
                  if folder_of(path.relative_to(ROOT)))


def upward(arrows):
    """Those arrows that point up, or aside, said in words."""
    found = []
    for (a, b), why in sorted(arrows.items()):
        ours, theirs = folder_of(a), folder_of(b)
        if ours and theirs and ours != theirs and LEVEL[ours] <= LEVEL[theirs]:
            found.append(f"{a} -> {b}: {', '.join(sorted(why)[:4])}")
    return found


def included():
    arrows = defaultdict(set)
    for path in sources():
        for name in re.findall(r'^\s*#\s*include\s+"([^"]+)"', (ROOT / path).read_text(), re.M):
            for place in ((ROOT / path).parent / name, ROOT / "src" / name, ROOT / "include" / name):
                if place.exists():
                    arrows[str(path), str(place.resolve().relative_to(ROOT))].add(f'includes "{name}"')
                    break
    return arrows


def objects():
    """Object file and source of everything that libvpool.so and libvpool-compare.so are linked from."""
    command = ["ninja", "-C", str(BUILD), "-t", "deps"]
    deps = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    for block in deps.split("\n\n"):
        lines = block.strip().split("\n")
        name = lines[0].partition(":")[0]
        source = (BUILD / lines[1].strip()).resolve() if len(lines) > 1 else None
        if source and name.endswith(".o") and source.is_relative_to(ROOT) and folder_of(source.relative_to(ROOT)):
            if (BUILD / name).exists() and not name.startswith("tests/"):
                yield str(BUILD / name), str(source.relative_to(ROOT))


@functools.cache
def called():
    defined, needed = {}, defaultdict(set)
    source_of = dict(objects())
    names = subprocess.run(["nm", "--no-sort", "--print-file-name", *source_of], capture_output=True, text=True, check=True).stdout
    for line in names.splitlines():
        path, _, symbol = line.partition(":")
        kind, name = symbol.split()[-2:]
        source = source_of[path]
        if kind == "U":
            needed[source].add(name)
        elif kind.isupper() and name not in PROVIDED:
            defined[name] = source
    arrows = defaultdict(set)
    for source, names in needed.items():
        for name in names - PROVIDED - (set() if source.startswith("preload/") else DOORS):
            if defined.get(name, source) != source:
                arrows[source, defined[name]].add(name)
    return arrows


def circles(arrows):
    """Sets of files each of which calls, by some way, all the others (Tarjan)."""
    graph = defaultdict(set)
    for a, b in arrows:
        graph[a].add(b)
    order, low, stack, found = {}, {}, [], []

    def visit(node):
        order[node] = low[node] = len(order)
        stack.append(node)
        for other in sorted(graph[node]):
            if other not in order:
                visit(other)
            if other in stack:
                low[node] = min(low[node], low[other])
        if low[node] == order[node]:
            members = stack[stack.index(node):]
            del stack[stack.index(node):]
            if len(members) > 1:
                found.append(members)

    for node in sorted(set(graph) | {b for _, b in arrows}):
        if node not in order:
            visit(node)
    return found


def includes_point_down():
    found = upward(included())
    assert not found, "\n".join(found)


def calls_point_down():
    arrows = called()
    assert len(arrows) > 100, f"only {len(arrows)} calls between files were found in {BUILD}"
    found = upward(arrows)
    assert not found, "\n".join(found)


def no_files_call_each_other_in_a_circle():
    arrows = called()
    said = []
    for members in circles(arrows):
        said.append("a circle: " + " ".join(sorted(members)))
        said += [f"  {a} <-> {b}: {' '.join(sorted(why)[:5])} / {' '.join(sorted(arrows[b, a])[:5])}"
                 for (a, b), why in sorted(arrows.items()) if a < b and a in members and (b, a) in arrows]
    assert not said, "\n".join(said)


def every_file_is_of_a_layer():
    known = {"plan", "sim", "tool"}
    strangers = {path.parts[1] for path in (p.relative_to(ROOT) for p in (ROOT / "src").rglob("*.[chS]"))
                 if len(path.parts) > 2 and path.parts[1] not in LEVEL} - known
    assert not strangers, f"folders of no layer: {sorted(strangers)}"


if __name__ == "__main__":
    tap.run([includes_point_down, calls_point_down, no_files_call_each_other_in_a_circle, every_file_is_of_a_layer])
