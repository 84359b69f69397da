"""Right programs under VPOOL_POISON=1, which are not to be accused, and under VPOOL_ZERO=1: they do as they do without."""
# SPDX-License-Identifier: Apache-2.0


def written(run):
    """Blocks that were written to after their free, as libvpool.so counted them in one run; None: it looked at nothing."""
    poison = run.stats.get("poison")
    return poison["written_blocks"] if poison and poison["checked_bytes"] else None


def poison_rows(row, script, example):
    """`row`, `script` and `example` make rows.py's rows and command lines. Small programs: each block is copied to the host."""
    torch = dict(context="torch", tolerance=1e-2)
    programs = [
        ("training", example("train.py", "--side-stream", "--steps", "4", "--layers", "6", "--batch", "4", "--seq-max", "512"), {}, torch),
        ("fine-tuning", example("finetune.py", "--steps", "3", "--layers", "4", "--batch", "2", "--seq-max", "512"), {}, torch),
        ("generation", example("generate.py", "--steps", "1", "--layers", "4", "--batch", "8", "--prompt", "256", "--tokens", "16"), {}, torch),
        ("JAX", script("jax_mlp.py"), {"XLA_FLAGS": "--xla_gpu_autotune_level=0"}, dict(tolerance=1e-4)),
        ("CuPy, no pool", script("cupy_arrays.py", "--no-pool"), {}, dict(tolerance=1e-9)),
    ]
    rows = []
    for name, argv, env, more in programs:
        bare = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"} if name == "JAX" else {}
        rows.append(row(f"{name}, unpoisoned", argv, env=env | bare, section="memory", **more))
        for how, variable in ("poisoned", "VPOOL_POISON"), ("zeroed", "VPOOL_ZERO"):
            rows.append(row(f"{name}, {how}", argv, env=env | {variable: "1"}, section="memory", preload=True, accuses=how == "poisoned",
                            like=f"{name}, unpoisoned", **more))
    return rows
