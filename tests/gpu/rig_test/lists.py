#!/usr/bin/env python3
"""Tests of what gpu-check and bench would run: the lists are whole, and each program in them exists. No GPU is needed.

usage: lists.py BUILD
"""
# SPDX-License-Identifier: Apache-2.0
import contextlib
import io
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
from rig import against, bench, build, calls, check, covered
from rig.copying import copy_goals
from rig.probe import Failed, Probe
from rig.rows import SECTIONS, Row, all_rows, verdict
from rig.runner import Run
from rig.table import Goal
from rig.torch_modes import torch_goals

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


def another_tree_is_not_taken_for_one_before():
    """What --against builds is of the tree that is named."""
    folder, called, call = tempfile.mkdtemp(), [], build.call
    for tree in "first", "second":
        os.mkdir(os.path.join(folder, tree))
    into = os.path.join(folder, "build")

    def pretend(argv):
        called.append(argv[0])
        if argv[0] == "meson":
            os.makedirs(os.path.join(into, "meson-info"))
            with open(os.path.join(into, "build.ninja"), "w"), open(os.path.join(into, "meson-info/meson-info.json"), "w") as info:
                json.dump({"directories": {"source": argv[3]}}, info)
    try:
        build.call = pretend
        for tree, expected in (("first", ["meson", "ninja"]), ("first", ["ninja"]), ("second", ["meson", "ninja"])):
            called.clear()
            build.other_library(os.path.join(folder, tree), into)
            assert called == expected, (tree, called)
    finally:
        build.call = call


def what_was_not_recorded_is_a_failure():
    """The library was to write a file, and wrote none."""
    figures = types.SimpleNamespace(worked=True, result={"pair_64k": 5})
    nowhere = types.SimpleNamespace(simulated=types.SimpleNamespace(work=tempfile.mkdtemp()), simulate=lambda *_, **__: figures)
    for suffix in "", ".gz":
        try:
            calls.recording(suffix).measure(nowhere)
            raise AssertionError("it was measured")
        except Failed:
            pass


def a_program_that_fails_beside_another_build_is_a_failure():
    """And so is a training that was to write a trace, and did not."""
    bench_of = types.SimpleNamespace(device=None, started=0, folder=tempfile.mkdtemp())
    for module, name, run, measure in ((against, "run_side_by_side", Run("", code=1), against.training("other", "training", ["x"], 1)),
                                       (covered, "run_rows", run_of({"checksum": 1}), covered.measure("bare segments", {}))):
        kept = getattr(module, name)
        try:
            setattr(module, name, lambda _, rows, *more, run=run: [row.runs.append(run) for row in rows])
            measure(bench_of)
            raise AssertionError("it was measured")
        except Failed:
            pass
        finally:
            setattr(module, name, kept)


def answers_that_one_does_not_give_differ():
    known = [run_of({"answers": {"a": 0}}), run_of({"answers": {"a": 0}}), run_of({})]
    bare, same, none = (Row(str(at), ["x"], like="0" if at else None, runs=[one]) for at, one in enumerate(known))
    told = [verdict(row, [bare, same, none]) for row in (bare, same, none)]
    assert told == [(True, "right"), (True, "same"), (False, "1 DIFFER: a (None, not 0)")], told


def features_of_one_mode_alone_are_told_beside_those_that_are_kept():
    known = {row.name: row for row in rows()}
    for mode, features in ("bare", {"a": ["works", 1], "b": ["works", 2]}), ("0", {"a": ["works", 1], "b": ["works", 3], "c": ["works", 3]}):
        known[f"features: {mode}"].runs = [run_of({"features": features})]
    goal, = torch_goals(list(known.values()))
    assert goal.figure == "1 of 2; not b (differs (3, not 2)), c" and not goal.holds, goal


SANITIZER = """#!/bin/sh
case "$*" in
*planted*) echo "========= ERROR SUMMARY: 1 error" ;;
*) echo "========= Program hit CUDA_ERROR_NOT_SUPPORTED due to operation not supported"; echo "========= ERROR SUMMARY: $FOUND errors" ;;
esac
"""


def what_is_not_supported_in_a_program_is_no_reason_to_skip_it():
    """The tool itself has watched the program with the planted error."""
    folder = tempfile.mkdtemp()
    with open(os.path.join(folder, "compute-sanitizer"), "w", opener=lambda path, flags: os.open(path, flags, 0o755)) as file:
        file.write(SANITIZER)
    for found in 3, 0:
        env = os.environ | {"PATH": folder + ":" + os.environ["PATH"], "FOUND": str(found)}
        done = subprocess.run([sys.executable, os.path.join(HERE, "../sanitize.py"), "planted", "true"], env=env, stdout=subprocess.PIPE, text=True)
        result = json.loads(done.stdout.splitlines()[-1])
        assert done.returncode == 0 and result == {"ok": True, "planted": 1, "checksum": found}, done


def wrong_data_is_no_refusal():
    """Of what PyTorch may refuse with another backend: neither are tensors that were overwritten, nor is a program that hangs."""
    def told(code, result):
        return verdict(Row("a", ["x"], may_fail=True, runs=[Run("", code=code, result=result)]), [])
    assert told(1, {}) == told(1, {"ok": False, "differ": 3}) == told(0, {"ok": False, "wrong": []}) == (True, "does not work")
    assert told(1, {"ok": False, "wrong": "an all-reduce"}) == told(0, {"ok": False, "mismatches": 3}) == (False, "WRONG DATA")
    assert told(0, {"ok": False, "wrong": ["a tensor was overwritten"]}) == (False, "WRONG DATA") and told(None, {})[0] is False


def what_was_chosen_and_did_not_run_is_not_right():
    """Whether a program was not built, or the check was stopped before it; goals of rows that were not chosen do no harm."""
    out = tempfile.mkdtemp()
    options = types.SimpleNamespace(only="stress, bare", sections=["core"], out=out)
    for skipped, run, right in (("NOT BUILT", None, False), ("", None, False), ("", run_of({"mismatches": 0}), True)):
        known = rows()
        chosen = [row for row in known if row.name in ("stress, bare", "empty context")]
        chosen[0].runs = [run_of({})]
        chosen[1].skipped, chosen[1].runs = skipped, [run] if run else []
        with contextlib.redirect_stdout(io.StringIO()) as said:
            assert check.report(known, chosen, {}, None, options) == right, said.getvalue()


def nothing_is_built_without_a_gpu():
    env = {name: value for name, value in os.environ.items() if not name.startswith("LD_")}
    if os.path.exists("/dev/nvidiactl") or not subprocess.run([sys.executable, "-c", "import ctypes; ctypes.CDLL('libcuda.so.1')"], env=env,
                                                              stderr=subprocess.DEVNULL).returncode:
        return
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([sys.executable, os.path.join(build.ROOT, "scripts/gpu-check"), "--build", os.path.join(folder, "build")], env=env,
                              capture_output=True, text=True, timeout=300)
        assert done.returncode == 1 and "no NVIDIA GPU" in done.stderr and not os.listdir(folder), (done, os.listdir(folder))


tap.run([nothing_is_built_without_a_gpu, what_was_chosen_and_did_not_run_is_not_right, another_tree_is_not_taken_for_one_before, what_was_not_recorded_is_a_failure,
         what_is_not_supported_in_a_program_is_no_reason_to_skip_it, wrong_data_is_no_refusal, a_program_that_fails_beside_another_build_is_a_failure,
         features_of_one_mode_alone_are_told_beside_those_that_are_kept, answers_that_one_does_not_give_differ, what_was_measured_is_not_lost, every_program_is_there, every_source_is_there, rows_are_told_apart, the_commands_list, copies_have_a_row_each])
