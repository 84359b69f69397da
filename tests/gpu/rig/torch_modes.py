"""PyTorch's features under each way to serve it: bare, and libvpool.so with each VPOOL_ADOPT."""
# SPDX-License-Identifier: Apache-2.0
import os

from .table import Goal, print_table

# The column's name, whether libvpool.so is preloaded, and the environment.
MODES = {
    "bare": (False, {}),
    "auto": (True, {}),  # bare segments
    "async": (True, {"VPOOL_ADOPT": "async"}),
    "0": (True, {"VPOOL_ADOPT": "0"}),
}
KEEPS_ALL = ("auto", "0")  # what they refuse, bare PyTorch must refuse, too

# Programs of their own: name, script and arguments, whether two GPUs are needed.
PROGRAMS = [
    ("torch.multiprocessing", ["torch_share.py"], False),
    ('compile(mode="reduce-overhead")', ["graphs.py", "compiled"], False),
    ("a captured training step", ["graphs.py", "step"], False),
    ("NCCL", ["ranks.py", "collectives"], True),
    ("NCCL, registered", ["ranks.py", "collectives"], True),
    ("NCCL in a graph", ["ranks.py", "captured"], True),
    ("NCCL in a graph, registered", ["ranks.py", "captured"], True),
    ("symmetric memory", ["ranks.py", "symmetric"], True),
    ("DistributedDataParallel", ["ranks.py", "training"], True),
    ("DistributedDataParallel, registered", ["ranks.py", "training"], True),
    ("FSDP", ["ranks.py", "sharded"], True),
    ("FSDP, registered", ["ranks.py", "sharded"], True),
]
# NCCL registers each segment of the cache, and what a graph uses of them.
REGISTERED = {"TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK": "1", "NCCL_GRAPH_REGISTER": "1"}
STRESS_S, QUICK_STRESS_S = 30, 10


def torch_rows(row, script, work, quick, seconds):
    """`row` and `script` make rows.py's rows and command lines; `work` has the compiled programs; bytes are under stress for
    so many seconds (None: as many as usual)."""
    rows = []
    seconds = seconds or (QUICK_STRESS_S if quick else STRESS_S)

    def in_each_mode(name, argv, env=None, limit=240, at_once=True):
        """`at_once`: all modes side by side, as none needs the device to itself."""
        for mode, (preload, more) in MODES.items():
            rows.append(row(f"{name}: {mode}", argv, preload=preload, env=(env or {}) | more, section="torch",
                            context="torch", limit=limit, table=False, may_fail=mode not in KEEPS_ALL,
                            like=None if mode == "bare" or name == "features" else f"{name}: bare", tolerance=1e-2,
                            beside=name if at_once else ""))

    in_each_mode("features", script("torch_features.py"), at_once=False)
    in_each_mode("bytes under stress", script("torch_stress.py", "--seconds", f"{seconds:g}"), limit=seconds + 120)
    two = {"CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES", "0,1")}
    for name, argv, peers in PROGRAMS:
        if not (quick and (peers or "compile" in name)):
            in_each_mode(name, script(*argv), (two if peers else {}) | (REGISTERED if "registered" in name else {}))
    if not quick:
        in_each_mode("compute-sanitizer", script("sanitize.py", os.path.join(work, "planted"), *script("torch_small.py")))
    return rows


# ---- what came out

def told(rows, mode):
    """What each feature did in a mode: name to (how, figure)."""
    found = {}
    for row in rows:
        name, _, of = row.name.partition(": ")
        if row.section != "torch" or of != mode or not row.runs:
            continue
        run = row.runs[0]
        if name == "features":
            found.update({feature: tuple(how) for feature, how in run.result.get("features", {}).items()})
            if run.code != 0:
                found["(all of them)"] = ("crashed", f"exit {run.code} after {len(found)} features")
        elif run.skipped:
            found[name] = ("skipped", run.skipped)
        elif run.worked:
            found[name] = ("works", run.result.get("checksum"))
        else:
            found[name] = ("refused", run.errors.strip().splitlines()[-1][:160] if run.errors.strip() else f"exit {run.code}")
    return found


def alike(a, b):
    """Two figures, to the last digits of those that are no whole numbers."""
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(alike, a, b))
    if isinstance(a, float) or isinstance(b, float):
        return abs(a - b) <= 1e-2 * max(abs(a), abs(b))
    return a == b


def word(own, bare):
    if own is None:
        return "-"
    how, figure = own
    if how != "works" or bare is None or bare[0] != "works":
        return how
    return "same" if alike(figure, bare[1]) else f"differs ({figure}, not {bare[1]})"[:40]


def torch_goals(rows):
    bare, goals = told(rows, "bare"), []
    for mode in KEEPS_ALL:
        own = told(rows, mode)
        if not own:
            continue
        names = [name for name in bare if bare[name][0] == "works"]
        words = {name: word(own[name], bare[name]) if name in own else "not run" for name in names}
        lost = [f"{name} ({how})" for name, how in words.items() if how != "same"]
        kept = len(names) - len(lost)
        lost += [name for name in own if name not in bare]
        goals.append(Goal(f"PyTorch's features, {mode}", f"{kept} of {len(names)}" + (
            "; not " + ", ".join(lost) if lost else ""), "all that work bare", not lost and bool(names)))
    return goals


def print_features(rows):
    """A table of features and modes, as docs/pytorch.md has it, and why what was refused was refused."""
    columns = {mode: told(rows, mode) for mode in MODES}
    names = list(dict.fromkeys(name for column in columns.values() for name in column))
    if not names:
        return
    bare = columns["bare"]
    print()
    print_table([["feature", *MODES]] + [[name] + [word(column.get(name), None if mode == "bare" else bare.get(name))
                                                   for mode, column in columns.items()] for name in names], 6)
    for mode, column in columns.items():
        for name, (how, why) in column.items():
            if how not in ("works", "skipped"):
                print(f"{name}, {mode}: {how}: {why}")
