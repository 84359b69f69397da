"""What a call costs: in process on the simulated driver, and on a GPU beside CUDA's own allocator."""
import json
import os
import statistics

from bench import Failed, Probe, medians, worked
from table import MIB, Goal

TURNS = 3
THREADS = 8
BLOCKS = 500_000
MIXED = 65_536
CHUNKS = 65_536


def cases_of(figures, group):
    """The figures of a group of cases, by the rest of their names: sizes."""
    return {name.removeprefix(group + "_"): value for name, value in figures.items() if name.startswith(group + "_")}


def listed(cases):
    return ", ".join(f"{size} {value:.0f}" for size, value in cases.items())


# ---- in process

def in_process(bench, *groups):
    runs = [worked(bench.simulated.run([bench.program("bench_doors"), *groups])) for _ in range(TURNS)]
    return medians([run.result for run in runs])


def simulated_pair(what, group, most):
    def measure(bench):
        cases = cases_of(in_process(bench, group), group)
        if group == "handover":
            require_hand_overs(cases)
        worst = max(cases.values())
        return [Goal(f"{what}, in process", f"{worst:.0f} ns ({listed(cases)})", f"<= {most} ns", worst <= most)]
    return Probe(f"{group}, in process", False, [(f"{what}, in process", f"<= {most} ns")], measure)


def require_hand_overs(cases):
    """Takes the shares out of the cases. What came from elsewhere was no hand-over, and is no measurement of one."""
    for name in [name for name in cases if name.endswith("_same")]:
        share = cases.pop(name)
        if share < 99:
            raise Failed(f"only {share:.0f} % of the blocks of {name.removesuffix('_same')} were handed over")


def simulator_alone(bench):
    figures = in_process(bench, "calls")
    bench.notes.append("Of each figure in process the simulated driver's own calls are a part, in ns a call: " +
                       ", ".join(f"{name} {value:.0f}" for name, value in figures.items()))
    return []


# ---- threads

def too_few_cores():
    cores = len(os.sched_getaffinity(0))
    return f"not measured here: needs {THREADS} cores, has {cores}" if cores < THREADS else None


def threads_goal(what, figures, bare=None):
    ratios, texts = [], []
    for size, one in cases_of({name: value for name, value in figures.items() if name.endswith("_1")}, "threads").items():
        size = size.removesuffix("_1")
        ratio = figures[f"threads_{size}_{THREADS}"] / one
        ratios.append(ratio)
        texts.append(f"{size} x {ratio:.1f}: {one / 1e6:.1f} to {figures[f'threads_{size}_{THREADS}'] / 1e6:.1f} M/s")
        if bare:
            texts[-1] += f", bare to {bare[f'threads_{size}_{THREADS}'] / 1e6:.1f}"
    return Goal(what, "; ".join(texts), ">= x 4", min(ratios) >= 4)


def simulated_threads(bench):
    what = f"{THREADS} threads against 1, in process"
    if too_few_cores():
        return [Goal(what, too_few_cores(), ">= x 4", None)]
    return [threads_goal(what, in_process(bench, "threads"))]


# ---- metadata

def metadata_bytes(bench, kind, count):
    path = os.path.join(bench.simulated.work, "metadata.json")
    run = bench.simulated.run([bench.program("bench_metadata"), kind, str(count)],
                              env={"VPOOL_STATS": path, "VPOOL_HANDLE": "2M"})
    if run.code:
        raise Failed(f"{run.command}: exit {run.code}\n{run.errors}")
    with open(path) as file:
        return json.load(file)["devices"][0]["metadata_bytes"]


def marginal(bench, kind, count):
    """What one more of a kind costs: the difference between 2 N and N of them, divided by N."""
    return (metadata_bytes(bench, kind, 2 * count) - metadata_bytes(bench, kind, count)) / count


def metadata(bench):
    small, mixed = marginal(bench, "blocks", BLOCKS), marginal(bench, "mixed", MIXED)
    chunk = marginal(bench, "chunks", CHUNKS)
    again = marginal(bench, "remapped", CHUNKS) - marginal(bench, "holed", CHUNKS)
    return [
        Goal("metadata of a live block", f"{max(small, mixed):.0f} bytes (512-byte blocks {small:.0f}, mixed {mixed:.0f})",
             "<= 200 bytes", max(small, mixed) <= 200),
        # A chunk and a mapping may cost that much each.
        Goal("metadata of a chunk with its mapping", f"{chunk:.0f} bytes", "<= 128 bytes", chunk <= 128),
        Goal("metadata of a further mapping", f"{again:.0f} bytes", "<= 64 bytes", again <= 64),
    ]


# ---- recording

def recording(suffix):
    what = f"recording an event (VPOOL_TRACE=FILE{suffix})"

    def measure(bench):
        path = os.path.join(bench.simulated.work, "recorded.csv" + suffix)
        plain, recorded = [], []
        for turn in range(2 * TURNS + 1):
            for into, env in ((plain, {}), (recorded, {"VPOOL_TRACE": path})):
                run = worked(bench.simulated.run([bench.program("bench_doors"), "pair_64k"], env=env))
                into.append(run.result["pair_64k"])
            if not os.path.exists(path):
                return [Goal(what, "not measured here: nothing was recorded", "<= 100 ns", None)]
            os.remove(path)
        cost = (statistics.median(recorded) - statistics.median(plain)) / 2  # a pair is two events
        figure = f"{cost:.0f} ns (a pair {statistics.median(plain):.0f}, recorded {statistics.median(recorded):.0f})"
        return [Goal(what, figure, "<= 100 ns", cost <= 100)]
    return Probe(f"recording{suffix}", False, [(what, "<= 100 ns")], measure)


# ---- on a GPU

def bare_and_vpool(bench, program, *groups):
    """The medians of both, which take turns, and in taking the first."""
    results = {False: [], True: []}
    for turn in range(TURNS):
        for preload in (False, True) if turn % 2 == 0 else (True, False):
            run = worked(bench.device.run([bench.program(program), *groups], preload=preload, env=bench.runtime))
            results[preload].append(run.result)
    return medians(results[False]), medians(results[True])


def device_pair(what, group, most, share=None):
    wanted = f"<= {most} ns" + (f", <= 1/{share} of bare" if share else "")

    def measure(bench):
        goals = []
        for api, program in (("cudaMallocAsync", "bench_runtime"), ("cuMemAllocAsync", "bench_driver")):
            both = [cases_of(figures, group) for figures in bare_and_vpool(bench, program, group)]
            if group == "handover":
                both[0] = {name: value for name, value in both[0].items() if not name.endswith("_same")}
                require_hand_overs(both[1])
            bare, vpool = both
            worst, ratio = max(vpool.values()), max(vpool[size] / bare[size] for size in vpool)
            figure = f"{worst:.0f} ns ({listed(vpool)}); bare {listed(bare)}, at worst {ratio:.3f}"
            goals.append(Goal(f"{what}, {api}", figure, wanted, worst <= most and (not share or ratio <= 1 / share)))
        return goals
    return Probe(f"{group}, on the GPU", True,
                 [(f"{what}, {api}", wanted) for api in ("cudaMallocAsync", "cuMemAllocAsync")], measure)


def device_threads(bench):
    what = f"{THREADS} threads against 1, cudaMallocAsync"
    if too_few_cores():
        return [Goal(what, too_few_cores(), ">= x 4", None)]
    bare, vpool = bare_and_vpool(bench, "bench_runtime", "threads")
    return [threads_goal(what, vpool, bare)]


def driver_alone(bench):
    run = worked(bench.device.run([bench.program("bench_driver"), "calls"], env=bench.runtime))
    bench.notes.append("Of each figure on the GPU the driver's own calls are a part, in ns a call: " +
                       ", ".join(f"{name} {value:.0f}" for name, value in medians([run.result]).items()))
    return []


KERNEL_BLOCK = 64 * MIB  # of the case below


def with_kernel(bench):
    """cudaMalloc, a kernel that writes the block, cudaFree: bare, the free waits for the device."""
    program, case = os.path.join(bench.folder, "gpu/pairs"), "sync_64m_kernel"
    runs = {False: [], True: []}
    for turn in range(TURNS):
        for preload in (False, True) if turn % 2 == 0 else (True, False):
            runs[preload].append(worked(bench.device.run([program, case], preload=preload)))
    bare, vpool = (statistics.median(run.result[case] for run in runs[preload]) for preload in (False, True))
    held = max(run.stats["peak_held_bytes"] for run in runs[True])
    return [
        Goal("cudaMalloc + kernel + cudaFree, 64 MiB", f"x {bare / vpool:.1f} ({bare / 1e3:.1f} to {vpool / 1e3:.1f} us)",
             ">= x 10", bare / vpool >= 10),
        Goal("  and held meanwhile, beyond native's one block", f"{(held - KERNEL_BLOCK) / MIB:.0f} MiB", "<= 64 MiB",
             held <= 2 * KERNEL_BLOCK),
    ]


def probes():
    same, streams = "pair, same size and stream", "pair, 4 streams in use"
    crowd, hand_over = "pair at 64k live blocks of random sizes", "hand-over between streams"
    return [
        simulated_pair(same, "pair", 150),
        simulated_pair(streams, "streams", 350),
        simulated_pair(crowd, "live64k", 400),
        Probe("threads, in process", False, [(f"{THREADS} threads against 1, in process", ">= x 4")], simulated_threads),
        simulated_pair(hand_over, "handover", 1000),
        Probe("the simulator's calls", False, [], simulator_alone),
        Probe("metadata", False, [("metadata of a live block", "<= 200 bytes"),
                                  ("metadata of a chunk with its mapping", "<= 128 bytes"),
                                  ("metadata of a further mapping", "<= 64 bytes")], metadata),
        recording(""),
        recording(".gz"),
        device_pair(same, "pair", 150, 4),
        device_pair(streams, "streams", 350),
        device_pair(crowd, "live64k", 400, 8),
        Probe("threads, on the GPU", True, [(f"{THREADS} threads against 1, cudaMallocAsync", ">= x 4")], device_threads),
        device_pair(hand_over, "handover", 1000),
        Probe("the driver's calls", True, [], driver_alone),
        Probe("cudaMalloc with a kernel", True, [("cudaMalloc + kernel + cudaFree, 64 MiB", ">= x 10"),
                                                 ("  and held meanwhile, beyond native's one block", "<= 64 MiB")],
              with_kernel),
    ]
