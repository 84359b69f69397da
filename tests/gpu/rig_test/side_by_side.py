#!/usr/bin/env python3
"""Tests of how scripts/bench compares PyTorch programs: they run side by side and take turns, here without a GPU and without PyTorch.

usage: side_by_side.py FOLDER
"""
# SPDX-License-Identifier: Apache-2.0
import os
import sys
import time

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, folder) for folder in ("..", "../../common")]

import tap
from rig import own_cache
from rig.rows import Row, verdict
from rig.runner import Run, Runner
from rig.side_by_side import run_side_by_side
from rig.workloads import speed_goal

folder = sys.argv[1]
os.makedirs(folder, exist_ok=True)
NAMES = "its cache", "expandable", "vpool"


def rows(diary, fail=(-1, -1, -1), steps=3):
    path = os.path.join(folder, diary)
    if os.path.exists(path):
        os.remove(path)
    env = {"PYTHONPATH": os.path.join(HERE, "stub"), "PYTHONDONTWRITEBYTECODE": "1"}
    return [Row(f"laps, {name}", [sys.executable, os.path.join(HERE, "laps.py"), "2", str(at), "--json", "--steps", str(steps), "--diary", path],
                env=env) for name, at in zip(NAMES, fail)], path


def runner(seconds=60):
    return Runner("/no/library", folder, folder, None, time.monotonic() + seconds)


def they_take_turns():
    three, diary = rows("turns")
    for _ in range(2):
        run_side_by_side(runner(), three, time.monotonic())
    assert [len(row.runs) for row in three] == [2, 2, 2] and all(run.worked for row in three for run in row.runs), [row.runs for row in three]
    assert all([len(laps) for laps in row.timed()[0]] == [2, 2, 2] for row in three)
    with open(diary) as file:
        notes = [line.split() for line in file]
    assert len(notes) == 2 * 3 * 6 * 2
    for begin, end in zip(notes[::2], notes[1::2]):  # nobody begins a lap while another is in one
        assert (begin[0], begin[1], end[1]) == (end[0], "begin", "end"), (begin, end)
    starters = [note[0] for note in notes[::6]]
    assert len(set(starters[:3])) == 3, "each goes first in its turn"


def one_that_fails_holds_up_nobody():
    three, _ = rows("fails", fail=(-1, 3, -1))
    run_side_by_side(runner(), three, time.monotonic())
    assert [row.runs[0].code for row in three] == [0, 1, 0], [row.runs[0].code for row in three]
    assert "it failed" in three[1].runs[0].errors and not three[1].timed()
    assert speed_goal("speed", three[2], three[:2]).figure == "not measured"


def one_that_cannot_start_holds_up_nobody():
    three, _ = rows("missing")
    three[0].argv[0] = "/no/such/program"
    run_side_by_side(runner(), three, time.monotonic())
    assert [row.runs[0].code for row in three] == [127, 0, 0], [row.runs[0].code for row in three]


def without_time_there_is_no_run():
    three, diary = rows("time", steps=100000)
    run_side_by_side(runner(1.5), three, time.monotonic())
    assert [(row.runs, row.skipped) for row in three] == [([], "no time left")] * 3
    with open(diary) as file:
        before = file.read()
    time.sleep(0.1)
    with open(diary) as file:
        assert file.read() == before, "they are gone"


def one_that_hangs_has_failed():
    """There was time for it; of those beside it nothing is known."""
    three, _ = rows("hangs", fail=(-1, -1, 3))
    three[2].env["LAPS_HANG"] = "1"
    run_side_by_side(runner(), three, time.monotonic(), limit=3)
    assert [len(row.runs) for row in three] == [0, 0, 1] and three[2].runs[0].code is None, [row.runs for row in three]
    assert verdict(three[2], three) == (False, "TIMED OUT") and verdict(three[0], three)[0] is None
    assert "laps, vpool" in three[0].skipped, three[0].skipped


def a_run_cut_off_is_no_failure():
    late = runner(1.5)
    run = late.run([sys.executable, "-c", "import time; time.sleep(60)"])
    assert run.cut and run.code is None
    run = runner().run([sys.executable, "-c", "import time; time.sleep(60)"], limit=0.3)
    assert not run.cut and run.code is None


def each_lap_counts_at_its_best():
    def row(name, *turns):
        return Row(f"laps, {name}", ["x"], runs=[Run("x", code=0, result={"lap_ms": laps}) for laps in turns])

    cache, expandable = row("its cache", [[1, 4], [4]], [[3, 2], [8]]), row("expandable", [[9, 9], [9]], [[9, 9], [9]])
    ours = row("vpool", [[2, 2], [8]], [[4, 2], [4]], [[1, 1], [1]])
    assert cache.step_ms() == [3, 4] and cache.step_ms(1) == [5, 4] and ours.step_ms() == [2, 1]
    goal = speed_goal("speed", ours, [cache, expandable])  # of three turns, two: as many as the others have
    assert goal.figure.startswith("0.8750 ") and "the later half 1.0000; by turn 0.750, 1.300" in goal.figure and not goal.holds, goal.figure


def what_the_driver_took_is_of_steps_at_their_best():
    def run(laps, driver):
        return Run("x", code=0, result={"lap_ms": [[9]] * own_cache.SETTLED + laps, "driver_ms": [5] * own_cache.SETTLED + driver})

    row = Row("bare segments", ["x"], runs=[run([[50], [100, 50]], [1, 4]), run([[20], [150, 40]], [3, 1])])
    assert own_cache.driver_share(row) == (1.25, 2, 2), own_cache.driver_share(row)


TESTS = [they_take_turns, one_that_fails_holds_up_nobody, one_that_cannot_start_holds_up_nobody, without_time_there_is_no_run, one_that_hangs_has_failed,
         a_run_cut_off_is_no_failure, each_lap_counts_at_its_best,
         what_the_driver_took_is_of_steps_at_their_best]

tap.run(TESTS)
