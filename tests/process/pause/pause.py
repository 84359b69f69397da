#!/usr/bin/env python3
"""vpool pause and vpool resume: a program sleeps and wakes, is refused, and whoever dies at whatever step. Reports in TAP.

usage: pause.py HOLDER VPOOL SUBJECT        TEST_PRELOAD is the library
"""
# SPDX-License-Identifier: Apache-2.0
import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[:0] = [str(Path(__file__).resolve().parents[2] / "common"), str(Path(__file__).resolve().parents[1] / "lend")]
import tap
from holders import OUT_OF_MEMORY, holders
from sleepers import (CALLS, DEVICE_CALLS, DONE, FAILED, LOCK, PRELOADED, REFUSED, USAGE, VPOOL, answer, ask, check,
                      doctor, environment, figures_of, furnish, is_silent, locker, record, start, top, vpool,
                      wait_until_it_has, well)

SUBJECT = sys.argv[3]


# ---- turns ----

def a_program_sleeps_and_wakes():
    with holders({}, {}) as (a, b):
        furnish(a)
        b.well("SYNC")
        for _ in range(3):
            before = b.well("FREEMEM")
            said = well(a, "pause")
            assert f"process {a.process.pid} sleeps" in said and f"vpool resume {a.process.pid}" in said, said
            assert b.well("FREEMEM") >= before + 120
            assert record(a).stat().st_mode & 0o777 == 0o600
            well(a, "resume")
            assert b.well("FREEMEM") <= before + 20
            check(a)


def its_calls_wait():
    with holders({}) as (a,):
        furnish(a)
        well(a, "pause")
        ask(a, "CHECK", "x")
        assert is_silent(a)
        well(a, "resume")
        assert answer(a)[0] == "0"
        check(a)


def idle_memory_is_given_back_first():
    for lend in ("1", "0"):
        with holders({"VPOOL_LEND": lend}) as (a,):
            furnish(a, 50)
            a.well("ALLOC", "i", 100)
            a.well("FREE", "i")
            a.well("SYNC")
            assert a.well("STATS") >= 170
            well(a, "pause")
            well(a, "resume")
            assert a.well("STATS") < 90
            check(a, 50)


def top_shows_who_sleeps():
    with holders({}) as (a,):
        furnish(a)
        assert figures_of(a)["paused"] is False
        well(a, "pause")
        assert figures_of(a)["paused"] is True
        table = top("--once")
        assert "(paused) holder" in table, table
        figures = top("--prometheus")
        assert any(line.startswith(f'vpool_paused{{pid="{a.process.pid}"') and line.endswith(" 1")
                   for line in figures.splitlines()), figures
        assert f"process {a.process.pid} sleeps: vpool resume" in doctor(a), doctor(a)
        well(a, "resume")
        assert figures_of(a)["paused"] is False and not doctor(a)


def two_take_turns_on_one_device():
    with holders({}, {}) as (a, b):
        furnish(a, 150)
        for _ in range(2):
            well(a, "pause")
            b.well("TAKE", "x", 150)
            b.well("CHECK", "x")
            well(b, "pause")
            well(a, "resume")
            a.well("CHECK", "x")
            well(a, "pause")
            well(b, "resume")
            b.well("CHECK", "x")
            b.well("DROP", "x")
            well(a, "resume")
        check(a, 150)


def a_full_device_is_waited_for():
    with holders({}, {}) as (a, b):
        furnish(a, 150)
        well(a, "pause")
        b.well("TAKE", "x", 150)
        status, said = vpool(a, "resume", "--timeout=60")
        assert status == REFUSED and "stays asleep" in said and "needed" in said, (status, said)
        assert record(a).exists() and is_silent(a, 0.05)
        b.well("CHECK", "x")
        b.well("DROP", "x")
        b.well("SYNC")
        well(a, "resume")
        check(a, 150)


def what_others_have_idle_is_lent():
    with holders({}, {}) as (a, b):
        furnish(a, 120)
        well(a, "pause")
        b.well("ALLOC", "x", 180)
        b.well("FREE", "x")
        b.well("SYNC")
        assert b.well("STATS") >= 180
        well(a, "resume")
        assert b.well("STATS") < 120
        check(a, 120)


@tap.by_the_clock
def who_sleeps_in_an_allocation_is_not_asked_for_memory():
    """It has the library's lock, and cannot answer; what it has is not on the device."""
    with holders({}, {}) as (a, b):
        furnish(a)
        well(a, "pause")
        ask(a, "TAKE", "z", 40)
        assert is_silent(a)
        b.well("TAKE", "x", 150)
        assert b("ALLOC", "y", 150) == OUT_OF_MEMORY
        assert b.seconds < 1.5, b.seconds
        b.well("DROP", "x")
        well(a, "resume")
        assert answer(a)[0] == "0"


def a_little_is_spared():
    """What it had would just fit: the driver is reported to leave a process stuck then."""
    with holders({}, {}) as (a, b):
        furnish(a, 150)
        well(a, "pause")
        b.well("TAKE", "x", 80)
        status, said = vpool(a, "resume", "--timeout=60")
        assert status == REFUSED and "to spare" in said, (status, said)
        b.well("DROP", "x")
        well(a, "resume")
        check(a, 150)


def wait_until_it_is_its_turn(waker):
    wait_until_it_has(LOCK, waker)
    # The words in the pages are raised right after it.
    time.sleep(0.3)


@tap.by_the_clock
def nobody_grows_while_one_is_brought_back():
    with holders({}, {}) as (a, b):
        furnish(a, 150)
        b.well("TAKE", "w", 1)
        well(a, "pause")
        with start(a, "resume", sim="delay=cuCheckpointProcessRestore:3000") as waker:
            wait_until_it_is_its_turn(waker)
            result = b("TAKE", "x", 100)
            assert result == OUT_OF_MEMORY and b.seconds > 0.5, (result, b.seconds)
            assert waker.wait(300) == DONE, waker.stderr.read()
        check(a, 150)
        b.well("TAKE", "x", 50)


@tap.by_the_clock
def who_is_on_another_device_grows_meanwhile():
    """Another ledger is another device."""
    with holders({}) as (a,), holders({}) as (b,):
        furnish(a, 150)
        b.well("TAKE", "w", 1)
        well(a, "pause")
        with start(a, "resume", sim="delay=cuCheckpointProcessRestore:3000") as waker:
            wait_until_it_is_its_turn(waker)
            b.well("TAKE", "x", 100)
            assert b.seconds < 1, b.seconds
            assert waker.wait(300) == DONE, waker.stderr.read()
        check(a, 150)


@tap.by_the_clock
def growing_goes_on_when_the_waker_is_killed():
    with holders({}, {}) as (a, b):
        furnish(a, 100)
        b.well("TAKE", "w", 1)
        well(a, "pause")
        with start(a, "resume", sim="delay=cuCheckpointProcessRestore:20000") as waker:
            wait_until_it_is_its_turn(waker)
            ask(b, "TAKE", "x", 100)
            assert is_silent(b)
            waker.kill()
            begin = time.monotonic()
        assert answer(b)[0] == "0" and time.monotonic() - begin < 5
        b.well("DROP", "x")
        well(a, "resume")
        check(a)


@tap.by_the_clock
def a_held_lock_holds_nobody_up_by_itself():
    """The word in the page says nothing without the lock; the lock says nothing without the word."""
    with holders({}) as (a,):
        with open(LOCK, "a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            a.well("TAKE", "x", 10)
            assert a.seconds < 1


# ---- refused ----

def refused(one, word):
    status, said = vpool(one, "pause")
    assert status == REFUSED and word in said and str(one.process.pid) in said, (status, said)
    assert not record(one).exists()
    one.well("CHECK", "x")


@tap.by_the_clock
def what_the_checkpoint_cannot_take():
    with holders({}) as (a,):
        furnish(a)
        a.well("MANAGED", "m", 1)
        refused(a, "managed")
        a.well("DROP", "m")
        a.well("CAPTURE")
        refused(a, "capturing")
        a.well("CAPTURED")
        a.well("UNSHOWN")
        well(a, "pause")
        well(a, "resume")
        check(a)
    for words, said in ((("IPC", "x"), "other processes"), (("EXPORT",), "other processes"), (("POOL", "p"), "other processes"),
                        (("EVENT",), "other processes"), (("RANKS",), "NCCL"), (("REGISTER", "x"), "network"),
                        (("MANAGED-POOL",), "managed"), (("MANAGED-DEFAULT",), "managed"), (("MANAGED-CURRENT",), "managed")):
        with holders({"VPOOL_IPC": "alone"}) as (a,):
            furnish(a)
            begin = time.monotonic()
            a.well(*words)
            refused(a, said)
            assert time.monotonic() - begin < 2


def what_is_registered_is_not_paused_from_inside():
    with holders({}) as (a,):
        furnish(a)
        a.well("REGISTER", "x")
        assert a("SLEEP") == -95
        a.well("CHECK", "x")


@tap.by_the_clock
def states():
    with holders({}) as (a,):
        furnish(a)
        status, said = vpool(a, "resume")
        assert status == REFUSED and "not paused" in said, said
        well(a, "pause")
        status, said = vpool(a, "pause")
        assert status == REFUSED and "already" in said, said
        with start(a, "resume", sim="delay=cuCheckpointProcessRestore:2000") as first:
            wait_until_it_has(record(a), first)
            status, said = vpool(a, "resume")
            assert status == REFUSED and "working on it" in said, said
            assert first.wait(300) == DONE
        check(a)
        for command in "pause", "resume":
            with start(a, command, sim="delay=cuCheckpointProcessGetState:800+") as first:
                time.sleep(0.3)
                both = [vpool(a, command), (first.wait(300), first.stdout.read() + first.stderr.read())]
                assert sorted(status for status, _ in both) == [DONE, REFUSED], both
            assert record(a).exists() == (command == "pause"), "what it needs is known as long as it sleeps"
        check(a)


def no_such_process():
    with holders({}) as (a,):
        a.well("SYNC")
        for command in "pause", "resume":
            for args, status in (([], USAGE), (["1", "2"], USAGE), (["x"], USAGE), (["--timeout=no", "1"], USAGE), (["0"], USAGE),
                                 (["--what", "1"], USAGE), (["4194303"], FAILED), (["--help"], DONE)):
                run = subprocess.run([VPOOL, command, *args], env=environment(a), text=True, capture_output=True, check=False)
                assert run.returncode == status, (command, args, run)
                assert status == DONE or run.stderr.count("\n") == 1, run.stderr
        with subprocess.Popen(["sleep", "60"]) as other:
            run = subprocess.run([VPOOL, "pause", str(other.pid)], env=environment(a), text=True, capture_output=True, check=False)
            other.kill()
        assert run.returncode == REFUSED and "CUDA" in run.stderr, run


def another_users():
    if os.geteuid():
        run = subprocess.run([VPOOL, "pause", "1"], text=True, capture_output=True, check=False)
        assert run.returncode == REFUSED and "root" in run.stderr, run
        return
    with holders({}) as (a,):
        furnish(a)
        for command in "pause", "resume":
            run = subprocess.run([VPOOL, command, str(a.process.pid)], env=environment(a), text=True, capture_output=True,
                                 check=False, user=65534, group=65534, extra_groups=[])
            assert run.returncode == REFUSED and "root" in run.stderr, run
        check(a)


def without_the_library_less_is_known():
    for how in ({"preload": False}, {"VPOOL_PAGE": "0"}):
        with holders(how) as (a,):
            furnish(a)
            said = well(a, "pause")
            assert "would not be seen" in said, said
            assert f"process {a.process.pid} sleeps" in doctor(a)
            well(a, "resume")
            a.well("CHECK", "x")


def the_driver_may_be_too_old():
    with holders({}) as (a,):
        furnish(a)
        for command in "pause", "resume":
            status, said = vpool(a, command, sim="driver=12040")
            assert status == FAILED and "570" in said and "12.4" in said, (status, said)
        check(a)


# ---- faults ----

def wake_and_check(one, why):
    """Whatever state it is in: `vpool resume` makes it run, or says that it does."""
    status, said = vpool(one, "resume")
    assert status == DONE or (status == REFUSED and "not paused" in said), (why, status, said)
    check(one)


def each_call_fails_in_turn():
    with holders({}) as (a,):
        furnish(a)
        for command in "pause", "resume":
            for call in CALLS + DEVICE_CALLS:
                for nth in "1", "2", "3", "1+":
                    if command == "resume":
                        well(a, "pause")
                    status, said = vpool(a, command, sim=f"fail={call}:{nth}")
                    why = (command, call, nth, status, said)
                    assert status in (DONE, FAILED, REFUSED) and (status == DONE or said), why
                    if command == "pause" and status != DONE and call != "cuCheckpointProcessUnlock":
                        assert vpool(a, "resume")[0] == REFUSED, (why, "it runs on")
                    wake_and_check(a, why)


def a_failed_unlock_is_told():
    with holders({}) as (a,):
        furnish(a)
        status, said = vpool(a, "pause", sim="fail=cuCheckpointProcessCheckpoint:1,fail=cuCheckpointProcessUnlock:1")
        assert status == FAILED and f"vpool resume {a.process.pid}" in said, said
        assert "is locked" in doctor(a), doctor(a)
        assert is_silent(a, 0.05)
        assert vpool(a, "pause")[0] == REFUSED
        well(a, "resume")
        check(a)


def what_cannot_be_written_down_is_not_paused():
    """In a name space of its own, which root may have, where the folder of pages is full."""
    script = """
        mount -t tmpfs -o size=4k none "$TEST_SHM" && head -c 4096 /dev/zero >"$TEST_SHM/full" || exit 77
        "$@"
        status=$?
        ls "$TEST_SHM"
        exit $status
    """
    with holders({}) as (a,):
        furnish(a)
        run = subprocess.run(["unshare", "-m", "sh", "-c", script, "sh", "env", f"LD_PRELOAD={PRELOADED['LD_PRELOAD']}", VPOOL,
                              "pause", str(a.process.pid)], env=environment(a) | {"LD_PRELOAD": ""}, text=True, capture_output=True, check=False)
        if run.returncode != 77 and "unshare" not in run.stderr:
            assert run.returncode == FAILED and "No space" in run.stderr and run.stdout == "full\n", run
        check(a)


def who_cannot_be_looked_at_again_is_not_paused():
    """A page may have been removed since the first look; a communicator may have been made."""
    with holders({}) as (a,):
        furnish(a)
        page = record(a).with_suffix("")
        with start(a, "pause", sim="delay=cuCheckpointProcessLock:1000") as helper:
            wait_until_it_has(record(a), helper)
            page.rename(page.with_suffix(".away"))
            status, said = helper.wait(300), helper.stderr.read()
        page.with_suffix(".away").rename(page)
        assert status == REFUSED and "page is gone" in said, (status, said)
        check(a)


@tap.by_the_clock
def time_limits():
    with holders({}) as (a,):
        furnish(a)
        status, said = vpool(a, "pause", "--timeout=2", sim="delay=cuCheckpointProcessCheckpoint:9000")
        assert status == FAILED and "runs on" in said and "in 2 s" in said, (status, said)
        check(a)
        well(a, "pause")
        status, said = vpool(a, "resume", "--timeout=2", sim="delay=cuCheckpointProcessRestore:9000")
        assert status == FAILED and "sleeps" in said, (status, said)
        well(a, "resume")
        check(a)


@tap.by_the_clock
def what_does_not_end_is_not_waited_for():
    with holders({"sim": "delay=cuMemGetInfo:2500"}) as (a,):
        furnish(a)
        a.well("SYNC")
        ask(a, "FREEMEM")
        time.sleep(0.2)
        begin = time.monotonic()
        status, said = vpool(a, "pause", "--timeout=1")
        assert status == REFUSED and "runs on" in said and time.monotonic() - begin < 1.6, (status, said)
        assert answer(a)[0] == "0"
        check(a)


def an_interrupt_lets_it_run_on():
    with holders({}) as (a,):
        furnish(a)
        for number in signal.SIGINT, signal.SIGTERM:
            with start(a, "pause", sim="delay=cuCheckpointProcessCheckpoint:9000") as helper:
                wait_until_it_has(record(a), helper)
                helper.send_signal(number)
                assert helper.wait(300) == FAILED
                said = helper.stderr.read()
            assert "interrupted" in said and "runs on" in said, said
            check(a)


# ---- killed ----

def the_helper_dies_at_every_step():
    with holders({}) as (a,):
        furnish(a)
        for command in "pause", "resume":
            for call in CALLS:
                for when in "", "+":
                    if command == "resume":
                        well(a, "pause")
                    with start(a, command, sim=f"delay={call}:9000{when}") as helper:
                        time.sleep(0.25)
                        helper.kill()
                    while locker(record(a)):  # until what it has started is gone, too
                        time.sleep(0.01)
                    said = doctor(a)
                    # It runs, and nobody need do anything; or doctor says what to do.
                    assert f"vpool resume {a.process.pid}" in said or (not said or "runs" in said) and a("CHECK", "x") == 0, \
                        (command, call, when, said)
                    wake_and_check(a, (command, call, when, said))


@tap.by_the_clock
def the_program_dies_at_every_step():
    for command in "pause", "resume":
        for call in CALLS[1:]:
            for when in "", "+":
                with holders({}, {}) as (a, b):
                    furnish(a)
                    if command == "resume":
                        well(a, "pause")
                    with start(a, command, "--timeout=20", sim=f"delay={call}:600{when}") as helper:
                        time.sleep(0.25)
                        a.process.kill()
                        a.process.wait()
                        begin = time.monotonic()
                        helper.communicate(timeout=300)
                    assert time.monotonic() - begin < 8, (command, call, when)
                    assert b.well("FREEMEM") > 230, "its memory is there again"
                    assert not doctor(a) and not record(a).exists()
                    a.process.stdin.close()
                    a.end = lambda: None


SUBJECTS = {
    "turns": [a_program_sleeps_and_wakes, its_calls_wait, idle_memory_is_given_back_first, top_shows_who_sleeps,
              two_take_turns_on_one_device, a_full_device_is_waited_for, what_others_have_idle_is_lent,
              who_sleeps_in_an_allocation_is_not_asked_for_memory, a_little_is_spared,
              nobody_grows_while_one_is_brought_back, who_is_on_another_device_grows_meanwhile,
              growing_goes_on_when_the_waker_is_killed, a_held_lock_holds_nobody_up_by_itself],
    "refused": [what_the_checkpoint_cannot_take, what_is_registered_is_not_paused_from_inside, states, no_such_process,
                another_users, without_the_library_less_is_known, the_driver_may_be_too_old],
    "faults": [each_call_fails_in_turn, a_failed_unlock_is_told, what_cannot_be_written_down_is_not_paused,
               who_cannot_be_looked_at_again_is_not_paused, time_limits, what_does_not_end_is_not_waited_for,
               an_interrupt_lets_it_run_on],
    "killed": [the_helper_dies_at_every_step, the_program_dies_at_every_step],
}
tap.run(SUBJECTS[SUBJECT])
