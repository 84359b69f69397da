#!/usr/bin/env python3
"""Processes of one user on one device: who lacks memory gets what others have idle. Reports in TAP.

usage: lend.py HOLDER VPOOL        TEST_PRELOAD is the library
"""
# SPDX-License-Identifier: Apache-2.0
import json
import os
import signal
import string
import subprocess
import sys
import threading
import time
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "common"))
sys.path.insert(0, str(Path(__file__).resolve().parent))
import tap
from holders import OUT_OF_MEMORY, holders

VPOOL = sys.argv[2]


def peak(one, other, mib=150):
    """`one` peaks: what it takes is more than is free, as the other holds as much idle."""
    one.well("ALLOC", "a", mib)
    one.well("CHECK", "a")
    one.well("FREE", "a")
    one.well("SYNC")
    assert one.well("STATS") >= mib, "it keeps what it has freed"


def stop(one):
    """Until it has stopped: a thread of it may run on for a moment after the signal."""
    one.process.send_signal(signal.SIGSTOP)
    os.waitpid(one.process.pid, os.WUNTRACED)


def top(one):
    figures = json.loads(subprocess.run([VPOOL, "top", "--json", "-d", "0.05", str(one.process.pid)], check=True,
                                        stdout=subprocess.PIPE, text=True).stdout)
    return figures["processes"][0]["devices"][0]


def doctor():
    return subprocess.run([VPOOL, "doctor", "--sim"], check=False, stdout=subprocess.PIPE, text=True).stdout.splitlines()


@tap.by_the_clock
def two_processes_peak_in_turns():
    with holders({}, {}) as (a, b):
        a.well("ALLOC", "k", 10)
        b.well("ALLOC", "k", 10)
        peak(a, b)
        peak(b, a)
        assert b.seconds < 5
        assert a.well("STATS") < 110, "what it had idle was lent"
        # Who has given, and has needed memory since, is spared; who lacks memory waits for that.
        peak(a, b)
        peak(b, a)
        for one in (a, b):
            one.well("CHECK", "k")
        lent = [top(one) for one in (a, b)]
        assert all(figures["lent_bytes"] > 40 << 20 and figures["loans_asked"] > 0 for figures in lent), lent


def devices_are_known_by_themselves():
    """Not by the numbers that processes have for them (CUDA_VISIBLE_DEVICES)."""
    two = "devices=2,capacity=256M:160M,visible="
    with holders({"sim": two + "1:0"}, {"sim": two + "0:1"}, {"sim": two + "1"}) as (a, b, c):
        a.well("ALLOC", "a", 140)
        a.well("FREE", "a")
        a.well("SYNC")
        b.well("ALLOC", "b", 240)
        b.well("CHECK", "b")
        assert a.well("STATS") >= 140 and top(b)["loans_asked"] == 0, "it has another device"
        c.well("ALLOC", "c", 140)
        c.well("CHECK", "c")
        assert a.well("STATS") < 30 and top(a)["lent_bytes"] > 100 << 20


LARGE = {"sim": "capacity=8G,granularity=2M,backing=ledger"}


def turn(one):
    """How long it waits for what it needs for a moment; what it gets is its own, or out of memory."""
    if one("ALLOC", "a", 4900) == OUT_OF_MEMORY:
        return one.seconds
    seconds = one.seconds
    one.well("FREE", "a")
    one.well("SYNC")
    return seconds


def turns_until(one, stops, pause):
    while time.monotonic() < stops:
        turn(one)
        time.sleep(pause)


@tap.by_the_clock
def three_processes_peak_in_turns():
    """Each is idle for most of the time, though it has given and needed memory again a moment before."""
    with holders(LARGE, LARGE, LARGE) as all_three:
        seconds = [turn(one) for _ in range(5) for one in all_three]
        assert sum(seconds) < 4, seconds
        assert all(top(one)["lent_bytes"] > 4 << 30 for one in all_three)


@tap.by_the_clock
def who_uses_its_memory_steadily_is_not_stripped_again_and_again():
    with holders(LARGE, LARGE) as (a, b):
        turn(a)
        steady = threading.Thread(target=turns_until, args=(a, time.monotonic() + 4, 0.002))
        steady.start()
        turns_until(b, time.monotonic() + 4, 0.02)
        steady.join()
        assert top(a)["lent_bytes"] < 12 * 4900 << 20, top(a)


@tap.by_the_clock
def what_a_stream_has_just_freed_is_lent():
    """It lies in the stream's cache, and no call of the process tells of it any more."""
    with holders({}, {}) as (a, b):
        a.well("ALLOC", "a", 200)
        a.well("FREE", "a")
        a.well("SYNC")
        b.well("ALLOC", "b", 150)
        assert b.seconds < 3
        b.well("CHECK", "b")
        assert top(a)["lent_bytes"] > 90 << 20


def who_has_spilled_lends_what_it_has_idle():
    """What lies in the host's memory is alive, and held nowhere on the device."""
    with holders({"VPOOL_SPILL": "1G"}, {}) as (a, b):
        a.well("TAKE", "x", 200)
        a.well("TAKE", "s", 200)
        a.well("ALLOC", "k", 1)
        a.well("DROP", "x")
        a.well("ALLOC", "y", 180)
        a.well("FREE", "y")
        a.well("SYNC")
        assert top(a)["spilled_bytes"] > 100 << 20, top(a)
        b.well("ALLOC", "b", 150)
        for one, name in ((a, "s"), (a, "k"), (b, "b")):
            one.well("CHECK", name)


@tap.by_the_clock
def a_program_that_is_replaced_has_nothing_and_lends_again():
    with holders({}, {}) as (a, b):
        a.well("ALLOC", "a", 200)
        a("EXEC")
        assert a.well("FREEMEM") > 250
        peak(a, b)
        b.well("ALLOC", "b", 150)
        assert b.seconds < 3


@tap.by_the_clock
def without_lending_they_fail():
    with holders({"VPOOL_LEND": "0"}, {"VPOOL_LEND": "0"}) as (a, b):
        peak(a, b)
        assert b("ALLOC", "a", 150) == OUT_OF_MEMORY
        assert b.seconds < 1


def holds_idle(one):
    """190 MiB: what the stream has freed, of which no call tells."""
    one.well("ALLOC", "k", 10)
    one.well("ALLOC", "a", 190)
    one.well("FREE", "a")
    one.well("SYNC")


@tap.by_the_clock
def what_others_would_lend_is_told_as_free():
    """Programs decide by that what they ask for, before they ask for any."""
    with holders({}, {}) as (a, b):
        holds_idle(a)
        assert b.well("FREEMEM") <= 56, "it has just made a call, and may make others"
        time.sleep(1.2)
        for _ in range(2):
            told = b.well("FREEMEM")
            assert 220 < told <= 246, told
            assert b.seconds < 1, b.seconds
            time.sleep(0.1)
        b.well("ALLOC", "b", told - 40)
        assert 20 < b.well("FREEMEM") <= 46, "what has been lent is free no more"
        a.well("CHECK", "k")
    with holders({"VPOOL_LEND": "0"}, {}) as (a, b):
        holds_idle(a)
        time.sleep(1.2)
        assert b.well("FREEMEM") <= 56, "it gives nothing"


def what_who_uses_most_of_its_memory_has_idle_is_not_told_as_free():
    with holders({}, {}) as (a, b):
        a.well("TAKE", "x", 100)
        a.well("ALLOC", "y", 80)
        a.well("FREE", "y")
        a.well("ALLOC", "k", 2)
        time.sleep(1.2)
        assert b.well("FREEMEM") <= 76


def who_does_not_lend_may_ask():
    with holders({}, {"VPOOL_LEND": "0"}) as (a, b):
        peak(a, b)
        peak(b, a)
        assert a("ALLOC", "a", 150) == OUT_OF_MEMORY, "the other refuses"
        said = [line for line in doctor() if f"process {b.process.pid} " in line]
        assert len(said) == 1 and said[0].startswith("--  ") and said[0].endswith(" MiB: VPOOL_LEND=0"), said
        assert not [line for line in doctor() if f"process {a.process.pid} " in line], "it lends"


def live_memory_is_never_lent():
    with holders({}, {}) as (a, b):
        a.well("TAKE", "x", 120)
        a.well("ALLOC", "y", 40)
        assert b("ALLOC", "a", 150) == OUT_OF_MEMORY
        a.well("CHECK", "x")
        a.well("CHECK", "y")
        b.well("TAKE", "a", 80)


def only_what_is_lacking_is_given():
    with holders({}, {}) as (a, b):
        peak(a, b, 200)
        b.well("ALLOC", "a", 80)
        assert a.well("STATS") > 100, "80 were wanted, and 56 were free"


@tap.by_the_clock
def who_has_needed_nothing_since_gives_again():
    with holders({}, {}) as (a, b):
        peak(a, b, 200)
        b.well("ALLOC", "a", 80)
        time.sleep(1)
        b.well("ALLOC", "b", 90)
        assert b.seconds < 3.5, b.seconds  # it is spared for 5 s otherwise


@tap.by_the_clock
def who_takes_little_by_little_is_not_kept_waiting():
    """What it asks for next time is more, so that it asks seldom."""
    with holders({"sim": "capacity=8G,backing=ledger"}, {"sim": "capacity=8G,backing=ledger"}) as (a, b):
        a.well("ALLOC", "a", 4900)
        a.well("FREE", "a")
        a.well("SYNC")
        seconds = 0
        for name in string.ascii_lowercase:
            b.well("ALLOC", name, 180)
            seconds += b.seconds
        assert seconds < 2, seconds
        assert top(b)["loans_asked"] <= 4


@tap.by_the_clock
def what_lies_beside_live_memory_is_not_waited_for():
    with holders({"sim": "granularity=2M"}, {"sim": "granularity=2M"}) as (a, b):
        names = string.ascii_letters + string.digits
        for name in names:
            a.well("ALLOC", name, 1)
        for name in names[::2]:
            a.well("FREE", name)
        a.well("SYNC")
        b.well("ALLOC", "k", 190)
        for _ in range(3):
            assert b("ALLOC", "a", 30) == OUT_OF_MEMORY
            assert b.seconds < 1, b.seconds
        assert top(b)["loans_asked"] == 1 and top(a)["loans_refused"] > 0, (top(a), top(b))
        # What is freed then is given.
        for name in names[1::2]:
            a.well("FREE", name)
        a.well("SYNC")
        b.well("ALLOC", "a", 30)
        assert b.seconds < 5, b.seconds


@tap.by_the_clock
def the_longest_idle_is_asked_first():
    with holders({}, {}, {}) as (a, b, c):
        peak(a, c, 70)
        time.sleep(0.2)
        peak(b, c, 70)
        c.well("ALLOC", "a", 130)
        assert a.well("STATS") < 70 <= b.well("STATS")


@tap.by_the_clock
def other_files_are_in_nobodys_way():
    """Of a /dev/shm with many those that were made last come first."""
    with holders({}, {}) as (a, b):
        a.well("ALLOC", "x", 150)
        a.well("FREE", "x")
        a.well("SYNC")
        files = [Path(f"/dev/shm/files-of-{a.process.pid}-{i}") for i in range(700)]
        try:
            for file in files:
                file.touch()
            peak(b, a)
        finally:
            for file in files:
                file.unlink(missing_ok=True)


def a_stopped_process_holds_nobody_up_for_long():
    with holders({}, {}) as (a, b):
        peak(a, b)
        stop(a)
        answer = b("ALLOC", "a", 150)
        assert answer == OUT_OF_MEMORY, f"{answer} after {b.seconds} s"
        assert b.seconds < 8, b.seconds
        assert b("ALLOC", "a", 150) == OUT_OF_MEMORY
        assert b.seconds < 1.8, f"it is not asked again so soon: {b.seconds}"
        a.process.send_signal(signal.SIGCONT)


@tap.by_the_clock
def stopped_processes_are_not_waited_for_one_by_one():
    with holders(*[{}] * 5) as (*stopped, asks):
        for one in stopped:
            peak(one, asks, 45)
            stop(one)
        assert asks("ALLOC", "a", 150) == OUT_OF_MEMORY
        assert asks.seconds < 4, asks.seconds
        for one in stopped:
            one.process.send_signal(signal.SIGCONT)


@tap.by_the_clock
def one_that_is_stopped_while_it_asks_is_in_nobodys_way():
    with holders({}, {}, {}) as (a, b, c):
        peak(a, b)
        stop(a)
        b.process.stdin.write("ALLOC a 110\n")
        b.process.stdin.flush()
        time.sleep(0.5)
        stop(b)
        a.process.send_signal(signal.SIGCONT)
        time.sleep(0.2)
        assert a.well("STATS") > 60, "it gave what was lacking"
        c.well("ALLOC", "a", 200)
        c.well("CHECK", "a")
        b.process.send_signal(signal.SIGCONT)
        b.process.stdout.readline()


def a_killed_process_is_not_waited_for():
    for moment in (0, 0.001, 0.01):
        with holders({}, {}) as (a, b):
            peak(a, b)
            b.process.stdin.write("ALLOC a 150\n")
            b.process.stdin.flush()
            time.sleep(moment)
            a.process.kill()
            a.process.wait()
            assert b.process.stdout.readline().split()[0] == "0"
            b.well("CHECK", "a")
            a.process.stdin.close()
            a.end = lambda: None


@tap.by_the_clock
def one_that_asked_and_was_killed_leaves_the_way_free():
    with holders({}, {}, {}) as (a, b, c):
        peak(a, b, 200)
        stop(a)
        b.process.stdin.write("ALLOC a 150\n")
        b.process.stdin.flush()
        time.sleep(0.3)
        b.process.kill()
        b.process.wait()
        a.process.send_signal(signal.SIGCONT)
        time.sleep(0.3)
        c.well("ALLOC", "a", 150)
        b.end = lambda: None


def who_wakes_borrows():
    with holders({}, {}) as (a, b):
        a.well("TAKE", "x", 150)
        a.well("SLEEP")
        assert a.well("FREEMEM") >= 250
        assert top(a)["asleep_bytes"] >= 150 << 20
        peak(b, a)
        assert a("WAKE") == 0, (a.seconds, [top(one) for one in (a, b)])
        a.well("CHECK", "x")


@tap.by_the_clock
def cudas_own_calls_borrow_too():
    with holders({}, {}) as (a, b):
        peak(a, b, 200)
        b.well("TAKE", "k", 1)
        b.well("RAW", "r", 150)
        assert a.well("STATS") < 110, "what it had idle was lent"
        assert top(b)["loans_asked"] == 1
        # What all together have not is not asked for.
        assert b("RAW", "s", 4096) == OUT_OF_MEMORY and b.seconds < 3
    # Nor is memory of the host anything to lend.
    with holders({}, {"sim": "fail=cuMemAllocManaged:1"}) as (a, b):
        peak(a, b, 200)
        b.well("TAKE", "k", 1)
        assert b("MANAGED", "m", 100) == OUT_OF_MEMORY
        assert a.well("STATS") >= 200


def a_program_without_a_pool_borrows():
    with holders({}, {}) as (a, b):
        peak(a, b, 200)
        b.well("RAW", "r", 150)
        assert a.well("STATS") < 110


def each_call_fails_in_turn():
    """Of who gives, and of who asks: one has the memory or out of memory, no byte is lost, and nothing is left."""
    calls = ["cuMemUnmap", "cuMemRelease", "cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuEventQuery", "cuEventRecord",
             "cuCtxRecordEvent", "cuMemGetInfo", "cuDeviceGetUuid"]
    for who in 0, 1:
        for call in calls:
            fault = {"sim": f"fail={call}:{3 if who else 2}"}
            with holders(*([fault, {}] if who == 0 else [{}, fault]), {}) as (a, b, c):
                c.well("SYNC")
                results = [a("ALLOC", "k", 10), a("ALLOC", "a", 150), a("FREE", "a"), a("SYNC"),
                           b("TAKE", "k", 10), b("ALLOC", "b", 150)]
                assert set(results) <= {0, OUT_OF_MEMORY, 1, 999}, (who, call, results)
                for one, done in ((a, results[0]), (b, results[4])):
                    assert done or one("CHECK", "k") == 0, (who, call)
                assert results[5] or b("CHECK", "b") == 0
                for one in a, b:
                    one.end()
                assert c.well("FREEMEM") == 256, (who, call)


tap.run([two_processes_peak_in_turns, devices_are_known_by_themselves, three_processes_peak_in_turns, who_uses_its_memory_steadily_is_not_stripped_again_and_again,
         what_a_stream_has_just_freed_is_lent, who_has_spilled_lends_what_it_has_idle, a_program_that_is_replaced_has_nothing_and_lends_again,
         without_lending_they_fail, what_others_would_lend_is_told_as_free,
         what_who_uses_most_of_its_memory_has_idle_is_not_told_as_free, who_does_not_lend_may_ask,
         live_memory_is_never_lent, what_lies_beside_live_memory_is_not_waited_for, only_what_is_lacking_is_given, who_has_needed_nothing_since_gives_again,
         who_takes_little_by_little_is_not_kept_waiting, the_longest_idle_is_asked_first, other_files_are_in_nobodys_way, a_stopped_process_holds_nobody_up_for_long,
         stopped_processes_are_not_waited_for_one_by_one, a_killed_process_is_not_waited_for,
         one_that_is_stopped_while_it_asks_is_in_nobodys_way,
         one_that_asked_and_was_killed_leaves_the_way_free, who_wakes_borrows, cudas_own_calls_borrow_too,
         a_program_without_a_pool_borrows, each_call_fails_in_turn])
