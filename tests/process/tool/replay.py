#!/usr/bin/env python3
"""`vpool replay` with a GPU that lags behind, on programs small enough to be worked out by hand. Reports in TAP.

usage: replay.py VPOOL
"""
# SPDX-License-Identifier: Apache-2.0
import json
import os
import resource
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "../../common"))
import tap

VPOOL = os.path.realpath(sys.argv[1])
ENV = {k: v for k, v in os.environ.items() if not k.startswith("VPOOL_")}
FOLDER = tempfile.TemporaryDirectory()
MIB = 1 << 20
FAR = 10000000
# Driver calls of such a program, together at most, in microseconds.
CALLS = 800


def trace(rows):
    """Writes (op, id, MiB, stream, us)."""
    path = os.path.join(FOLDER.name, "trace.csv")
    with open(path, "w") as out:
        out.write("op,id,size,stream,us\n")
        out.writelines(f"{op},{block},{mib * MIB},{stream},{us}\n" for op, block, mib, stream, us in rows)
    return path


def vpool(*args, **env):
    return subprocess.run([VPOOL, "replay", *map(str, args)], env={**ENV, **env}, capture_output=True, text=True, timeout=300)


def replay(rows, *args, **env):
    done = vpool("--json", *args, trace(rows), **env)
    assert done.returncode == 0 and not done.stderr, done
    return json.loads(done.stdout)


def near(value, right):
    assert abs(value - right) <= CALLS, (value, right)


def is_ideal(result, us):
    """Without waits of the pool and without driver calls the program would take so long."""
    ideal = result["modelled_us"] - result["lost_us"] - result["lost_in_calls_us"]
    assert abs(ideal - us) < 0.01, (ideal, us)


# Ten milliseconds of work on one stream, then as many on another, which asks for as much memory as the first has just freed.
HANDED_OVER = [("a", 0, 64, 0, 0), ("f", 0, 0, 0, 10000), ("a", 1, 64, 1, 10000), ("f", 1, 0, 1, 20000)]
# Before it, both have freed: only then do frees get events that can be waited for.
KNOWN = [("a", 8, 64, 1, 0), ("f", 8, 0, 1, 0), ("a", 9, 64, 0, 0), ("f", 9, 0, 0, 0)] + HANDED_OVER


# Memory is handed over at once, and what needs it comes 10 ms later, with 80 ms of work.
LATER = KNOWN[:5] + [("f", 0, 0, 0, 10000), ("a", 1, 64, 1, 10000), ("a", 2, 1, 1, 10000), ("f", 2, 0, 1, 90000), ("f", 1, 0, 1, 90000)]


def waits_of_the_gpu_cost_no_time_while_it_has_work():
    # The host needs 1.25 ms for each: the first kernel begins then, and the second is queued at 2.5. Beside the first or behind it, both are over 20 ms later.
    for mode, held, waits in ("early", 64, 1), ("late", 128, 0), ("never", 128, 0):
        result = replay(KNOWN, "--lag", FAR, VPOOL_WAIT=mode)
        assert result["peak_held_bytes"] == held * MIB and result["driver_calls"]["wait"] == waits, result
        assert result["lost_us"] == 0 and result["waits_host"] == 0, result
        is_ideal(result, 1250 + 20000)


def late_waits_where_the_device_is_full():
    late = replay(KNOWN, "--lag", FAR, "--capacity", "100M", VPOOL_WAIT="late")
    assert late["driver_calls"]["wait"] == 1 and late["ooms"] == 0 and late["lost_us"] == 0, late
    assert replay(KNOWN, "--lag", FAR, "--capacity", "100M", VPOOL_WAIT="never")["ooms"] == 1


def the_host_waits_by_itself():
    # From 2.5 ms to 11.25, when the first kernel is over. The second begins late by what the driver calls between take.
    result = replay(KNOWN, "--lag", FAR)
    assert result["peak_held_bytes"] == 64 * MIB and result["driver_calls"]["wait"] == 0, result
    assert result["waits_host"] == 1 and result["waits_fruitless"] == 0, result
    near(result["waits_host_us"], 8750)
    near(result["lost_us"], 0)
    is_ideal(result, 1250 + 20000)


def a_wait_of_the_host_may_cost_time():
    # Asked for at 1.25 ms, had at 11.25, and the kernel is ready 10 ms later: so long the GPU stands still. Without the wait it is ready at 11.25.
    result = replay(LATER, "--lag", FAR)
    assert result["peak_held_bytes"] < 80 * MIB and result["waits_host"] == 1, result
    near(result["waits_host_us"], 10000)
    near(result["lost_us"], 10000)
    is_ideal(result, 1250 + 10000 + 80000)
    for mode in "early", "late":
        other = replay(LATER, "--lag", FAR, VPOOL_WAIT=mode)
        assert other["waits_host"] == 0 and other["lost_us"] == 0, other
        is_ideal(other, 1250 + 10000 + 80000)


def waits_end_where_they_have_cost_enough():
    # Two streams by turns, each with 128 MiB more than the other had, in small handles: while they are made the GPU has nothing to do.
    rows = [("a", 100, 64, 1, 0), ("f", 100, 0, 1, 0), ("a", 101, 64, 0, 0), ("f", 101, 0, 0, 0)]
    for i in range(60):
        rows += [("a", i, 256 + 128 * i, i % 2, 2000 * i), ("f", i, 0, i % 2, 2000 * (i + 1))]
    result = replay(rows, "--lag", FAR, "--handle", "2M")
    assert 10 < result["waits_host"] < 50 and result["peak_held_bytes"] > 1.5 * result["peak_live_bytes"], result
    # What the library takes for lost is what the model says: and for 5 ms each a 16th more is held, an eighth, and so on.
    assert 0 <= result["lost_us"] - 50000 - result["modelled_us"] / 100 <= 6 * 5000, result


def who_lags_little_needs_no_wait():
    # The host waits until 1 ms is left of the first kernel, and needs 1.25 ms then.
    for mode in "auto", "early", "never":
        near_by = replay(KNOWN, "--lag", 1000, VPOOL_WAIT=mode)
        assert near_by["peak_held_bytes"] == 64 * MIB, near_by
        is_ideal(near_by, 1250 + 10000 + 250 + 10000)
        assert near_by["lost_us"] == 0, near_by


def the_gpu_is_kept_at_work():
    # Ten kernels of 10 ms, each of which the host has ready before the last is over.
    rows = [("a", i, 1, 0, 10000 * i) for i in range(10)] + [("f", 0, 0, 0, 100000)]
    for lag in 1, 5000, FAR:
        result = replay(rows, "--lag", lag)
        assert result["lag_us"] == lag and result["lost_us"] == 0, result
        is_ideal(result, 1250 + 100000)


def work_replaces_the_times():
    # The first kernel is queued after an eighth of it; from then on there is work for four times as long.
    numbered = [(*row[:4], i) for i, row in enumerate(HANDED_OVER)]
    for rows in HANDED_OVER, numbered:
        is_ideal(replay(rows, "--lag", FAR, "--work", 80000), 330000)
    # Numbers of lines are no times: 10 us each.
    is_ideal(replay(numbered, "--lag", FAR), 41.25)


def without_a_lag_no_time_passes():
    # The second stream has its own memory back, and then needs the first one's.
    rows = KNOWN + [("a", 2, 64, 1, 20000), ("a", 3, 64, 1, 20000)]

    def figures(*args, **env):
        result = replay(rows, *args, **env)
        del result["malloc_ns"], result["free_ns"]
        return result
    plain = figures()
    assert "lag_us" not in plain and "modelled_us" not in plain and "lost_us" not in plain, plain
    assert plain == figures("--lag", 0) == figures(VPOOL_WAIT="auto") == figures(VPOOL_WAIT="early") == figures("--work", 5), plain
    assert plain["driver_calls"]["wait"] == 1 and plain["peak_held_bytes"] == 128 * MIB, plain
    for mode in "late", "never":
        assert figures(VPOOL_WAIT=mode)["peak_held_bytes"] == 192 * MIB
    again = figures("--lag", 5000)
    assert again == figures("--lag", 5000), again
    for field in "modelled_us", "lost_us", "lost_in_calls_us", "waits_host", "waits_host_us", "waits_fruitless":
        assert again[field] >= 0, field


def the_end_is_as_long_as_one_likes():
    # A hundred events, of which the one that is half-way makes the only driver calls after the first. The reservation comes before all.
    rows = [("a", 0, 1, 0, 0), ("f", 0, 0, 0, 1)] * 25 + [("a", 1, 64, 0, 2), ("f", 1, 0, 0, 3)] * 25
    whole = replay(rows, "--late", 100)
    assert whole["late_events"] == 100 and 0.9 * whole["driver_us"] < whole["late_driver_us"] <= whole["driver_us"], whole
    for percent, events in (50, 50), (49, 49), (None, 33):
        result = replay(rows, *(["--late", percent] if percent else []))
        assert result["late_events"] == events and (result["late_driver_calls"] > 0) == (percent == 50), result
    assert 0 < whole["longest_us"] <= whole["driver_us"], whole


def the_table_has_a_column_more():
    path = trace(LATER)
    plain, lagging = vpool(path).stdout.splitlines(), vpool("--lag", FAR, path).stdout.splitlines()
    assert plain[0] + "  lost %" == lagging[0] and len(lagging[1].split()) == len(plain[1].split()) + 1, (plain, lagging)
    # Ten milliseconds of 91.25.
    assert 10.9 < float(lagging[1].split()[-1]) < 12, lagging


def a_trace_of_few_events_has_no_late_calls():
    """A third of two events is none."""
    for rows, args in ([("a", 1, 64, 0, 0)], []), (HANDED_OVER, ["--late", 20]):
        result = replay(rows, *args)
        assert result["driver_calls"]["create"] and result["late_events"] == 0, result
        assert result["late_driver_calls"] == 0 and result["late_driver_us"] == 0, result


def wrong_values_get_one_line():
    path = trace(HANDED_OVER)
    for args in ["--capacity", "1K"], ["--capacity", "65T"], ["--lag", "x"], ["--lag", "-1"], ["--lag", ""], ["--lag", "5ms"], ["--lag", " 5"], ["--lag", "10000001"], ["--work", "x"], \
            ["--work", "99999999999999999999"], ["--lag", "5", "--gpu"], ["--late", "0"], ["--late", "101"], ["--late", "5%"], \
            ["--handle", "1"], ["--handle", "63K"], ["--handle", "1025M"], ["--handle", "x"], ["--handle", ""], ["--lag"]:
        done = vpool(*args, *([path] if args != ["--lag"] else []))
        assert done.returncode == 2 and not done.stdout and done.stderr.count("\n") == 1, (args, done)


def a_wrong_option_is_told_of():
    path = trace(HANDED_OVER)
    plain, wrong = vpool("--json", path), vpool("--json", path, VPOOL_WAIT="nevr", VPOOL_HANDEL="2M")
    assert not plain.stderr and wrong.returncode == 0, wrong
    assert wrong.stderr.splitlines() == ["vpool: VPOOL_WAIT=nevr is not valid (allowed: auto, early, late, never); using auto",
                                         "vpool: VPOOL_HANDEL is not an option of vpool; did you mean VPOOL_HANDLE?"], wrong.stderr


def settings_for_programs_are_not_the_replays():
    """VPOOL_SIM may be set for programs on the simulated driver."""
    def figures(*args, **env):
        result = replay(KNOWN, *args, **env)
        return result["peak_held_bytes"], result["ooms"], result["driver_calls"]
    assert figures() == figures(VPOOL_SIM="capacity=32M,devices=2,lazy=0,backing=bytes"), "on the replay's own device"
    assert figures("--capacity", "100M") == figures("--capacity", "100M", VPOOL_SIM="capacity=1G")
    assert figures("--capacity", "100M") == figures("--capacity", "100M", VPOOL_SIM="seed=1," * 200)
    assert figures("--capacity", "100M") != figures()


def addresses_of_bare_segments_are_told():
    path = trace(HANDED_OVER)
    assert "peak_addressed_bytes" not in vpool("--json", path).stdout
    with open(path, "a") as out:
        out.write(f"h,0,{64 * MIB},7,20000\nv,0,{300 * MIB},3,20000\nv,0,{20 * MIB},1,20001\n")
    assert json.loads(vpool("--json", path).stdout)["as_it_ran"]["peak_addressed_bytes"] == 300 * MIB
    with open(path, "a") as out:
        out.write("v,0,,1,20001\n")
    assert vpool(path).returncode == 1


def a_wrong_variable_gets_one_line():
    rows = [("a", 1, 4, 0, 0), ("f", 1, 0, 0, 1)]
    for command in ["replay"], ["report", "-o", os.path.join(FOLDER.name, "page.html")], ["export", "--rmm"]:
        for name, value, words in ("VPOOL_WAIT", "sometimes", "is not valid"), ("VPOOL_WAITS", "early", "did you mean VPOOL_WAIT?"), (
                "VPOOL_CONFIG", FOLDER.name + "/none", "No such file"):
            done = subprocess.run([VPOOL, *command, trace(rows)], env={**ENV, name: value}, capture_output=True, text=True, timeout=300)
            assert done.returncode == 0 and done.stdout and done.stderr.count("\n") == 1 and words in done.stderr, (command, done)
            assert name in done.stderr, done


def limited_addresses_are_told():
    """A limit that can be lifted is, and another is no answer about the trace. A sanitizer's runtime needs terabytes itself."""
    if os.environ.get("TEST_PRELOAD", "").split(":")[:-1]:
        return
    rows = [("a", n, 1024, 0, n) for n in range(32)]

    def limited(hard):
        done = subprocess.run([VPOOL, "replay", "--json", trace(rows)], env=ENV, capture_output=True, text=True, timeout=300,
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (8 << 30, hard)))
        return json.loads(done.stdout)["ooms"], done.stderr
    assert limited(resource.RLIM_INFINITY) == (0, ""), limited(resource.RLIM_INFINITY)
    ooms, said = limited(8 << 30)
    assert ooms and said.count("\n") == 1 and "ulimit -v" in said, (ooms, said)


tap.run([limited_addresses_are_told, a_wrong_variable_gets_one_line, waits_of_the_gpu_cost_no_time_while_it_has_work, late_waits_where_the_device_is_full, the_host_waits_by_itself,
         a_wait_of_the_host_may_cost_time, waits_end_where_they_have_cost_enough, who_lags_little_needs_no_wait,
         the_gpu_is_kept_at_work, work_replaces_the_times, without_a_lag_no_time_passes, the_end_is_as_long_as_one_likes,
         the_table_has_a_column_more,
         wrong_values_get_one_line, a_wrong_option_is_told_of, settings_for_programs_are_not_the_replays,
         addresses_of_bare_segments_are_told, a_trace_of_few_events_has_no_late_calls])
