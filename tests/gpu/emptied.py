#!/usr/bin/env python3
"""Frees much of PyTorch's memory and empties its cache: what does the device still have in use for this process, within a second?

    python3 tests/gpu/emptied.py        prints one JSON object: bytes in use at first, alive and in use afterwards
"""
# SPDX-License-Identifier: Apache-2.0
import json
import os
import subprocess
import time

import torch

MIB = 1 << 20


def in_use():
    """As the driver tells others of the device: the library answers cudaMemGetInfo as if its idle memory were free."""
    device = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0].strip() or "0"
    told = subprocess.run(["nvidia-smi", "-i", device, "--query-gpu=memory.used", "--format=csv,noheader,nounits"], check=True,
                          stdout=subprocess.PIPE, text=True)
    return int(told.stdout) * MIB


def within_a_second():
    begin, least = time.monotonic(), in_use()
    while time.monotonic() - begin < 1:
        time.sleep(0.02)
        least = min(least, in_use())
    return least


torch.zeros(1, device="cuda").add_(1)
torch.cuda.synchronize()
first = in_use()
kept = [torch.full((64 * MIB,), 1, dtype=torch.uint8, device="cuda") for _ in range(16)]
for step in range(3):
    gone = [torch.full(((100 + 37 * i % 400) * MIB,), step, dtype=torch.uint8, device="cuda") for i in range(80)]
    del gone
peak = in_use()
torch.cuda.empty_cache()
half = within_a_second()
alive = sum(tensor.numel() for tensor in kept)
right = all(int(tensor.sum(dtype=torch.int64)) == tensor.numel() for tensor in kept)
del kept
torch.cuda.empty_cache()
print(json.dumps({"first_bytes": first, "alive_bytes": alive, "peak_bytes": peak, "emptied_bytes": half,
                  "all_freed_bytes": within_a_second(), "ok": right}))
