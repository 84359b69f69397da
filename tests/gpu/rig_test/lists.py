#!/usr/bin/env python3
"""Tests of what gpu-check and bench would run: the lists are whole, and each program in them exists. No GPU is needed.

usage: lists.py BUILD
"""
# SPDX-License-Identifier: Apache-2.0
import json
import os
import re
import subprocess
import sys
import tempfile
import types

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, folder) for folder in ("..", "../../common")]

import tap
from rig import bench, build
from rig.copying import copy_goals
from rig.probe import Probe
from rig.rows import SECTIONS, all_rows
from rig.runner import Run
from rig.table import Goal

BUILD = os.path.abspath(sys.argv[1])
COMPILED = {name for name, *_ in build.PROGRAMS}


def rows():
    return all_rows(os.path.join(BUILD, "gpu"), None, False)


def every_program_is_there():
    for row in rows():
        program = row.argv[1] if row.argv[0] == sys.executable else row.argv[0]
        folder, name = os.path.split(program)
        assert name in COMPILED if folder == os.path.join(BUILD, "gpu") else os.path.exists(program), (row.name, program)


def every_source_is_there():
    for name, source, *_ in build.PROGRAMS:
        assert os.path.exists(os.path.join(build.PROGRAM_SOURCES, source)), (name, source)


def rows_are_told_apart():
    names = [row.name for row in rows()]
    assert len(names) == len(set(names))
    assert all(row.like is None or row.like in names for row in rows())
    assert {row.section for row in rows()} == set(SECTIONS)


def listed(command, *arguments):
    return subprocess.run([sys.executable, os.path.join(build.ROOT, "scripts", command), "--list", *arguments],
                          stdout=subprocess.PIPE, text=True, check=True).stdout


def the_commands_list():
    all_of_them = listed("gpu-check", "--section", ",".join(SECTIONS))
    assert len(all_of_them.splitlines()) == len(rows())
    assert len(listed("gpu-check", "--only", "^JAX, vpool$").splitlines()) == 3, "with those that it is compared with"
    assert "replay: waste and driver time" in listed("bench") and "(GPU)" in listed("bench")
    assert "against the other build" in listed("bench", "--against", __file__)


def run_of(result, stats=None):
    return Run("", code=0, result={"ok": True} | result, stats=stats or {})


def copies_have_a_row_each():
    """As copies.cu asks, every question belongs to a kind; and what differs is told."""
    with open(os.path.join(build.PROGRAM_SOURCES, "copies.cu")) as file:
        text = file.read()
    ways = re.findall(r'"([^"]+)"', text[text.index("ways[] ="):text.index("};", text.index("ways[] ="))])
    asked = {f"{way}, 0 to 1, in 0": 0 for way in ways} | {"to a device, device 0, in 1": 0, "access flags, in 0, before": 1, "enable again": 704}
    all_of_them = {row.name: row for row in all_rows("", None, False, "/old/libvpool.so")}
    all_of_them["copies, bare"].runs = [run_of({"answers": asked})]
    all_of_them["copies, vpool"].runs = [run_of({"answers": asked | {"cudaMemcpy2D, 0 to 1, in 0": 1}, "mismatches": 0})]
    for name in "moved tensors, bare", "moved tensors, vpool":
        all_of_them[name].runs = [run_of({"checksum": 5})]
    for name, us in (("training, one device to be seen", 104), ("training, two devices to be seen", 131),
                     ("training, one device, before", 100)):
        all_of_them[name].runs = [run_of({}, {"driver_us": us})]
    goals = {goal.name: goal for goal in copy_goals(list(all_of_them.values()))}
    assert [name for name, goal in goals.items() if not goal.holds] == [
        "copies without peer access: 2D", "driver time, training, two devices to be seen"], goals
    assert len(goals) == 9 + 1 + 1 + 2, list(goals)


class Left:
    """A runner with so many seconds left."""

    def __init__(self, *left):
        self.left = list(left)

    def time_left(self):
        return self.left.pop(0)


def what_was_measured_is_not_lost():
    """One probe that breaks, or has no time, leaves the rest of the table."""
    def breaks(_):
        return [][0]
    probe = Probe("what breaks", True, [("what breaks: speed", ">= 1")], breaks)
    for left, figure, holds in ((100, "FAILED", False), (0, "not measured: no time left", None)):
        on_device = types.SimpleNamespace(device=Left(100, left), simulated=None, started=0, notes=[])
        assert [(goal.figure, goal.holds) for goal in bench.measure(on_device, probe)] == [(figure, holds)]
    options = types.SimpleNamespace(json=os.path.join(tempfile.mkdtemp(), "figures.json"))
    bench.write(options, None, [Goal("a", "1", "1", True)], [])
    with open(options.json) as file:
        assert json.load(file)["right"]


tap.run([what_was_measured_is_not_lost, every_program_is_there, every_source_is_there, rows_are_told_apart, the_commands_list, copies_have_a_row_each])
