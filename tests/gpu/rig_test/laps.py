"""A program of laps, for side_by_side.py: laps.py LAPS-A-STEP FAIL-AT [report.py's options]. It writes down when each of its laps ran."""
# SPDX-License-Identifier: Apache-2.0
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../examples"))
import report

laps, fail_at = int(sys.argv.pop(1)), int(sys.argv.pop(1))
options = report.options("", 3, lambda parser: parser.add_argument("--diary", required=True))
diary = open(options.diary, "a")


def note(word):
    diary.write(f"{os.getpid()} {word} {time.monotonic_ns()}\n")
    diary.flush()


def step(number):
    for lap in range(laps):
        note("begin")
        if number * laps + lap == fail_at:
            if os.environ.get("LAPS_HANG"):
                time.sleep(60)
            sys.exit("it failed")
        time.sleep(0.002)
        note("end")
        if lap + 1 < laps:
            report.lap()
    return 1, ""


report.show(report.run(step, options) | {"checksum": 1}, options.json)
