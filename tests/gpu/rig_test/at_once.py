#!/usr/bin/env python3
"""Rows that gpu-check runs at the same time: each has its own result, and its own limit. Reports in TAP."""
# SPDX-License-Identifier: Apache-2.0
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True
HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1] / "common")]
import tap
from rig.rows import Row
from rig.runner import Runner, run_rows

OUT = Path(sys.argv[1])
OUT.mkdir(parents=True, exist_ok=True)


def say(text, seconds=0.0, code=0):
    program = f"import time; time.sleep({seconds}); print('{{\"ok\": true, \"checksum\": {text}}}'); raise SystemExit({code})"
    return [sys.executable, "-c", program]


def run(rows):
    began = time.monotonic()
    run_rows(Runner("none", str(OUT), str(OUT), None, began + 60), rows, {}, began)
    return time.monotonic() - began


def rows_of_one_word_run_at_once():
    rows = [Row(f"together {n}", say(n, 1.0), beside="these") for n in range(3)]
    took = run(rows)
    assert took < 2.5, took
    assert [row.runs[0].result.get("checksum") for row in rows] == [0, 1, 2]
    assert all(row.runs[0].worked for row in rows)


def others_run_one_by_one():
    rows = [Row("a", say(1, 0.5), beside="a"), Row("b", say(2, 0.5), beside="b"), Row("c", say(3, 0.5))]
    assert run(rows) > 1.4
    assert [row.runs[0].result.get("checksum") for row in rows] == [1, 2, 3]


def one_that_hangs_or_fails_costs_the_others_nothing():
    rows = [Row("hangs", say(1, 30), beside="these", limit=1), Row("works", say(2), beside="these"),
            Row("fails", say(3, 0, 5), beside="these"), Row("is not there", ["/nowhere"], beside="these")]
    assert run(rows) < 10
    assert rows[0].runs[0].code is None and rows[1].runs[0].worked and rows[2].runs[0].code == 5
    assert rows[3].skipped == "NOT BUILT"


def its_own_limit_is_no_lack_of_time():
    """Also for one that is waited for only after another has taken its time."""
    rows = [Row("takes its time", say(1, 1.0)), Row("hangs", say(2, 30), limit=2.5)]
    runs = Runner("none", str(OUT), str(OUT), None, time.monotonic() + 3).run_beside(rows)
    assert runs[0].worked and runs[1].code is None and not runs[1].cut
    runs = Runner("none", str(OUT), str(OUT), None, time.monotonic() + 1).run_beside(rows[1:])
    assert runs[0].code is None and runs[0].cut


class Flaky:
    """A device that NVML tells nothing of for a while, as when it is reset."""

    def used(self):
        raise OSError("nvmlDeviceGetMemoryInfo returned 15")


def a_device_that_is_not_told_of_costs_the_peaks_alone():
    run = Runner("none", str(OUT), str(OUT), Flaky(), time.monotonic() + 60).run(say(1))
    assert run.worked and run.peak is None


def nothing_of_an_earlier_check_is_a_rows():
    (OUT / "run-1.stats.1").write_text('{"devices": [{"peak_held_bytes": 5}]}')
    rows = [Row("bare", say(1))]
    run(rows)
    assert not rows[0].runs[0].stats, rows[0].runs[0].stats


tap.run([rows_of_one_word_run_at_once, others_run_one_by_one, one_that_hangs_or_fails_costs_the_others_nothing,
         its_own_limit_is_no_lack_of_time, a_device_that_is_not_told_of_costs_the_peaks_alone,
         nothing_of_an_earlier_check_is_a_rows])
