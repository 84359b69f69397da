"""What a call costs: in process on the simulated driver, and on a GPU beside CUDA's own allocator."""
# SPDX-License-Identifier: Apache-2.0
import json
import os
import statistics

from .probe import Failed, Probe, medians, one_of, worked
from .table import MIB, Goal

# A machine of several users slows down by half for seconds at a time: the more turns, the likelier that one of them is left alone.
TURNS = 6
SHORT_TURNS = 40  # of what takes a hundredth of a second
THREADS = 8
BLOCKS = 500_000
MIXED = 65_536
CHUNKS = 65_536
REMAPPED = 16_384


def cases_of(figures, group):
    """The figures of a group of cases, by the rest of their names: sizes."""
    return {name.removeprefix(group + "_"): value for name, value in figures.items() if name.startswith(group + "_")}


def listed(cases):
    return ", ".join(f"{size} {value:.0f}" for size, value in cases.items())


# ---- in process

# Cases that one process may run one after the other; the others need a pool that nobody has used before.
TOGETHER = ("pair", "streams")


# What goes from stream to stream behind an event: by default no stream waits for another's frees.
EARLY = {"VPOOL_WAIT": "early"}
HANDED_ON = ("inturn", "handover")


def settings(group):
    return EARLY if group in HANDED_ON else {}


def company(group):
    return TOGETHER if group in TOGETHER else (group,)


def in_process(bench, group):
    return bench.once(("in process", *company(group)), lambda: over_turns(
        [worked(bench.simulate("bench_doors", *company(group), env=settings(group))).result for _ in range(TURNS)], group))


def over_turns(results, group):
    """The least time, as what else a machine has to do only ever adds to it; of rates the median."""
    return medians(results) if group == "threads" else one_of(results, min)


def limit(most, share=None):
    return f"<= {most} ns" + (f", <= 1/{share} of bare" if share else "") if most else "no goal"


def simulated_pair(what, group, most):
    def measure(bench):
        cases = cases_of(in_process(bench, group), group)
        if group == "handover":
            require_hand_overs(cases)
        worst = max(cases.values())
        return [Goal(f"{what}, in process", f"{worst:.0f} ns ({listed(cases)})", limit(most),
                     worst <= most if most else None)]
    return Probe(f"{group}, in process", False, [(f"{what}, in process", limit(most))], measure)


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


def threads_goal(what, figures, wanted, bare=None):
    ratios, texts = [], []
    for name in [name for name in figures if name.endswith("_1")]:
        several = name.removesuffix("1") + str(THREADS)
        ratios.append(figures[several] / figures[name])
        texts.append(f"{name.split('_')[1]} x {ratios[-1]:.1f}: "
                     f"{figures[name] / 1e6:.1f} to {figures[several] / 1e6:.1f} M pairs/s")
        if bare:
            texts[-1] += f", bare {bare[name] / 1e6:.1f} to {bare[several] / 1e6:.1f}"
    return Goal(what, "; ".join(texts), wanted, min(ratios) >= 4 if wanted != limit(None) else None)


def simulated_threads(bench):
    """Without a goal: all calls of the simulated driver take one lock, which no allocator on top can outrun."""
    what = f"{THREADS} threads against 1, in process"
    if too_few_cores():
        return [Goal(what, too_few_cores(), limit(None), None)]
    return [threads_goal(what, in_process(bench, "threads"), limit(None))]


# ---- metadata

def metadata_bytes(bench, kind, count):
    path = os.path.join(bench.simulated.work, "metadata.json")
    run = bench.simulate("bench_metadata", kind, str(count), env={"VPOOL_STATS": path, "VPOOL_HANDLE": "2M"})
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
    again = (metadata_bytes(bench, "twice", REMAPPED) - metadata_bytes(bench, "remapped", REMAPPED)) / REMAPPED
    return [
        Goal("metadata of a live block", f"{max(small, mixed):.0f} bytes (small {small:.0f}, mixed {mixed:.0f})",
             "<= 200 bytes", max(small, mixed) <= 200),
        # A chunk and a mapping may cost that much each.
        Goal("metadata of a chunk with its mapping", f"{chunk:.0f} bytes", "<= 128 bytes", chunk <= 128),
        Goal("metadata of a further mapping", f"{again:.0f} bytes", "<= 64 bytes", again <= 64),
    ]


# ---- recording

def was_recorded(path):
    """Whether the library wrote the file, and in the form that its name asks for."""
    if not os.path.exists(path):
        return False
    with open(path, "rb") as file:
        return (file.read(2) == b"\x1f\x8b") == path.endswith(".gz")


def recording(suffix):
    what = f"recording an event (VPOOL_TRACE=FILE{suffix})"

    def measure(bench):
        path = os.path.join(bench.simulated.work, "recorded.csv" + suffix)
        plain, recorded = [], []
        for turn in range(SHORT_TURNS):
            for into, env in ((plain, {}), (recorded, {"VPOOL_TRACE": path})):
                run = worked(bench.simulate("bench_doors", "pair_64k", env=env))
                into.append(run.result["pair_64k"])
            if not was_recorded(path):
                raise Failed("nothing was recorded")
            os.remove(path)
        cost = (min(recorded) - min(plain)) / 2  # a pair is two events
        figure = f"{cost:.0f} ns (a pair {min(plain):.0f}, recorded {min(recorded):.0f})"
        return [Goal(what, figure, "<= 100 ns", cost <= 100)]
    return Probe(f"recording{suffix}", False, [(what, "<= 100 ns")], measure)


# ---- being watched

WATCHED = "a pair with everything on (VPOOL_TRACE, VPOOL_PAGE, VPOOL_DUMP)"
UNWATCHED = "a pair with nothing on but VPOOL_PAGE, as by default"


def watching(bench):
    """What a pair costs more with all that there is to see a program by, and with what is on by default."""
    folder = bench.simulated.work
    nothing = {"VPOOL_PAGE": "0"}
    everything = {"VPOOL_PAGE": "1", "VPOOL_TRACE": os.path.join(folder, "watched.csv"),
                  "VPOOL_DUMP": "exit,oom,signal,every:3600", "VPOOL_DUMP_FILE": os.path.join(folder, "watched.json")}
    settings = {"none": nothing, "default": {}, "all": everything}
    times = {name: [] for name in settings}
    for turn in range(SHORT_TURNS):
        for name, env in settings.items():
            times[name].append(worked(bench.simulate("bench_doors", "pair_64k", env=env)).result["pair_64k"])
    if not was_recorded(everything["VPOOL_TRACE"]):
        raise Failed("nothing was recorded")
    os.remove(everything["VPOOL_TRACE"])
    pair = {name: min(values) for name, values in times.items()}  # a machine that has other things to do only adds
    more, default = pair["all"] - pair["none"], pair["default"] - pair["none"]
    return [Goal(WATCHED, f"{more:+.0f} ns ({pair['none']:.0f} without, {pair['all']:.0f} with)", "<= +100 ns", more <= 100),
            Goal(UNWATCHED, f"{default:+.1f} ns ({pair['none']:.1f} without, {pair['default']:.1f} with)", "<= +2 ns", default <= 2)]


# ---- on a GPU

def bare_and_vpool(bench, program, group):
    """The figures of both, which take turns, and in taking the first."""
    def measure():
        results = {False: [], True: []}
        for turn in range(TURNS):
            for preload in (False, True) if turn % 2 == 0 else (True, False):
                run = bench.device.run([bench.program(program), *company(group)], preload=preload,
                                       env=bench.runtime | settings(group))
                results[preload].append(worked(run).result)
        return over_turns(results[False], group), over_turns(results[True], group)
    return bench.once((program, *company(group)), measure)


def device_pair(what, group, most, share=None):
    wanted = limit(most, share)

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
            holds = worst <= most and (not share or ratio <= 1 / share) if most else None
            goals.append(Goal(f"{what}, {api}", figure, wanted, holds))
        return goals
    return Probe(f"{group}, on the GPU", True,
                 [(f"{what}, {api}", wanted) for api in ("cudaMallocAsync", "cuMemAllocAsync")], measure)


def device_threads(bench):
    what = f"{THREADS} threads against 1, cudaMallocAsync"
    if too_few_cores():
        return [Goal(what, too_few_cores(), ">= x 4", None)]
    bare, vpool = bare_and_vpool(bench, "bench_runtime", "threads")
    return [threads_goal(what, vpool, ">= x 4", bare)]


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
        Goal("cudaMalloc + kernel + cudaFree, 64 MiB",
             f"x {bare / vpool:.1f} ({bare / 1e3:.1f} to {vpool / 1e3:.1f} us)", ">= x 10", bare / vpool >= 10),
        Goal("  and held meanwhile, beyond native's one block", f"{(held - KERNEL_BLOCK) / MIB:.0f} MiB", "<= 64 MiB",
             held <= 2 * KERNEL_BLOCK),
    ]


def probes():
    same, several = "pair, same size and stream", "the same, 4 streams in use"
    in_turn = "pair, each on the next of 4 streams, VPOOL_WAIT=early"
    crowd, hand_over = "pair at 64k live blocks of random sizes", "hand-over between streams, VPOOL_WAIT=early"
    return [
        simulated_pair(same, "pair", 150),
        simulated_pair(several, "streams", 350),
        simulated_pair(in_turn, "inturn", None),
        simulated_pair(crowd, "live64k", 400),
        Probe("threads, in process", False, [(f"{THREADS} threads against 1, in process", limit(None))],
              simulated_threads),
        simulated_pair(hand_over, "handover", 1000),
        Probe("the simulator's calls", False, [], simulator_alone),
        Probe("metadata", False, [("metadata of a live block", "<= 200 bytes"),
                                  ("metadata of a chunk with its mapping", "<= 128 bytes"),
                                  ("metadata of a further mapping", "<= 64 bytes")], metadata),
        recording(""),
        recording(".gz"),
        Probe("being watched", False, [(WATCHED, "<= +100 ns"), (UNWATCHED, "<= +2 ns")], watching),
        device_pair(same, "pair", 150, 4),
        device_pair(several, "streams", 350),
        device_pair(in_turn, "inturn", None),
        device_pair(crowd, "live64k", 400, 8),
        Probe("threads, on the GPU", True, [(f"{THREADS} threads against 1, cudaMallocAsync", ">= x 4")],
              device_threads),
        device_pair(hand_over, "handover", 1000),
        Probe("the driver's calls", True, [], driver_alone),
        Probe("cudaMalloc with a kernel", True, [("cudaMalloc + kernel + cudaFree, 64 MiB", ">= x 10"),
                                                 ("  and held meanwhile, beyond native's one block", "<= 64 MiB")],
              with_kernel),
    ]
