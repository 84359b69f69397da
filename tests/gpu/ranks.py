"""Two or more GPUs, a process for each, by torchrun: what NCCL and data-parallel training make of our memory.

    ranks.py collectives  all-reduces of 1 GiB, and messages from each rank to the next; every element checked
    ranks.py captured     all-reduces in a CUDA graph, launched among tensors that come and go; every element checked
    ranks.py symmetric    all-reduces through symmetric memory, and a read of the other's; every element checked
    ranks.py asleep       a pause that is refused, among all-reduces; how long that takes
    ranks.py training     the model of examples/train.py, trained by all ranks together under DistributedDataParallel
    ranks.py sharded      the same with its parameters in shards (FSDP: fully_shard)

Prints one JSON object. Exits with 77 where there is one GPU alone.
"""
# SPDX-License-Identifier: Apache-2.0
import argparse
import ctypes
import errno
import json
import os
import statistics
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(HERE)), "examples"))

import report
import torch
import torch.distributed as dist

SKIPPED = 77
ELEMENTS = 1 << 28  # of 4 bytes: 1 GiB
TURNS = 60  # of a millisecond or two


def launch():
    """Begins again under torchrun, with a process for each of two GPUs."""
    if torch.cuda.device_count() < 2:
        print(json.dumps({"skipped": "one GPU alone"}))
        sys.exit(SKIPPED)
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    os.execv(sys.executable, [sys.executable, *torchrun, os.path.abspath(__file__), *sys.argv[1:]])


def timed(action, bytes_of_one):
    """GB/s at the median, after three turns that count for nothing."""
    seconds = []
    for _ in range(3 + TURNS):
        dist.barrier()
        torch.cuda.synchronize()
        start = time.perf_counter()
        action()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    return bytes_of_one / statistics.median(seconds[3:]) / 1e9


def demand(right, what):
    if not right:
        print(json.dumps({"ok": False, "wrong": what}), flush=True)
        raise SystemExit(f"rank {dist.get_rank()}: {what} is wrong")


def collectives():
    rank, ranks = dist.get_rank(), dist.get_world_size()
    sums = []
    for turn in range(4):  # new memory each time, and other memory freed behind it
        garbage = torch.empty(ELEMENTS // 3 + turn, device="cuda")
        block = torch.full((ELEMENTS,), float(rank + turn), device="cuda")
        del garbage
        dist.all_reduce(block)
        wanted = float(sum(range(ranks)) + ranks * turn)
        demand(bool((block == wanted).all()), "an all-reduce")
        sums.append(wanted)
        got = torch.empty(ELEMENTS // 4, device="cuda")
        sent = torch.full((ELEMENTS // 4,), 100.0 * turn + rank, device="cuda")
        both = [dist.P2POp(dist.isend, sent, (rank + 1) % ranks), dist.P2POp(dist.irecv, got, (rank - 1) % ranks)]
        for request in dist.batch_isend_irecv(both):
            request.wait()
        demand(bool((got == 100.0 * turn + (rank - 1) % ranks).all()), "a message")

    def exchange():
        for request in dist.batch_isend_irecv([dist.P2POp(dist.isend, sent, (rank + 1) % ranks),
                                               dist.P2POp(dist.irecv, got, (rank - 1) % ranks)]):
            request.wait()

    return {"checksum": sum(sums),
            "all_reduce_gb_s": timed(lambda: dist.all_reduce(block), 4 * ELEMENTS * 2 * (ranks - 1) / ranks),
            "send_recv_gb_s": timed(exchange, ELEMENTS)}


def symmetric():
    os.environ["TORCH_SYMM_MEM_DISABLE_MULTICAST"] = "1"
    import torch.distributed._symmetric_memory as symmetric_memory
    group, rank = dist.group.WORLD.group_name, dist.get_rank()
    for count in (1 << 10, 1 << 20, 5 << 20):
        for reduce in (torch.ops.symm_mem.one_shot_all_reduce, torch.ops.symm_mem.two_shot_all_reduce_):
            block = symmetric_memory.empty(count, dtype=torch.bfloat16, device="cuda").fill_(rank + 1)
            symmetric_memory.rendezvous(block, group)
            demand(bool((reduce(block, "sum", group) == 3).all()), f"a sum of {count}")
    block = symmetric_memory.empty(1 << 20, dtype=torch.float32, device="cuda").fill_(rank)
    handle = symmetric_memory.rendezvous(block, group)
    handle.barrier()
    demand(bool((handle.get_buffer(1 - rank, (1 << 20,), torch.float32) == 1 - rank).all()), "the other's memory")
    handle.barrier()
    return {"checksum": 3.0}


def asleep():
    """Peers may reach the memory at any time: a pause is refused at once, and nothing is changed."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    block = torch.full((ELEMENTS,), float(rank), device="cuda")
    dist.all_reduce(block)
    torch.cuda.synchronize()
    pause, worst = getattr(ctypes.CDLL(None), "vpool_pause", None), 0.0
    for _ in range(3 if pause else 0):
        begin = time.monotonic()
        answer = pause(int(os.environ["LOCAL_RANK"]))
        worst = max(worst, time.monotonic() - begin)
        demand(answer == -errno.ENOTSUP, f"a pause that is refused, not {answer}")
    demand(bool((block == float(sum(range(ranks)))).all()), "what was summed up")
    dist.all_reduce(block.fill_(1))
    demand(bool((block == ranks).all()), "an all-reduce")
    return {"checksum": float(ranks), "refused_ms": 1e3 * worst}


def captured():
    """What NCCL registers of a graph's memory must stay where it is."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    static = torch.empty(ELEMENTS // 64, device="cuda")
    dist.all_reduce(static.fill_(1))
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        middle = static * 2
        dist.all_reduce(middle)
        out = middle + 1
        del middle
    held = []
    for turn in range(24):
        held.append((turn, torch.full((ELEMENTS // 64 + turn * 4096,), float(turn), device="cuda")))
        static.fill_(float(rank + turn))
        graph.replay()
        wanted = 2.0 * (sum(range(ranks)) + ranks * turn) + 1
        demand(bool((out == wanted).all()), f"launch {turn}")
        if len(held) > 5:
            number, tensor = held.pop(turn % 5)
            demand(bool((tensor == number).all()), "a tensor")
    demand(all(bool((tensor == number).all()) for number, tensor in held), "a tensor")
    return {"checksum": float(out[0])}


def replicated(model):
    from torch.nn.parallel import DistributedDataParallel

    return DistributedDataParallel(model)


def sharded(model):
    """Each layer is gathered before its use and released behind it."""
    from torch.distributed.fsdp import fully_shard

    for layer in model.layers:
        fully_shard(layer)
    return fully_shard(model)


def training(spread):
    import types

    import train

    options = types.SimpleNamespace(seed=1 + dist.get_rank(), batch=8, seq_min=256, seq_max=768, side_stream=True)
    device = torch.device("cuda")
    report.deterministic(1)
    with device:
        model = spread(train.GPT(8, 768, 12, options.seq_max))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    batches = train.Batches(options, device)
    for _ in range(20):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(batches.next())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    own = [parameter.to_local() if hasattr(parameter, "to_local") else parameter for parameter in model.parameters()]
    return {"final_loss": loss.item(), "checksum": report.checksum(own)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("collectives", "captured", "symmetric", "asleep", "training", "sharded"))
    what = parser.parse_args().what
    if "LOCAL_RANK" not in os.environ:
        launch()
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl", device_id=torch.device("cuda", int(os.environ["LOCAL_RANK"])))
    figures = {"collectives": collectives, "captured": captured, "symmetric": symmetric, "asleep": asleep, "training": lambda: training(replicated),
               "sharded": lambda: training(sharded)}[what]()
    dist.barrier()
    if dist.get_rank() == 0:
        print(json.dumps({"ok": True} | figures), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
