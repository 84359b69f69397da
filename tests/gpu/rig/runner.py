"""Runs programs, bare or under libvpool.so, and gathers what is to be known about each run."""
# SPDX-License-Identifier: Apache-2.0
import glob
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field

from .device import Peak, idle_use

SKIPPED = 77         # exit status of a program that cannot run on this machine, and says why in its result
LOG_LIMIT = 200_000  # bytes of a program's output that go to the log

# A setting left over in the caller's environment would change what a row means.
FORGOTTEN = ("LD_PRELOAD", "VPOOL_", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF",
             "PYTORCH_NO_CUDA_MEMORY_CACHING", "XLA_PYTHON_CLIENT_", "TF_GPU_ALLOCATOR", "CUDA_LAUNCH_BLOCKING")


@dataclass
class Run:
    command: str
    code: int | None = None  # exit status; None: stopped at its limit
    seconds: float = 0
    result: dict = field(default_factory=dict)  # the JSON object on the program's last line
    stats: dict = field(default_factory=dict)   # libvpool's own, of the first device
    peak: int | None = None                     # bytes of the device in use at worst, less those before the run
    errors: str = ""                            # the end of its standard error, or of its output
    cut: bool = False                           # stopped because no time was left for it
    base: str = ""                              # how the names of its files begin
    began: float = 0                            # by time.monotonic()
    process: subprocess.Popen | None = None

    @property
    def worked(self):
        return self.code == 0 and bool(self.result) and self.result.get("ok", True)

    @property
    def skipped(self):
        """Why it could not run on this machine."""
        return self.result.get("skipped", "skipped") if self.code == SKIPPED else ""

    @property
    def live(self):
        """The most bytes alive at once: as the program counted them (a cache of its own hides them from libvpool),
        else as libvpool did."""
        return self.result.get("peak_live_bytes") or self.stats.get("peak_live_bytes")

    def figures(self):
        """Everything, for the file of figures."""
        return {"command": self.command, "code": self.code, "seconds": round(self.seconds, 2),
                "peak_used_bytes": self.peak, "result": self.result, "vpool": self.stats,
                "errors": "" if self.worked else self.errors}


class Runner:
    def __init__(self, library, work, out, device, deadline):
        self.library = library
        self.work = work          # scratch files
        self.device = device      # None: no peaks
        self.deadline = deadline  # of time.monotonic(): later than this no program is started
        self.idle = None
        self.count = 0
        self.log = open(os.path.join(out, "log.txt"), "w")
        # Of a check before: by the number alone, its statistics would pass for those of a program that writes none.
        for path in glob.glob(os.path.join(glob.escape(work), "run-*")):
            os.remove(path)

    def time_left(self):
        return self.deadline - time.monotonic()

    def start(self, argv, preload=False, env=None, **streams):
        """Starts a program, with its output and errors in files unless `streams` says otherwise. Where it cannot, the
        run that comes back has no process."""
        self.count += 1
        base = os.path.join(self.work, f"run-{self.count}")
        added = dict(env or {})
        if preload:
            # The published policies are in the library beside it.
            library = os.path.join(os.path.dirname(self.library), "libvpool-compare.so") if "VPOOL_POLICY" in added else self.library
            added = {"LD_PRELOAD": library, "VPOOL_STATS": base + ".stats.%p"} | added
        whole = {name: value for name, value in os.environ.items() if not name.startswith(FORGOTTEN)}
        whole.setdefault("CUDA_VISIBLE_DEVICES", "0")
        whole |= {"PYTHONUNBUFFERED": "1", "TEST_PRELOAD": self.library} | added

        run = Run(" ".join([f"{name}={shlex.quote(value)}" for name, value in added.items()] + [shlex.join(argv)]),
                  base=base, began=time.monotonic())
        with open(base + ".out", "wb") as out, open(base + ".err", "wb") as err:
            try:
                # A session of its own, so that at its limit the program goes with all that it started.
                run.process = subprocess.Popen(argv, env=whole, start_new_session=True, **{
                    "stdout": out, "stderr": err, "stdin": subprocess.DEVNULL} | streams)
            except OSError as problem:
                run.code, run.errors = 127, str(problem)
        return run

    def finish(self, run):
        """Gathers what a program that has ended leaves."""
        run.seconds = time.monotonic() - run.began
        output, errors = read_text(run.base + ".out"), read_text(run.base + ".err")
        run.result = last_json(output)
        run.errors = tail(errors if errors.strip() else output)
        run.stats = first_device(stats_of(run.base, run.process.pid))
        self.log.write(f"\n==== {run.command}\n==== exit {run.code}, {run.seconds:.1f} s, peak {run.peak}\n"
                       f"{output[-LOG_LIMIT:]}\n---- stderr\n{errors[-LOG_LIMIT:]}\n"
                       f"---- vpool\n{json.dumps(run.stats)}\n")
        self.log.flush()
        return run

    def run(self, argv, preload=False, env=None, limit=120):
        before = idle_use(self.device)
        if before is not None:
            self.idle = min(before, before if self.idle is None else self.idle)
        with Peak(self.device) as peak:
            run = self.start(argv, preload, env)
            if not run.process:
                return run
            left = self.time_left()
            try:
                run.code = run.process.wait(timeout=max(1, min(limit, left)))
            except subprocess.TimeoutExpired:
                run.cut = left < limit
            finally:
                kill(run.process)
        if None not in (peak.most, self.idle):
            run.peak = max(0, peak.most - self.idle)
        return self.finish(run)


    def run_beside(self, rows):
        """Several at the same time, each up to its own limit."""
        runs = [self.start(row.argv, row.preload, row.env) for row in rows]
        try:
            for row, run in zip(rows, runs):
                left, own = self.time_left(), run.began + row.limit - time.monotonic()
                try:
                    if run.process:
                        run.code = run.process.wait(timeout=max(1, min(own, left)))
                except subprocess.TimeoutExpired:
                    run.cut = left < own
        finally:
            for run in runs:
                if run.process:
                    kill(run.process)
        return [self.finish(run) if run.process else run for run in runs]


def kill(process):
    """Ends a program with all that it started, if it still runs."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def say(text):
    print(text, file=sys.stderr, flush=True)


def turns(rows):
    """Each row as often as it says. Neighbours that repeat take turns, and in taking the first: what grows slower or
    faster with time is shared out evenly."""
    i = 0
    while i < len(rows):
        group = [rows[i]]
        while rows[i].repeat > 1 and i + len(group) < len(rows) and rows[i + len(group)].repeat == rows[i].repeat:
            group.append(rows[i + len(group)])
        for turn in range(rows[i].repeat):
            yield from reversed(group) if turn % 2 else group
        i += len(group)


def reason_to_skip(runner, row, problems):
    if os.path.basename(row.argv[0]) in problems or not os.path.exists(row.argv[0]):
        return "NOT BUILT"
    return "no time left" if runner.time_left() < max([5, *(run.seconds for run in row.runs)]) else ""


def run_rows(runner, rows, problems, started):
    queue = list(turns(rows))
    while queue:
        row = queue.pop(0)
        group = [row]
        while row.beside and queue and queue[0].beside == row.beside:
            group.append(queue.pop(0))
        for one in group:
            one.skipped = reason_to_skip(runner, one, problems)
        group = [one for one in group if not one.skipped]
        runs = runner.run_beside(group) if row.beside else [runner.run(one.argv, one.preload, one.env, one.limit)
                                                            for one in group]
        for one, run in zip(group, runs):
            if run.cut:
                one.skipped = "no time left"
                continue
            one.runs.append(run)
            tell(one, run, started)


def tell(row, run, started):
    say(f"[{time.monotonic() - started:6.1f} s] {row.name:32} {run.seconds:6.1f} s"
        f"{'  ' + run.skipped if run.skipped else '' if run.worked else '  FAILED'}")
    if not run.worked and not run.skipped:
        say(f"    {run.command}\n    exit {run.code}; the end of what it said:\n" +
            "\n".join("    | " + line for line in run.errors.splitlines()))


def read_text(path):
    with open(path, errors="replace") as file:
        return file.read()


def tail(text, lines=15):
    return "\n".join(line[:300] for line in text.rstrip().splitlines()[-lines:])


def last_json(text):
    """The object on the last line that is one; an empty one where there is none."""
    for line in reversed(text.splitlines()[-20:]):
        if line.startswith("{"):
            try:
                return json.loads(line)
            except ValueError:
                pass
    return {}


def stats_of(base, pid):
    """The program's own statistics; if it wrote none, those of the child that held the most."""
    found = {}
    for path in glob.glob(glob.escape(base) + ".stats.*"):
        try:
            found[path] = json.loads(read_text(path))
        except ValueError:
            pass
    own = found.get(f"{base}.stats.{pid}")
    if own and own.get("devices"):
        return own
    return max(found.values(), key=lambda stats: first_device(stats).get("peak_held_bytes", 0), default=own or {})


def first_device(stats):
    """The figures of the first device, and with them those of the whole process."""
    devices = stats.get("devices") or [{}]
    figures = {name: value for name, value in stats.items() if name != "devices"} | devices[0]
    if isinstance(figures.get("driver_us"), dict):  # by call
        figures["driver_us"] = sum(figures["driver_us"].values())
    return figures if stats else {}
