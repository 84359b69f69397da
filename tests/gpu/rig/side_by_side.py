"""Programs that do the same laps, side by side: each waits for its turn before a lap, so that what slows the machine
down for a while slows all of them, and each is compared with what was measured in the same second."""
# SPDX-License-Identifier: Apache-2.0
import os
import select
import subprocess
import time

from .runner import kill, say, tell

READY = b"ready\n"


class Late(Exception):
    """The time is up; `program` was waited for."""

    def __init__(self, program):
        super().__init__()
        self.program = program


class Program:
    """A running one. It says READY before each lap, and waits for a line."""

    def __init__(self, runner, row):
        self.row = row
        self.run = runner.start([*row.argv, "--paced"], row.preload, row.env, stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE)
        self.process = self.run.process
        self.output = b""
        self.runs = self.process is not None

    def await_ready(self, deadline):
        """Waits until it is ready or has ended. Raises Late."""
        while self.runs and not self.output.endswith(READY):
            file = self.process.stdout.fileno()
            if not select.select([file], [], [], max(0, deadline - time.monotonic()))[0]:
                raise Late(self)
            some = os.read(file, 1 << 16)
            self.output += some
            self.runs = bool(some)

    def lap(self, deadline):
        self.output = self.output[:-len(READY)]
        try:
            os.write(self.process.stdin.fileno(), b"\n")
        except BrokenPipeError:
            pass  # it has ended, as will be read
        self.await_ready(deadline)

    def stay_on(self, cpus):
        """Keeps the threads that it has, and those that they will start, on these CPUs."""
        for task in os.listdir(f"/proc/{self.process.pid}/task"):
            try:
                os.sched_setaffinity(int(task), cpus)
            except ProcessLookupError:
                pass  # a thread that has just ended

    def close(self, deadline):
        """Waits for its end; its run has its exit status and output then."""
        if not self.process:
            return
        try:
            self.run.code = self.process.wait(timeout=max(1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise Late(self) from None
        with open(self.run.base + ".out", "wb") as file:
            file.write(self.output)

    def kill(self):
        if self.process:
            kill(self.process)
            self.process.stdin.close()
            self.process.stdout.close()


def two_cpus():
    """One for the thread that launches, one for all others; far apart, so that they are no two halves of a core."""
    cpus = sorted(os.sched_getaffinity(0))
    return {cpus[0], cpus[len(cpus) // 2]}


def run_side_by_side(runner, rows, started, limit=180):
    """Runs each row's program once, lap by lap in turns, and appends the runs; none if there is no time for all. Where they
    are not done by their own limit, the run of the one that was waited for alone: it has failed."""
    begin = time.monotonic()
    deadline = min(runner.deadline, begin + limit)
    programs, done = [], []
    try:
        for row in rows:
            programs.append(Program(runner, row))
        for program in programs:
            program.await_ready(deadline)
        running, cpus = [program for program in programs if program.runs], two_cpus()
        for program in running:
            program.stay_on(cpus)
        while running:
            for program in running:
                program.lap(deadline)
            running = [program for program in running[1:] + running[:1] if program.runs]  # another goes first
        for program in programs:
            program.close(deadline)
        done = programs
    except Late as late:
        cut = deadline == runner.deadline
        done = [] if cut else [late.program]
        why = "no time left" if cut else f"{late.program.row.name} did not get on in {limit} s"
        for row in rows:
            row.skipped = why
        say(f"[{time.monotonic() - started:6.1f} s] {rows[0].name} and those beside it: stopped, {why}")
    finally:
        for program in programs:
            program.kill()
    for program in done:
        run = runner.finish(program.run) if program.process else program.run
        program.row.runs.append(run)
        tell(program.row, run, started)
