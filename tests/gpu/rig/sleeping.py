"""How long a device's memory takes to go to sleep and to wake, beside the driver's own checkpoint of a process."""
# SPDX-License-Identifier: Apache-2.0
import os

from .probe import Probe, worked
from .table import REFUSED_MS, Goal

GIB = 32
OUTSIDE_GIB = 8
WHAT = f"vpool_pause() and vpool_resume() with {GIB} GiB alive"
OUTSIDE = f"vpool pause PID and vpool resume PID with {OUTSIDE_GIB} GiB alive"
GOALS = [("first pause", "first_pause_s", 4.0), ("later pauses", "pause_s", 1.2), ("resume", "resume_s", 1.0),
         ("contents dropped: pause", "drop_out_s", 0.05), ("contents dropped: resume", "drop_in_s", 0.15)]
# In a capture and with memory exported; of several ranks see peer_goals() of rows.py.
REFUSED = f"{WHAT}: refused in a capture and beside IPC within"
FULL = f"{WHAT}: refused onto a full device, and works once there is room"


def measure(bench):
    run = worked(bench.device.run([os.path.join(bench.folder, "tests/gpu/pausing"), str(GIB * 1024)], preload=True))
    result = run.result
    if result["checkpoint"]:
        bench.notes.append(f"{WHAT}: {result['pause_s']:.2f} s out and {result['resume_s']:.2f} s in; the driver's own "
                           f"checkpoint {result['checkpoint_out_s']:.2f} and {result['checkpoint_in_s']:.2f}, in the same process")
    else:
        bench.notes.append(f"{WHAT}: the driver has no checkpoint, or refused it")
    return [Goal(f"{WHAT}: {what}", f"{result[name]:.3f} s", f"<= {most} s", result[name] <= most)
            for what, name, most in GOALS] + [Goal(f"{WHAT}: every byte is right", str(result["ok"]), "True", result["ok"]),
                                              Goal(REFUSED, f"{result['refused_ms']:.3f} ms", f"<= {REFUSED_MS} ms",
                                                   result["refused_right"] and result["refused_ms"] <= REFUSED_MS),
                                              Goal(FULL, f"{result['refused_right']} ({result['refused_full_ms']:.1f} ms)", "True",
                                                   result["refused_right"])]


def measure_outside(bench):
    command = os.path.join(bench.folder, "vpool")
    run = worked(bench.device.run([os.path.join(bench.folder, "tests/gpu/pausing"), str(OUTSIDE_GIB * 1024), "0", command],
                                  preload=True))
    result = run.result
    if result["checkpoint"]:
        bench.notes.append(f"{OUTSIDE}: {result['checkpoint_out_s']:.2f} s out, {result['checkpoint_in_s']:.2f} s in")
    good = result["checkpoint"] and result["ok"]
    return [Goal(f"{OUTSIDE}: it sleeps and wakes, every byte is right", str(good), "True", good)]


def probes():
    return [Probe(OUTSIDE, True, [(f"{OUTSIDE}: it sleeps and wakes, every byte is right", "True")], measure_outside),
            Probe(WHAT, True, [(f"{WHAT}: {what}", f"<= {most} s") for what, _, most in GOALS] +
                  [(f"{WHAT}: every byte is right", "True"), (REFUSED, f"<= {REFUSED_MS} ms"), (FULL, "True")], measure)]
