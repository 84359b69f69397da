"""How long a device's memory takes to go to sleep and to wake, beside the driver's own checkpoint of a process."""
# SPDX-License-Identifier: Apache-2.0
import os

from .probe import Probe, worked
from .table import Goal

GIB = 32
WHAT = f"vpool_pause() and vpool_resume() with {GIB} GiB alive"
GOALS = [("first pause", "first_pause_s", 4.0), ("later pauses", "pause_s", 1.2), ("resume", "resume_s", 1.0),
         ("contents dropped: pause", "drop_out_s", 0.05), ("contents dropped: resume", "drop_in_s", 0.15)]


def measure(bench):
    run = worked(bench.device.run([os.path.join(bench.folder, "tests/gpu/pausing"), str(GIB * 1024)], preload=True))
    result = run.result
    if result["checkpoint"]:
        bench.notes.append(f"{WHAT}: the driver's own checkpoint took {result['checkpoint_out_s']:.2f} s out and "
                           f"{result['checkpoint_in_s']:.2f} s in, in the same process")
    else:
        bench.notes.append(f"{WHAT}: the driver has no checkpoint, or refused it")
    return [Goal(f"{WHAT}: {what}", f"{result[name]:.3f} s", f"<= {most} s", result[name] <= most)
            for what, name, most in GOALS] + [Goal(f"{WHAT}: every byte is right", str(result["ok"]), "True", result["ok"])]


def probes():
    return [Probe(WHAT, True, [(f"{WHAT}: {what}", f"<= {most} s") for what, _, most in GOALS] +
                  [(f"{WHAT}: every byte is right", "True")], measure)]
