"""A program of this folder, run bare and under libvpool.so, on the simulated driver; and what may be wanted of it."""
# SPDX-License-Identifier: Apache-2.0
import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile

PROGRAMS, VPOOL = map(os.path.realpath, sys.argv[1:3])
SIM = os.path.join(os.environ["TEST_BUILD"], "sim")
PRELOAD = os.environ["TEST_PRELOAD"]
SANITIZED = ":" in PRELOAD
TMP = tempfile.mkdtemp()
FRAMEWORKS = ("PYTORCH_", "XLA_PYTHON", "TF_")
ENV = {k: v for k, v in os.environ.items()
       if not k.startswith(("VPOOL_", "LD_PRELOAD", "CUDA_") + FRAMEWORKS)}
ENV |= {"LD_LIBRARY_PATH": f"{PROGRAMS}:{SIM}",
        "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"}
LIMIT = 300


class Skip(Exception):
    """What the case needs is not here."""


# ---- running

def run(command, sim="", env=None, bare=False, limit=LIMIT, stdin=None, preload=PRELOAD, **more):
    """One program, and what it wrote; all of its processes end at the limit."""
    variables = ENV | ({"VPOOL_SIM": sim} if sim else {}) | ({} if bare else {"LD_PRELOAD": preload}) | (env or {})
    if isinstance(command, str):
        command = command.split()
    if "/" not in command[0] and os.path.exists(os.path.join(PROGRAMS, command[0])):
        command = [os.path.join(PROGRAMS, command[0])] + command[1:]
    more = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "cwd": TMP} | more
    with open(stdin or os.devnull, encoding="ascii") as source:
        process = subprocess.Popen(command, env=variables, stdin=source, text=True, start_new_session=True, **more)
    try:
        out, err = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired as late:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        raise AssertionError(f"did not end within {limit} s:\n{out}{err}") from late
    return Done(process.returncode, out or "", err or "")


class Done:
    """A program that has ended."""

    def __init__(self, status, out, err):
        self.status, self.out, self.err = status, out, err

    def __str__(self):
        return f"status {self.status}\n{self.out}{self.err}"

    def lines(self):
        """Its output without what depends on the machine: times, and figures of the library."""
        text = re.sub(r"\(?\d+\.\d+ ?s\b\)?|: no stats|: live .*", "", self.out)
        return [line.strip() for line in text.splitlines() if line.strip()]

    def numbers(self, pattern):
        """Those that stand at the pattern's group, in order."""
        found = [float(number) for number in re.findall(pattern, self.out)]
        assert found, f"no {pattern} in {self}"
        return found


def check(condition, done, what):
    assert condition, f"{what}\n{done}"


# ---- what is wanted

def same(command, sim="", env=None, but=None, limit=LIMIT):
    """The same lines and the same end as bare; lines that match `but` are left out."""
    def test():
        bare, ours = run(command, sim, env, bare=True), run(command, sim, env, limit=limit)
        check(bare.status != 3, bare, "the program cannot do what it is for")
        check(bare.status == ours.status, ours, f"wanted status {bare.status}")
        wanted, found = ([line for line in done.lines() if not (but and re.search(but, line))]
                         for done in (bare, ours))
        check(wanted == found, ours, "wanted:\n" + "\n".join(wanted) + "\nfound:")
    return test


def same_beside(library, command, sim=""):
    """The same lines and the same end as with the other library alone, in front of ours and behind it; as with none where
    it is one of us. One of us serves."""
    def test():
        if SANITIZED:
            raise Skip("a sanitizer's runtime is preloaded already")
        us = library == "libvpool-compare.so"
        other = os.path.join(os.environ["TEST_BUILD"] if us else PROGRAMS, library)
        alone = run(command, sim, bare=us, preload=other)
        for preload in f"{other}:{PRELOAD}", f"{PRELOAD}:{other}":
            both = run(command, sim, {"VPOOL_STATS": "1"}, preload=preload)
            check(alone.status == both.status and alone.out == both.out, both, f"{preload}; wanted:\n{alone.out}\nfound:")
            check(both.err.count("policy vpool") == 1 and " no CUDA" not in both.err, both, "wanted one summary")
    return test


def says(command, *patterns, sim="", env=None, limit=LIMIT):
    """Ends well, and prints what these match."""
    def test():
        done = run(command, sim, env, limit=limit)
        check(done.status == 0, done, "wanted status 0")
        for pattern in patterns:
            check(re.search(pattern, done.out, re.M), done, f"wanted: {pattern}")
    return test


def flat(command, sim="", most=44):
    """The same answers as bare, and never more than so many MiB held."""
    def test():
        same(command, sim)()
        done = run(command, sim)
        held = done.numbers(r"held ([\d.]+) MiB")
        check(max(held) <= most, done, f"wanted at most {most} MiB")
    return test


def modest(command, sim="", most=0.5, count=1000):
    """From the second line on it grows by at most so many KiB a piece more than bare, of `count` pieces a line."""
    def test():
        if SANITIZED:
            raise Skip("a sanitizer's memory counts, too")
        bare, ours = run(command, sim, bare=True), run(command, sim)
        check(ours.status == 0, ours, "wanted status 0")
        grown = []
        for done in (bare, ours):
            rss = done.numbers(r"rss (\d+) KiB")
            grown.append((rss[-1] - rss[1]) / (len(rss) - 2) / count)
        check(grown[1] - grown[0] <= most, ours, f"{grown[1]:.2f} KiB each, bare {grown[0]:.2f}")
    return test
