"""Copies between devices without peer access: what each call answers, and what it costs to have a second device."""
# SPDX-License-Identifier: Apache-2.0
import os

from .table import Goal

SPEED, SECOND, BEFORE = 0.98, 1.25, 1.05
CHURNS = {"one device in use": "1", "two devices in use": "2", "two devices that copy": "3"}
# By kind, how the questions of copies.cu begin.
KINDS = {"cudaMemcpy": ("cudaMemcpy, ",), "cudaMemcpyAsync": ("cudaMemcpyAsync, ",), "2D": ("cudaMemcpy2D",),
         "3D": ("cudaMemcpy3D, ", "cudaMemcpy3DAsync, "), "Peer": ("cudaMemcpyPeer", "cudaMemcpy3DPeer"),
         "batch": ("cudaMemcpyBatchAsync", "cudaMemcpy3DBatchAsync"), "a graph's memcpy node": ("captured", "node of a graph"),
         "from and to the host": ("to a device", "to the host"), "access told and switched": ("access flags", "enable", "disable")}
MOVED = {"moved tensors, vpool": "cudaMallocAsync", "moved tensors, vpool under its cache": "its cache"}
ONE, TWO, OLD = "training, one device to be seen", "training, two devices to be seen", "training, one device, before"


def copy_rows(row, script, training, work, env, turns, before):
    """`before`: another libvpool.so, whose driver time ours is held against; or None."""
    more = dict(env=env, section="peers", limit=60)
    program, torch = os.path.join(work, "copies"), dict(more, context="torch")
    rows = [row("copies, bare", [program], table=False, **more),
            row("copies, vpool", [program, "all"], preload=True, like="copies, bare", table=False, **more),
            row("moved tensors, bare", script("torch_copies.py"), table=False, **torch),
            row("moved tensors, vpool", script("torch_copies.py"), preload=True, like="moved tensors, bare", table=False,
                **torch),
            row("moved tensors, vpool under its cache", script("torch_copies.py"), preload=True, table=False,
                like="moved tensors, bare", **dict(torch, env=env | {"VPOOL_ADOPT": "0"}))]
    rows += [row(name, [program, "churn", number], preload=True, table=False, repeat=turns, **more)
             for name, number in CHURNS.items()]
    first = {"CUDA_VISIBLE_DEVICES": env["CUDA_VISIBLE_DEVICES"].split(",")[0]}
    seen = {ONE: first, TWO: env} | ({OLD: first | {"LD_PRELOAD": os.path.abspath(before)}} if before else {})
    return rows + [row(name, training, preload=True, table=False, repeat=turns, **dict(torch, env=more_env, limit=120))
                   for name, more_env in seen.items()]


def copy_goals(rows):
    row = {row.name: row for row in rows}
    return answer_goals(row["copies, bare"], row["copies, vpool"]) + moved_goals(row) + cost_goals(row)


def answer_goals(bare, vpool):
    """What each kind of copy answers, bare and under libvpool.so, and whether the bytes came."""
    if not bare.runs or not vpool.runs or any(run.skipped for run in bare.runs + vpool.runs):
        return []
    ours, theirs = (one.runs[0].result.get("answers", {}) for one in (vpool, bare))
    wrong, goals, known = vpool.figure("mismatches"), [], set()
    for kind, begins in KINDS.items():
        asked = [question for question in ours | theirs if question.startswith(begins)]
        known.update(asked)
        others = [question for question in asked if ours.get(question) != theirs.get(question)]
        failed = sum(ours.get(question) not in (0, None) for question in asked)
        text = f"{len(asked) - len(others)} of {len(asked)} answers as bare" + (f", {failed} of them no success" if failed else "")
        text += f"; other: {others[0]}" if others else ""
        goals.append(Goal(f"copies without peer access: {kind}", text, "as bare", bool(asked) and not others))
    left = [question for question in ours | theirs if question not in known]
    right = wrong == 0 and not left and vpool.runs[0].worked
    return goals + [Goal("copies without peer access: bytes", f"{'?' if wrong is None else round(wrong)} wrong" +
                         (f"; of no kind: {left[0]}" if left else ""), "0", right)]


def moved_goals(row):
    """PyTorch's .to("cuda:1") and back."""
    bare, goals = row["moved tensors, bare"], []
    for name, adoption in MOVED.items():
        runs = [*bare.runs, *row[name].runs]
        if not bare.runs or not row[name].runs or any(run.skipped for run in runs):
            continue
        wrong = row[name].runs[0].result.get("wrong")
        same = bare.figure("checksum") is not None and bare.figure("checksum") == row[name].figure("checksum")
        goals.append(Goal(f"PyTorch's tensors to another device and back, {adoption}",
                          ("as bare" if same else "other than bare") + (f"; {wrong[0]}" if wrong else ""), "as bare",
                          same and all(run.worked for run in runs)))
    return goals


def cost_goals(row):
    """Time in the driver for the same allocations, against that with one device."""
    def time(name):
        return row[name].best(lambda run: run.stats.get("driver_us"), min) if name in row else None

    # What is open to two devices is mapped for two: told, and no goal.
    pairs = [("two devices in use", "one device in use", SECOND), ("two devices that copy", "one device in use", None),
             (TWO, ONE, SECOND), (ONE, OLD, BEFORE)]
    goals = []
    for name, base, most in pairs:
        ours, theirs = time(name), time(base)
        if ours and theirs:
            goals.append(Goal(f"driver time, {name}" + (", against before" if base == OLD else ""),
                              f"{ours / theirs:.3f} ({ours / 1e3:.1f} / {theirs / 1e3:.1f} ms)", f"<= {most}" if most else "told",
                              not most or ours <= most * theirs))
    return goals
