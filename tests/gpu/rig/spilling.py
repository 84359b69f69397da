"""Memory of the host where the device has no more (VPOOL_SPILL): all that the device's does, and a training run with less
memory than it has alive, beside cudaMallocManaged."""
# SPDX-License-Identifier: Apache-2.0
import os

from .table import Goal

TRAINING = "training in 95 and 90 %, and managed"
# Each block of a MiB and more, or of every size, lies in the host's memory at once.
LARGE = {"VPOOL_SPILL": "8G", "VPOOL_SPILL_TEST": "1M"}
EVERY = {"VPOOL_SPILL": "8G", "VPOOL_SPILL_TEST": "1"}


def spill_rows(row, script, work, quick):
    """`row` and `script` make rows.py's rows and command lines."""
    build = os.path.dirname(work)
    rows = []

    def both(name, argv, env, **more):
        rows.append(row(f"{name}, unspilled", argv, section="spill", **more))
        rows.append(row(f"{name}, spilled", argv, section="spill", preload=True, env=env, like=f"{name}, unspilled",
                        **more))

    both("kernels, atomics, copies, questions", [os.path.join(work, "spilled")], LARGE, limit=60)
    both("memory pools", [os.path.join(build, "tests", "gpu", "pool_answers"), "spilled"],
         LARGE | {"VPOOL_SPILL_TEST": "33M"}, limit=60)
    both("cuBLAS, cuFFT, cuSOLVER, cuRAND", [os.path.join(work, "libraries"), "4"], EVERY, tolerance=1e-9, limit=60)
    both("samples of PyTorch's operators", script("torch_ops.py", "--every", "40" if quick else "20", "--samples", "4"),
         EVERY | {"VPOOL_ADOPT": "async"}, context="torch", limit=90)
    rows.append(row(TRAINING,
                    script("spilled_training.py", os.path.join(build, "libvpool.so"), os.path.join(work, "managed_alloc.so"),
                           "4" if quick else "8"), section="spill", context="torch", limit=200))
    return rows


def spill_goals(rows):
    """A step with so much of what it needs: spilled, and on managed memory, which it is not to be behind."""
    training = next((one for one in rows if one.name == TRAINING and one.runs), None)
    goals = []
    for percent in (95, 90) if training else ():
        spilled, managed = (training.figure(f"{way}_{percent}_s") for way in ("spilled", "managed"))
        what, wanted = f"a training step with {percent} % of its memory, spilled", "<= managed"
        if spilled is None or managed is None:
            goals.append(Goal(what, "not measured", wanted, None))
        else:
            goals.append(Goal(what, f"{spilled:.3f} s (managed {managed:.3f}, with all {training.figure('whole_s'):.3f})", wanted,
                              spilled <= managed))
    return goals
