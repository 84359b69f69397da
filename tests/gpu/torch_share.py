"""Shares PyTorch's CUDA tensors between processes, both ways, by torch.multiprocessing.

PyTorch's own cache must be in use: under libvpool.so with VPOOL_ADOPT=0. Prints one JSON object; "checksum" is the
same whatever the allocator.
"""
# SPDX-License-Identifier: Apache-2.0
import json

import torch
import torch.multiprocessing as multiprocessing

ROUNDS = 20
WAIT = 60  # seconds that an answer may take


def sizes_of(index):
    """Elements of 8 bytes: small ones that share a segment of 2 MiB, and large ones with segments of their own."""
    return [1 + index, 1000 * (index + 1), 100_000 + index, 3_000_000 + 4096 * index]


def work(asked, answers):
    """The other process: checks and changes what it is shown, and shows something of its own."""
    while (message := asked.get()) is not None:
        index, tensors = message
        sums = [int(tensor.sum()) for tensor in tensors]
        for tensor in tensors:
            tensor += 1
        mine = torch.arange(10_000 * (index + 1), device="cuda")
        torch.cuda.synchronize()
        answers.put((sums, mine))
        del tensors, message
        asked.get()  # until it has been looked at
        del mine


def main():
    context = multiprocessing.get_context("spawn")
    asked, answers = context.Queue(), context.Queue()
    other = context.Process(target=work, args=(asked, answers), daemon=True)
    other.start()
    checksum, wrong = 0, []
    for index in range(ROUNDS):
        tensors = [torch.full((size,), index + 1, dtype=torch.int64, device="cuda") for size in sizes_of(index)]
        torch.cuda.synchronize()
        asked.put((index, tensors))
        sums, theirs = answers.get(timeout=WAIT)
        if sums != [size * (index + 1) for size in sizes_of(index)]:
            wrong.append(f"round {index}: the other process saw {sums}")
        if not all(bool((tensor == index + 2).all()) for tensor in tensors):
            wrong.append(f"round {index}: its changes are not seen here")
        if int(theirs.sum()) != sum(range(10_000 * (index + 1))):
            wrong.append(f"round {index}: its own tensor is wrong here")
        checksum += sum(sums) + int(theirs.sum())
        del theirs, tensors
        asked.put("seen")
    asked.put(None)
    other.join(WAIT)
    if other.exitcode != 0:
        wrong.append(f"the other process ended with {other.exitcode}")
    print(json.dumps({"ok": not wrong, "checksum": checksum, "rounds": ROUNDS, "wrong": wrong[:3],
                      "backend": torch.cuda.get_allocator_backend()}))


if __name__ == "__main__":
    main()
