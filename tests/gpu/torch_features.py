"""What PyTorch's allocator offers beside memory: each feature used, with its data checked.

    torch_features.py              all of them, one after the other
    torch_features.py NAME...      those alone

Prints a JSON object after each feature, the last of which has all: "features" says of each "works", with a figure that is
the same whatever the allocator, or "refused", "otherwise" (it does something else) or "wrong" (data) with the reason; "wrong"
names these again. Each begins with an empty cache.
"""
# SPDX-License-Identifier: Apache-2.0
import copy
import ctypes
import gc
import json
import os
import subprocess
import sys
import tempfile
import threading

import torch
from torch import nn

MIB = 1 << 20
FEATURES = {}


def feature(function):
    FEATURES[function.__name__] = function
    return function


class Wrong(Exception):
    """Data that is not as it was written."""


class Otherwise(Exception):
    """What is told or done is something else, and no data is wrong."""


def demand(right, what, fault=Wrong):
    if not right:
        raise fault(what)


def filled(bytes_of_it, number):
    return torch.full((bytes_of_it // 4,), number, dtype=torch.int32, device="cuda")


def is_all(tensor, number):
    return bool((tensor == number).all())


@feature
def allocator():
    """Tensors of all sizes that come and go, each full of a number of its own."""
    held = []
    for count in range(3000):
        held.append((count, filled(4 * (1 + count * 7919 % 1_500_000), count)))
        if len(held) > 40:
            number, tensor = held.pop(count * 31 % 40)
            demand(is_all(tensor, number), "a tensor was overwritten")
    demand(all(is_all(tensor, number) for number, tensor in held), "a tensor was overwritten")
    return len(held)


@feature
def counters():
    """What PyTorch itself counts of its memory."""
    torch.cuda.reset_peak_memory_stats()
    before, tensors = torch.cuda.memory_allocated(), []
    for count in range(300):
        tensors.append(filled(4 * (1 + count * 7919 % 700_000), count))
        if len(tensors) > 20:
            del tensors[count % 20]
    stats = torch.cuda.memory_stats()
    return [torch.cuda.memory_allocated() - before, torch.cuda.max_memory_allocated() - before,
            stats["num_ooms"], stats["num_alloc_retries"]]


@feature
def streams():
    """Work handed from stream to stream by events."""
    side = [torch.cuda.Stream() for _ in range(4)]
    total = 0
    for turn in range(200):
        source = filled(3 * MIB + 4096 * turn, turn)
        results = []
        for number, stream in enumerate(side):
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                results.append(source + number)
            source.record_stream(stream)
        del source
        for number, (stream, result) in enumerate(zip(side, results)):
            torch.cuda.current_stream().wait_stream(stream)
            demand(is_all(result, turn + number), "a side stream's result")
            result.record_stream(torch.cuda.current_stream())
            total += int(result[-1])
    return total


def late_reader(side, tensor, record):
    """A side stream that reads the tensor much later."""
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(5_000_000)
        copy = tensor.clone()
    if record:
        tensor.record_stream(side)
    return copy


@feature
def record_stream():
    """Tensors freed while another stream has yet to read them; right because of record_stream() alone."""
    side = torch.cuda.Stream()
    total = 0
    for turn in range(60):
        size = (1 + turn % 9) * MIB + 512 * turn
        copy = late_reader(side, filled(size, turn), True)
        others = [filled(size, 1000 + turn) for _ in range(4)]   # would be given the same bytes
        odd = [filled(size // 3, 2000 + turn) for _ in range(4)]
        torch.cuda.current_stream().wait_stream(side)
        demand(is_all(copy, turn), f"turn {turn}: what the side stream read was overwritten")
        demand(all(is_all(tensor, 1000 + turn) for tensor in others), "a tensor was overwritten")
        total += int(copy[0]) + len(odd)
        copy.record_stream(torch.cuda.current_stream())
    return total


@feature
def record_stream_of_foreign_memory():
    """A tensor on memory that is not PyTorch's, as DLPack and from_blob() make them: its cache lets that be."""
    driver, at = ctypes.CDLL("libcuda.so.1"), ctypes.c_uint64()
    filled(4, 0)
    demand(driver.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(4 * MIB)) == 0, "cuMemAlloc", Otherwise)

    class Foreign:
        __cuda_array_interface__ = {"shape": (4 * MIB,), "typestr": "|u1", "data": (at.value, False), "version": 3}

    tensor = torch.as_tensor(Foreign(), device="cuda").fill_(7)
    copy = late_reader(torch.cuda.Stream(), tensor, True)
    torch.cuda.synchronize()
    demand(bool((copy == 7).all()), "what the side stream read")
    del tensor
    demand(driver.cuMemFree_v2(at) == 0, "cuMemFree", Otherwise)
    return int(copy[0])


@feature
def record_stream_in_pools():
    """The same while a pool is in use, when PyTorch makes no events for it."""
    side, pool = torch.cuda.Stream(), torch.cuda.graph_pool_handle()
    outside = [filled(4 * MIB, 7)]
    graph = torch.cuda.CUDAGraph()
    static = filled(4 * MIB, 1)
    copies = [late_reader(side, filled(2 * MIB, 40 + turn), True) for turn in range(4)]
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, pool=pool):
        result = static * 3
        middle = result + 1
        last = middle * 2
        del middle
    outside += [late_reader(side, filled(2 * MIB, 60 + turn), True) for turn in range(8)]
    noise = [filled(2 * MIB, 90 + turn) for turn in range(16)]
    torch.cuda.current_stream().wait_stream(side)
    for turn in range(4):
        graph.replay()
        demand(is_all(last, 8) and is_all(result, 3), "a replay's result")
        noise.append(filled((3 + turn) * MIB, 120 + turn))
    demand(all(is_all(copy, 40 + turn) for turn, copy in enumerate(copies)), "read before the capture")
    demand(all(is_all(copy, 60 + turn) for turn, copy in enumerate(outside[1:])), "read after the capture")
    demand(all(is_all(tensor, 90 + turn) for turn, tensor in enumerate(noise[:16])), "a tensor was overwritten")
    return int(last.sum())


@feature
def graphs():
    """Graphs whose blocks are long free to the cache, launched among tensors that come and go."""
    static, made = filled(6 * MIB, 1), []
    torch.cuda.synchronize()
    for number in range(3):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            steps = [static * (number + 2)]
            for _ in range(6):
                steps.append(steps[-1] + 1)
            out = steps[-1].clone()
            del steps
        made.append((graph, out, number + 2 + 6))
    held = []
    for turn in range(60):
        held.append((turn, filled((1 + turn % 23) * MIB, turn)))
        graph, out, wanted = made[turn % 3]
        graph.replay()
        demand(is_all(out, wanted), "a graph's result")
        if len(held) > 12:
            number, tensor = held.pop(turn % 12)
            demand(is_all(tensor, number), "a graph wrote over a tensor")
    demand(all(is_all(tensor, number) for number, tensor in held), "a graph wrote over a tensor")
    return sum(int(out[0]) for _, out, _ in made)


@feature
def graphed_callables():
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256)).cuda()
    x = torch.ones(64, 256, device="cuda", requires_grad=True)
    # By a copy: a gradient that was accumulated on the default stream would break the capture.
    other = x.detach().clone().requires_grad_()
    plain = copy.deepcopy(model)(other).sum()
    plain.backward()
    wanted, plain = other.grad.clone(), float(plain)
    graphed = torch.cuda.make_graphed_callables(model, (torch.ones_like(x).requires_grad_(),))
    for turn in range(10):
        noise = filled((turn + 1) * MIB, turn)
        x.grad = None
        graphed(x).sum().backward()
        demand(torch.allclose(x.grad, wanted, rtol=1e-3, atol=1e-4), "a graphed gradient")
        demand(is_all(noise, turn), "a tensor was overwritten")
    return round(plain, 2)


@feature
def mempool():
    """torch.cuda.MemPool and use_mem_pool()."""
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        inside = [filled((1 + number) * MIB, number) for number in range(8)]
        del inside[3]
        again = filled(4 * MIB, 99)
    outside = [filled((1 + number) * MIB, 50 + number) for number in range(8)]
    demand(is_all(again, 99), "a tensor of the pool")
    demand(all(is_all(tensor, 50 + number) for number, tensor in enumerate(outside)), "a tensor outside")
    demand(not hasattr(pool, "snapshot") or len(pool.snapshot()) > 0, "the pool has no segments", Otherwise)
    return int(sum(int(tensor[0]) for tensor in inside))


@feature
def snapshots():
    """Memory history, a snapshot, and its file."""
    torch.cuda.memory._record_memory_history(max_entries=10_000)
    tensors = [filled(number * MIB, number) for number in range(1, 9)]
    del tensors[2]
    snapshot = torch.cuda.memory._snapshot()
    with tempfile.NamedTemporaryFile() as file:
        torch.cuda.memory._dump_snapshot(file.name)
        written = os.path.getsize(file.name)
    torch.cuda.memory._record_memory_history(enabled=None)
    active = sum(block["size"] for segment in snapshot["segments"] for block in segment["blocks"]
                 if block["state"] == "active_allocated")
    demand(written > 1000 and active >= sum(tensor.nbytes for tensor in tensors), "the snapshot lacks blocks", Otherwise)
    traced = [entry["action"] for trace in snapshot["device_traces"] for entry in trace]
    return [traced.count("alloc"), traced.count("free_completed")]


@feature
def profiler():
    """What the profiler says of memory."""
    from torch.profiler import ProfilerActivity, profile
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as told:
        tensors = [filled(number * MIB, number) for number in range(1, 9)]
        del tensors
    events = [event for event in told.events() if "memory" in event.name.lower()]
    usage = [getattr(event, "self_device_memory_usage", getattr(event, "self_cuda_memory_usage", 0))
             for event in told.key_averages()]
    demand(any(usage), "no memory of the device was told of", Otherwise)
    return [len(events) > 0, sum(one for one in usage if one > 0)]


@feature
def empty_cache():
    for turn in range(20):
        tensors = [filled((1 + number) * 3 * MIB, turn + number) for number in range(10)]
        del tensors[::2]
        torch.cuda.empty_cache()
        demand(all(is_all(tensor, turn + 2 * number + 1) for number, tensor in enumerate(tensors)), "a tensor that was kept")
        del tensors
        gc.collect()
        torch.cuda.empty_cache()
    return [torch.cuda.memory_allocated(), torch.cuda.memory_reserved() < 64 * MIB]


@feature
def memory_fraction():
    """A share of the device, and no more."""
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(0.05)
    try:
        within = filled(int(0.03 * total) // MIB * MIB, 1)
        try:
            filled(int(0.04 * total) // MIB * MIB, 2)
            raise Otherwise("more than the fraction was given")
        except torch.OutOfMemoryError:
            pass
        demand(is_all(within, 1), "a tensor was overwritten")
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    return True


@feature
def out_of_memory():
    """A batch size is searched for 1,000 times, and each time too much is asked for."""
    kept = filled(8 * MIB, 5)
    free, total = torch.cuda.mem_get_info()
    before, refused, said = torch.cuda.memory_allocated(), 0, set()
    for turn in range(1000):
        try:
            size = total + (turn % 13) * MIB if turn % 20 else free // 2
            a = torch.empty(size, dtype=torch.uint8, device="cuda")
            b = torch.empty(size, dtype=torch.uint8, device="cuda")
            c = torch.empty(size, dtype=torch.uint8, device="cuda")
            del a, b, c
        except torch.OutOfMemoryError as error:
            refused += 1
            said.add(str(error).split(".")[0])
            a = b = c = None
        demand(torch.cuda.memory_allocated() == before, f"turn {turn}: memory was lost", Otherwise)
    demand(is_all(kept, 5), "a tensor was overwritten")
    demand(said == {"CUDA out of memory"}, f"said {said}", Otherwise)
    size, found = 64 * MIB, 0
    while size >= MIB:  # and the largest that there is, by halves
        try:
            found, held = size, torch.zeros(size, dtype=torch.uint8, device="cuda")
            del held
            size *= 2
        except torch.OutOfMemoryError:
            break
    demand(found > total // 4, "not even a quarter of the device was given", Otherwise)
    return [refused, torch.cuda.memory_allocated() - before]


ASSERTED = """
import sys, torch
def fails():
    x, large = torch.ones(1 << 20, device="cuda"), torch.ones(64 << 20, device="cuda")
    y = x[torch.tensor([1 << 22], device="cuda")] + 1
    torch.cuda.synchronize()
try:
    fails()
except Exception as error:
    print("told of", "device-side assert" in str(error))
fails() if sys.argv[1:] else sys.exit(3)
"""


CAPTURE_FAILED = """
import torch
x, graph = torch.ones(1 << 20, device="cuda"), torch.cuda.CUDAGraph()
try:
    with torch.cuda.graph(graph):
        y = x * 4
        y.item()
except RuntimeError:
    y = None
    print("went on", (x * 2).sum().item() == 1 << 21)
"""


OWN_ALLOCATOR = """
import os, subprocess, sys, tempfile, torch
source = '''
#include <stddef.h>
#include <stdlib.h>
int cudaMalloc(void **, size_t), cudaFree(void *);
void *take(ptrdiff_t size, int device, void *stream) { void *p; if (cudaMalloc(&p, size)) abort(); return p; }
void give(void *p, ptrdiff_t size, int device, void *stream) { cudaFree(p); }
'''
with tempfile.TemporaryDirectory() as folder:
    library = os.path.join(folder, "own.so")
    subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-o", library, "-"], input=source, text=True, check=True)
    own = torch.cuda.memory.CUDAPluggableAllocator(library, "take", "give")
torch.cuda.memory.change_current_allocator(own)
host = torch.ones(1000).pin_memory()
kept = [torch.full((1 << (10 + n),), float(n), device="cuda") for n in range(12)]
print(torch.cuda.get_allocator_backend(), sum(float(x.mean()) for x in kept) + float(host.cuda().sum()))
"""


def in_a_process(program, *more):
    return subprocess.run([sys.executable, "-c", program, *more], capture_output=True, text=True)


@feature
def kernel_error():
    """An assertion fails in a kernel: its error can be caught and told of, though tensors die. In processes of their own."""
    caught, thrown = in_a_process(ASSERTED), in_a_process(ASSERTED, "again")
    demand(caught.returncode == 3 and caught.stdout == "told of True\n", f"caught: {caught.returncode} {caught.stdout}", Otherwise)
    demand(thrown.returncode == 1 and "Traceback" in thrown.stderr, f"thrown: {thrown.returncode}", Otherwise)
    return [caught.returncode, thrown.returncode]


@feature
def capture_error():
    """A capture fails, and its tensors die. In a process of its own."""
    done = in_a_process(CAPTURE_FAILED)
    demand(done.returncode == 0 and done.stdout == "went on True\n", f"{done.returncode} {done.stdout}", Otherwise)
    return done.returncode


@feature
def own_allocator():
    """change_current_allocator(), as for RMM's pools. In a process of its own."""
    done = in_a_process(OWN_ALLOCATOR)
    demand(done.returncode == 0 and done.stdout == "pluggable 1066.0\n", f"{done.returncode} {done.stdout} {done.stderr[-200:]}", Otherwise)
    return done.returncode


@feature
def data_loader():
    from torch.utils.data import DataLoader, TensorDataset
    data = TensorDataset(torch.arange(40_000).reshape(-1, 10))
    total = 0
    for (batch,) in DataLoader(data, batch_size=500, num_workers=2, pin_memory=True):
        total += int(batch.cuda(non_blocking=True).sum())
    demand(total == 40_000 * 39_999 // 2, "a batch")
    return total


@feature
def autograd_threads():
    """Several threads train at once, each on a stream of its own."""
    sums, wrong = [0.0] * 4, []

    def train(number):
        try:
            with torch.cuda.stream(torch.cuda.Stream()):
                weight = torch.full((512, 512), 0.01, device="cuda", requires_grad=True)
                for turn in range(30):
                    x = torch.full((64 + turn, 512), float(number), device="cuda")
                    (x @ weight).sum().backward()
                torch.cuda.current_stream().synchronize()
                sums[number] = float(weight.grad.double().sum())
        except Exception as problem:
            wrong.append(repr(problem))

    threads = [threading.Thread(target=train, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    demand(not wrong, "; ".join(wrong), Otherwise)
    rows = sum(64 + turn for turn in range(30))
    demand(all(abs(one - number * rows * 512 * 512) <= 1e-4 * max(1, one) for number, one in enumerate(sums)), f"{sums}")
    return sums


@feature
def named_streams():
    """A program's own allocation through the cache, on a stream that it names."""
    stream = torch.cuda.Stream()
    pointers = [torch.cuda.caching_allocator_alloc(size, 0, stream) for size in (100, 5 * MIB, 30 * MIB)]
    other = filled(30 * MIB, 3)
    for pointer in pointers:
        torch.cuda.caching_allocator_delete(pointer)
    demand(is_all(other, 3), "a tensor was overwritten")
    return len(pointers)


def attempt(name):
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    try:
        return ["works", FEATURES[name]()]
    except Wrong as problem:
        return ["wrong", str(problem)]
    except Otherwise as problem:
        return ["otherwise", str(problem)]
    except Exception as problem:
        return ["refused", f"{type(problem).__name__}: {str(problem).splitlines()[0] if str(problem) else ''}"[:160]]


def main():
    wanted = sys.argv[1:] or list(FEATURES)
    told = {}
    for name in wanted:
        told[name] = attempt(name)
        wrong, otherwise = ([name for name, (how, _) in told.items() if how == word] for word in ("wrong", "otherwise"))
        print(json.dumps({"ok": not wrong + otherwise, "wrong": wrong, "features": told}), flush=True)


if __name__ == "__main__":
    main()
