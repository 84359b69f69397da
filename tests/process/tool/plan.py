#!/usr/bin/env python3
"""`vpool plan`, and replays of what it wrote, on programs small enough to be worked out by hand. Reports in TAP.

usage: plan.py VPOOL
"""
# SPDX-License-Identifier: Apache-2.0
import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "../../common"))
import tap

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "../../traces"))
import marked
import minimalloc

VPOOL = os.path.realpath(sys.argv[1])
ENV = {k: v for k, v in os.environ.items() if not k.startswith("VPOOL_")}
FOLDER = tempfile.TemporaryDirectory()
MIB = 1 << 20
OTHER = 1 << 48  # of an id: the device 1


def path(name):
    return os.path.join(FOLDER.name, name)


def trace(name, rows):
    """Writes (op, id, MiB, stream, us), or (mark,)."""
    with open(path(name), "w") as out:
        out.write("op,id,size,stream,us\n")
        for i, row in enumerate(rows):
            out.write(f"m,{row[0]},1,0,{i}\n" if len(row) == 1 else f"{row[0]},{row[1]},{int(row[2] * MIB)},{row[3]},{i}\n")
    return path(name)


def vpool(*args, **more):
    return subprocess.run([VPOOL, *map(str, args)], env=ENV, capture_output=True, text=True, timeout=300, **more)


def plan(*args):
    done = vpool("plan", "--json", *args)
    assert done.returncode == 0 and not done.stderr, done
    return json.loads(done.stdout)


def replay(*args):
    done = vpool("replay", "--policy", "stalloc", "--json", *args)
    assert done.returncode == 0 and not done.stderr, done
    return json.loads(done.stdout)


def text_of(file):
    with open(file) as content:
        return content.read()


# Three blocks, of which two share an address; 12 MiB are alive at once. And 100 bytes.
ROWS = [("a", 0, 4, 0), ("a", 1, 8, 1), ("f", 0, 0, 0), ("a", 2, 4, 1), ("a", 3, 100 / MIB, 0), ("f", 3, 0, 0), ("f", 1, 0, 0), ("f", 2, 0, 0)]
TWO = ROWS + [("a", OTHER, 2, 2), ("f", OTHER, 0, 2)]
TINY = 512


def a_row_for_each_trace_and_device():
    one = plan(trace("one.csv", ROWS))
    assert (one["trace"], one["device"], one["blocks"], one["phases"]) == ("one", 0, 4, 0), one
    assert one["lower_bound"] == one["peak"] == 12 * MIB + TINY and one["ratio"] == 1 and one["seconds"] < 10, one
    both = plan(trace("two.csv", TWO))
    assert [(each["device"], each["blocks"], each["peak"]) for each in both] == [(0, 4, 12 * MIB + TINY), (1, 1, 2 * MIB)], both
    assert len(plan(path("one.csv"), path("two.csv"))) == 3
    rows = vpool("plan", path("one.csv"), path("two.csv")).stdout.splitlines()
    assert len(rows) == 4 and rows[1].split()[:7] == ["one", "0", "vpool", "4", "12.000", "12.000", "1.0000"], rows
    assert plan(trace("none.csv", []))["blocks"] == 0


def published_plans_leave_out_what_has_a_pool_of_its_own():
    one = plan("--published", trace("one.csv", ROWS))
    assert one["blocks"] == 3 and one["peak"] == 12 * MIB and one["planner"] == "stalloc", one
    assert "static part" in vpool("plan", "--published", path("one.csv")).stdout
    marked = trace("marked.csv", [("begin",), *ROWS[:3], ("middle",), *ROWS[3:]])
    assert plan("--published", marked)["phases"] == 2
    assert "static part" not in vpool("plan", "--published", marked).stdout


def a_plan_is_a_file_of_lines():
    file = path("plan")
    plan("-o", file, trace("a%,b.csv", [("for ward",), *TWO[:4], ("back",), *TWO[4:]]))
    lines = text_of(file).splitlines()
    assert lines[0] == "vpool-plan,1" and lines[1].startswith("made,") and lines[1].endswith(",a%25%2cb"), lines
    assert lines[2] == "planner,vpool" and lines[3] == f"device,0,4,{12 * MIB + TINY},{12 * MIB + TINY}", lines
    assert lines[4] == "p,0,for%20ward" and lines[8] == "p,3,back" and lines[-1] == "end", lines
    requests = [line.split(",") for line in lines if line.startswith("r,")]
    assert [(int(size), int(stream)) for _, size, stream, _ in requests] == [(4 * MIB, 0), (8 * MIB, 1), (4 * MIB, 1), (TINY, 0), (2 * MIB, 0)], lines
    assert stat.S_IMODE(os.stat(file).st_mode) == 0o600
    # A file that others could read is replaced by one that they cannot.
    os.chmod(file, 0o644)
    plan("-o", file, path("one.csv"))
    assert stat.S_IMODE(os.stat(file).st_mode) == 0o600 and [name for name in os.listdir(FOLDER.name) if "tmp" in name] == []
    plan("-o", path("plan.gz"), path("one.csv"))
    assert replay("--plan", path("plan.gz"), path("one.csv"))["placed"] == 3


def whole_or_not_at_all():
    file = path("kept")
    plan("-o", file, path("one.csv"))
    before = text_of(file)
    assert vpool("plan", "-o", file, path("missing.csv")).returncode == 1 and text_of(file) == before
    assert vpool("plan", "-o", path("no folder/plan"), path("one.csv")).returncode == 1
    with open("/dev/full", "w") as full:
        assert subprocess.run([VPOOL, "plan", "-o", "/dev/full", path("one.csv")], env=ENV, stdout=full, stderr=full).returncode == 1
    # Killed while it plans, it leaves what was there.
    # One of the problems that take the planner more than a minute.
    hard = minimalloc.write(FOLDER.name)["E"]
    running = subprocess.Popen([VPOOL, "plan", "--seconds", "60", "-o", file, hard], env=ENV, stdout=subprocess.DEVNULL)
    time.sleep(0.3)
    running.send_signal(signal.SIGTERM)
    running.wait()
    assert text_of(file) == before and [name for name in os.listdir(FOLDER.name) if "tmp" in name] == []


def requests_lie_where_they_were_planned():
    one = replay(path("one.csv"))
    # The places, and a segment for what is tiny.
    assert one["plan"] == "static part" and (one["placed"], one["missed"]) == (3, 0), one
    assert one["peak_held_bytes"] == 14 * MIB and one["peak_live_bytes"] == 12 * MIB + 100, one
    assert replay(path("marked.csv"))["plan"] == "by phases"
    plan("-o", path("plan"), path("one.csv"))
    given = replay("--plan", path("plan"), "--repeat", "3", path("one.csv"))
    assert given["plan"] == "of a file" and (given["placed"], given["missed"]) == (9, 0), given
    row = vpool("replay", "--policy", "stalloc", path("one.csv")).stdout.splitlines()[1]
    assert row.endswith("plan static part: 3 placed, 0 missed"), row
    assert [each["placed"] for each in replay(path("two.csv"))] == [3, 1]


def what_the_cache_serves_is_held_too():
    plan("-o", path("plan"), path("one.csv"))
    other = trace("other.csv", [("a", 0, 4, 0), ("a", 1, 30, 1), ("f", 0, 0, 0), ("a", 2, 4, 1), ("f", 1, 0, 0), ("f", 2, 0, 0)])
    result = replay("--plan", path("plan"), other)
    assert (result["placed"], result["missed"]) == (2, 1) and result["peak_held_bytes"] == (14 + 30) * MIB, result
    # A plan of a device that is not in it places nothing.
    plan("-o", path("plan"), path("two.csv"))
    third = trace("third.csv", [("a", 2 * OTHER, 4, 0), ("f", 2 * OTHER, 0, 0)])
    assert replay("--plan", path("plan"), third)["placed"] == 0


def a_damaged_plan_is_told_in_one_line():
    plan("-o", path("plan"), path("one.csv"))
    whole = text_of(path("plan"))
    lines = whole.splitlines(keepends=True)
    request = next(i for i, line in enumerate(lines) if line.startswith("r,"))

    def with_line(i, line):
        return "".join(lines[:i] + [line] + lines[i + 1:])
    for text, said in (("", "cut off"), (whole[:-1], "cut off"), ("".join(lines[:-1]), "no end"), (whole + "end\n", "behind the end"),
                       (with_line(0, "vpool-plan,3\n"), "version 3"), (with_line(0, "vpool-plan,x\n"), "the header"),
                       (with_line(2, "planner,none\n"), "planner"), (with_line(request, ""), "requests"), (with_line(request, lines[request] * 2), "more than"),
                       (with_line(request, "r,1,0,0\n"), "whole 512"), (with_line(request, "r,512,0,99999999999\n"), "not within"),
                       (with_line(request, "r,-512,0,0\n"), "whole 512"), (with_line(request, "r,512,0\n"), "expected r"),
                       (with_line(request, "x,1\n"), "expected device"), (with_line(request, "r,512,0,0\0\n"), "zero byte"),
                       (with_line(3, "device,0,1\n"), "expected device"), (with_line(4, "p,7,x\n" + lines[4]), "expected p"),
                       (with_line(3, lines[3] * 2), "requests"), (with_line(request, "m,module:x,0,512\n" + lines[request]), "version 1"),
                       ("vpool-plan,2\n" + with_line(request, "m,x,512,0\n")[len(lines[0]):], "expected m")):
        with open(path("damaged"), "w") as out:
            out.write(text)
        done = vpool("replay", "--policy", "stalloc", "--plan", path("damaged"), path("one.csv"))
        assert done.returncode == 1 and not done.stdout and done.stderr.count("\n") == 1 and said in done.stderr, (text, said, done)
    done = vpool("replay", "--policy", "stalloc", "--plan", path("nowhere"), path("one.csv"))
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and "nowhere" in done.stderr, done


def a_replay_obeys_VPOOL_PLAN_under_stalloc_too():
    ENV["VPOOL_PLAN"] = path("named.plan")
    try:
        vpool("plan", "-o", path("named.plan"), path("one.csv"))
        for policies in "stalloc", "vpool,stalloc":
            done = vpool("replay", "--policy", policies, path("one.csv"))
            assert "plan of a file" in done.stdout.splitlines()[-1] and not done.stderr, done
        with open(path("named.plan"), "w") as out:
            out.write("vpool-plan,9\n")
        done = vpool("replay", "--policy", "stalloc", path("one.csv"))
        assert done.returncode == 0 and done.stderr.count("\n") == 1 and "version 9" in done.stderr and "plan of a file" not in done.stdout, done
    finally:
        del ENV["VPOOL_PLAN"]


# Experts ask for 1 and 3, then for 3 and 1 MiB, which live to the next phase: what lies there until then is left to others.
def expert_rows(sizes, first):
    rows = [("b", "step:%d" % first, 0), ("b", "phase:forward", 1), ("a", 10 + first, 8, 0), ("b", "module:experts", 2)]
    rows += [("a", 20 + 10 * first + i, size, 0) for i, size in enumerate(sizes)]
    rows += [("e", "", 2), ("f", 10 + first, 0, 0), ("e", "", 1), ("b", "phase:backward", 1), ("a", 100 + first, 2, 0)]
    rows += [("b", "module:experts", 2)] + [("f", 20 + 10 * first + i, 0, 0) for i in range(len(sizes))]
    return rows + [("e", "", 2), ("f", 100 + first, 0, 0), ("e", "", 1), ("e", "", 0)]


def ranges(name, rows):
    with open(path(name), "w") as out:
        out.write("op,id,size,stream,us\n")
        for i, row in enumerate(rows):
            out.write(f"{row[0]},{row[1]},1,{row[2]},{i}\n" if row[0] in "be" else f"{row[0]},{row[1]},{int(row[2] * MIB)},{row[3]},{i}\n")
    return path(name)


def modules_that_vary_have_no_places_but_room():
    base = [("a", 1, 4, 0)]
    file = ranges("experts.csv", base + expert_rows((1, 3), 0) + expert_rows((3, 1), 1))
    one = plan("--published", "-o", path("experts.plan"), file)
    assert (one["blocks"], one["modules"], one["module_requests"], one["static_part"]) == (5, 1, 4, False), one
    assert one["peak"] == 12 * MIB and one["phases"] > 4, one
    row = vpool("plan", "--published", file).stdout.splitlines()[1]
    assert row.endswith("and 4 requests of 1 modules") and "static part" not in row, row
    lines = text_of(path("experts.plan")).splitlines()
    assert lines[0] == "vpool-plan,2" and len([line for line in lines if line.startswith("m,module:experts")]) == 4, lines
    # In the forward pass 12 MiB are in use by others, and the cache serves, with a segment for large and one for small requests.
    result = replay("--plan", path("experts.plan"), file)
    assert (result["placed"], result["missed"], result["module_placed"], result["module_missed"]) == (5, 4, 0, 4), result
    assert not result["static_part"] and result["peak_held_bytes"] == (12 + 20 + 2) * MIB, result
    own = vpool("replay", "--policy", "stalloc", file).stdout.splitlines()[1]
    assert own.endswith("plan by phases and modules: 5 placed, 4 missed, of modules 0 and 4"), own
    # Where the plan leaves room, it is theirs; and other sizes find it as well.
    roomy = [("a", 1, 16, 0), ("f", 1, 0, 0)]
    plan("--published", "-o", path("experts.plan"), ranges("roomy.csv", roomy + expert_rows((1, 3), 0) + expert_rows((3, 1), 1)))
    for sizes in ((1, 3), (3, 1)), ((2, 2), (1, 2)), ((4, 4), (1, 1)):
        result = replay("--plan", path("experts.plan"), ranges("other.csv", roomy + expert_rows(sizes[0], 0) + expert_rows(sizes[1], 1)))
        assert (result["missed"], result["module_placed"]) == (0, 4) and result["peak_held_bytes"] == 16 * MIB, (sizes, result)


def modules_that_do_not_vary_are_planned():
    file = ranges("alike.csv", [("a", 1, 4, 0)] + expert_rows((1, 3), 0) + expert_rows((1, 3), 1))
    one = plan("--published", file)
    assert (one["blocks"], one["modules"], one["module_requests"]) == (9, 0, 0), one
    assert replay(file)["plan"] == "by phases"


def a_run_that_is_longer_repeats_the_last_step():
    plan("--published", "-o", path("train.plan"), marked_trace("train", 3))
    result = replay("--plan", path("train.plan"), marked_trace("train", 20))
    assert result["missed"] == 0 and result["placed"] > 1000, result
    bare = replay("--plan", path("train.plan"), marked_trace("train", 3, True))
    assert bare["missed"] == 0, bare
    assert plan("--published", marked_trace("train", 3, True))["static_part"]


def marked_trace(name, steps, bare=False):
    file = path(f"{name}-{steps}-{bare}.csv")
    marked.write(name, 1, file, steps, bare)
    return file


def more_than_any_device_has_is_told():
    for sizes in [2 ** 64 - 1], [2 ** 62 - 512] * 5:
        with open(path("huge.csv"), "w") as out:
            out.write("op,id,size,stream,us\n" + "".join(f"a,{i},{size},0,{i}\n" for i, size in enumerate(sizes)))
        for command in ["plan"], ["plan", "--published"], ["replay", "--policy", "stalloc"]:
            done = vpool(*command, path("huge.csv"))
            assert done.returncode == 1 and done.stderr.count("\n") == 1 and "more bytes than any device" in done.stderr, done


def wrong_usage_gets_one_line():
    one = path("one.csv")
    for args in [], ["--seconds", "x", one], ["--seconds", "-1", one], ["--seconds", "1e9", one], ["--capacity", "x", one], ["--capacity", "0", one], \
            ["-o", path("p"), one, one], ["--nothing", one], ["-o"]:
        done = vpool("plan", *args)
        assert done.returncode == 2 and not done.stdout and done.stderr.count("\n") == 1, (args, done)
    done = vpool("replay", "--plan", path("plan"), one)
    assert done.returncode == 2 and not done.stdout and done.stderr.count("\n") == 1 and "stalloc" in done.stderr, done
    assert "usage: vpool plan [OPTION…] TRACE…" in vpool("plan", "--help").stdout and "vpool plan" in vpool("help", "plan").stdout


tap.run([a_row_for_each_trace_and_device, more_than_any_device_has_is_told, published_plans_leave_out_what_has_a_pool_of_its_own, a_plan_is_a_file_of_lines, requests_lie_where_they_were_planned,
         whole_or_not_at_all, what_the_cache_serves_is_held_too, a_damaged_plan_is_told_in_one_line, a_replay_obeys_VPOOL_PLAN_under_stalloc_too, modules_that_vary_have_no_places_but_room,
         modules_that_do_not_vary_are_planned, a_run_that_is_longer_repeats_the_last_step, wrong_usage_gets_one_line])
