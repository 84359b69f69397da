"""Moves PyTorch's tensors between two GPUs and back, in all the ways that a program does.

Prints one JSON object; "checksum" is the same whatever the allocator.
"""
# SPDX-License-Identifier: Apache-2.0
import json
import sys

import torch

SIZES = [1, 1000, 300_000, 5_000_000]


def main():
    if torch.cuda.device_count() < 2:
        print(json.dumps({"skipped": "one GPU alone"}))
        sys.exit(77)
    wrong, checksum = [], 0
    for current in "cuda:0", "cuda:1":
        torch.cuda.set_device(current)
        for size in SIZES:
            for here, there in ("cuda:0", "cuda:1"), ("cuda:1", "cuda:0"):
                source = torch.arange(size, dtype=torch.int64, device=here)
                side = torch.cuda.Stream(here)
                moved = {"to": source.to(there), "non_blocking": source.to(there, non_blocking=True),
                         "copy_": torch.empty_like(source, device=there).copy_(source),
                         "rows": torch.stack([source, source], 1)[:, 0].to(there)}
                with torch.cuda.stream(side):
                    side.wait_stream(torch.cuda.default_stream(here))
                    moved["side"] = source.to(there, non_blocking=True)
                torch.cuda.synchronize(here)
                torch.cuda.synchronize(there)
                for name, tensor in moved.items():
                    back = tensor.to(here)
                    if not torch.equal(back, source):
                        wrong.append(f"{name}: {size} from {here} to {there}, {current} current")
                    checksum += int(tensor.sum()) % 1_000_003
    print(json.dumps({"ok": not wrong, "checksum": checksum, "wrong": wrong[:3],
                      "backend": torch.cuda.get_allocator_backend()}))


if __name__ == "__main__":
    main()
