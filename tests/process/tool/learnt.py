#!/usr/bin/env python3
"""`vpool plan show` and `forget`, what `vpool doctor` says of plans, and those of a replay: of files written here. Reports in TAP.

usage: learnt.py VPOOL
"""
# SPDX-License-Identifier: Apache-2.0
import json
import os
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "../../common"))
import tap

VPOOL = os.path.realpath(sys.argv[1])
MIB, GIB = 1 << 20, 1 << 30
CACHE = tempfile.TemporaryDirectory()
PLANS = os.path.join(CACHE.name, "vpool/plans")
ENV = {k: v for k, v in os.environ.items() if not k.startswith("VPOOL_")} | {"XDG_CACHE_HOME": CACHE.name, "HOME": CACHE.name}


def fnv(data):
    value = 0xcbf29ce484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001b3 % (1 << 64)
    return value


def text_of(program="train.py", key=0x1234, devices=(0,), version=1):
    lines = [f"vpool-learnt,{version}", f"made,0.1.0,{program}", f"key,{key:016x}"]
    for device in devices:
        lines += [f"device,{device},NVIDIA%20H200,{140 * GIB},13000,{2 * MIB}", f"peak,{100 * MIB},{102 * MIB},7",
                  f"h,large,0,{8 * MIB},3,0", f"h,large,{24 * MIB},{2 * MIB},1,1", f"h,large,{64 * MIB},{8 * MIB},2,2",
                  f"s,{8 * MIB},0,0", f"s,{4 * MIB},{8 * MIB},1", "q,0-1,0"]
    text = "".join(line + "\n" for line in lines)
    return text + f"end,{fnv(text.encode()):016x}\n"


def path(name):
    return os.path.join(PLANS, name)


def write(name, text=None, mode=0o600):
    os.makedirs(PLANS, mode=0o700, exist_ok=True)
    with open(path(name), "w") as out:
        out.write(text_of() if text is None else text)
    os.chmod(path(name), mode)
    return path(name)


def clear():
    for name in os.listdir(PLANS) if os.path.isdir(PLANS) else []:
        os.unlink(path(name))


def vpool(*args, **variables):
    return subprocess.run([VPOOL, *map(str, args)], env=ENV | variables, capture_output=True, text=True, timeout=300)


def show(*args):
    done = vpool("plan", "show", *args)
    assert done.returncode == 0 and not done.stderr, done
    return done.stdout


def listed():
    return {plan["plan"]: plan for plan in json.loads(show("--json"))["plans"]}


def where_there_are_none_it_says_so():
    assert show() == f"no plans in {PLANS}\n"
    assert json.loads(show("--json")) == {"folder": PLANS, "plans": []}
    assert vpool("plan", "forget", "--all").returncode == 0
    home = vpool("plan", "show", XDG_CACHE_HOME="", HOME="/nowhere")
    assert home.stdout == "no plans in /nowhere/.cache/vpool/plans\n", home


def a_row_for_each_device():
    write("one")
    write("two", text_of("serve.py", devices=(1, 3)))
    os.utime(path("two"), (time.time() - 7300, time.time() - 7300))
    rows = show().splitlines()
    assert len(rows) == 4 and rows[0].split()[:5] == ["plan", "program", "age", "KiB", "device"], rows
    assert rows[1].split()[:2] == ["one", "train.py"] and rows[1].split()[-3:] == ["100.0", "102.0", "3"], rows
    assert rows[2].split()[:4] == ["two", "serve.py", "2", "h"] and "1 NVIDIA H200, 13.0" in rows[2] and "3 NVIDIA H200" in rows[3], rows
    plans = listed()
    assert list(plans) == ["one", "two"] and 7300 <= plans["two"]["age_seconds"] < 7400, plans
    device = plans["one"]["devices"][0]
    assert plans["one"]["key"] == "0000000000001234" and plans["one"]["bytes"] == os.path.getsize(path("one")), plans
    assert (device["peak_live_bytes"], device["requests"], device["known_requests"], device["places"]) == (100 * MIB, 7, 3, 2), device
    assert device["handles"] == [{"zone": "large", "bytes": 8 * MIB, "count": 5}, {"zone": "large", "bytes": 2 * MIB, "count": 1}], device


def all_of_one():
    assert "VPOOL_PLAN=auto finds it by its key, 0000000000001234" in show(write("0000000000001234.learnt"))
    file = write("one")
    for name in "one", file:
        text = show(name)
        for wanted in (file, "for train.py, written by vpool 0.1.0", "VPOOL_PLAN=FILE uses it by its name", "140.0 GiB, driver 13.0", "5 handles of 8.0 MiB (large)", "1 handle of 2.0 MiB (large)",
                       "7 large requests (1 MiB and more), of which 3 are known; 2 places"):
            assert wanted in text, (wanted, text)
    assert json.loads(show("--json", "one"))["plans"][0]["path"] == file
    done = vpool("plan", "show", "nowhere")
    assert done.returncode == 1 and not done.stdout and done.stderr.count("\n") == 1 and "nowhere" in done.stderr, done


def what_is_wrong_with_one_is_said():
    clear()
    whole = text_of()
    write("cut", whole[:-30])
    write("changed", whole.replace("peak,1", "peak,2"))
    write("newer", text_of(version=3))
    write("open", mode=0o622)
    os.symlink(write("one"), path("link"))
    write("half.123.new")
    write("notes.txt", "mine")
    if os.geteuid() == 0:
        os.chown(write("foreign"), 1, 1)
    plans = listed()
    assert "half.123.new" not in plans and "notes.txt" not in plans, plans
    for name, said in ("cut", "cut off"), ("changed", ""), ("newer", ""), ("open", "others may write"), ("link", "link"):
        assert said in plans[name]["fault"] and plans[name]["fault"], (name, plans)
        assert any(row.startswith(name + " ") and plans[name]["fault"] in row for row in show().splitlines()), name
    assert os.geteuid() != 0 or "another user" in plans["foreign"]["fault"], plans
    assert "fault" not in plans["one"]


def a_folder_that_cannot_be_read_is_not_empty():
    file = os.path.join(CACHE.name, "file")
    with open(file, "w"):
        pass
    done = vpool("plan", "show", XDG_CACHE_HOME=file)
    assert done.returncode == 1 and not done.stdout and done.stderr.count("\n") == 1 and "Not a directory" in done.stderr, done


def forgetting_removes_plans_alone():
    clear()
    for name in "one", "two", "three":
        write(name)
    write("cut", text_of()[:-30])
    write("notes.txt", "mine")
    os.symlink(path("one"), path("link"))
    done = vpool("plan", "forget", "one", path("two"))
    assert done.returncode == 0 and done.stdout == f"forgot {path('one')}\nforgot {path('two')}\n", done
    for name in "notes.txt", "one", "link":
        done = vpool("plan", "forget", name)
        assert done.returncode == 1 and done.stderr.count("\n") == 1 and not done.stdout, done
    os.unlink(path("link"))
    assert vpool("plan", "forget", "--all").stdout.count("forgot") == 2
    assert os.listdir(PLANS) == ["notes.txt"]


def wrong_usage_gets_one_line():
    for args in ["forget"], ["forget", "--all", "x"], ["forget", "--nothing"], ["show", "--nothing"]:
        done = vpool("plan", *args)
        assert done.returncode == 2 and not done.stdout and done.stderr.count("\n") == 1, (args, done)
    for args in ["show", "--help"], ["forget", "--help"]:
        assert f"usage: vpool plan {args[0]}" in vpool("plan", *args).stdout
    assert "vpool plan forget" in vpool("plan", "--help").stdout and "vpool plan show" in vpool("help", "--man", "vpool").stdout.replace("\\-", "-")


def doctor(**variables):
    return vpool("doctor", "--sim", **variables).stdout


def line_with(text, word):
    lines = [line for line in text.splitlines() if word in line]
    assert len(lines) == 1, (word, text)
    return lines[0]


def the_doctor_tells_of_plans():
    clear()
    assert line_with(doctor(), "plans are off").startswith("--  ")
    write("one")
    write("two")
    size = f"{2 * len(text_of()) / 1024:.1f}"
    assert f"2 of {size} KiB are in {PLANS}" in line_with(doctor(), "plans are off")
    assert line_with(doctor(VPOOL_PLAN="auto"), "plans are on").startswith(f"ok  plans are on: 2 of {size} KiB in {PLANS}")
    write("two", mode=0o666)
    line = line_with(doctor(VPOOL_PLAN="auto"), "others may write")
    assert line.startswith("!!  ") and "vpool plan forget two" in line, line
    os.symlink("/etc/passwd", os.path.join(PLANS, "link.learnt"))
    line = line_with(doctor(VPOOL_PLAN="auto"), "it is a link")
    assert line.endswith(f"rm {PLANS}/link.learnt removes it") and vpool("plan", "forget", "link.learnt").returncode == 1, line
    os.remove(os.path.join(PLANS, "link.learnt"))
    os.chmod(PLANS, 0o777)
    assert line_with(doctor(), "chmod go-w").startswith("!!  ")
    os.chmod(PLANS, 0o700)
    clear()


def the_doctor_looks_at_a_named_one():
    file = write("one")
    assert "begin with " + file in line_with(doctor(VPOOL_PLAN=file), "plans are on")
    assert "writes " + path("new") in line_with(doctor(VPOOL_PLAN=path("new")), "plans are on")
    with open(file) as kept:
        assert kept.read() == text_of() and not os.path.exists(path("new")), "what it tries out leaves no plan"
    write("cut", text_of()[:-30])
    assert line_with(doctor(VPOOL_PLAN=path("cut")), "VPOOL_PLAN: ").startswith("!!  ")
    clear()
    places = write("places", "vpool-plan,1\nmade,0.1.0,a trace\nplanner,stalloc\ndevice,0,0,0,0\nend\n")
    assert line_with(doctor(VPOOL_PLAN=places, VPOOL_POLICY="stalloc"), "stalloc places by").startswith("ok  ")
    assert line_with(doctor(VPOOL_POLICY="stalloc"), "without VPOOL_PLAN").startswith("--  ")


PROGRAM = """
import ctypes
cuda, context, block = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_uint64()
assert not cuda.cuInit(0) and not cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) and not cuda.cuCtxSetCurrent(context)
for mib in range(2, 12):
    assert not cuda.cuMemAlloc_v2(ctypes.byref(block), ctypes.c_size_t(mib << 20))
"""


def the_doctor_tells_how_far_a_programs_plan_fitted():
    runtimes = os.environ.get("TEST_PRELOAD", "").split(":")[:-1]
    words = ["doctor", "--sim=1G", "--", sys.executable, "-c", PROGRAM]
    more = {"LD_PRELOAD": ":".join(runtimes), "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"} if runtimes else {}
    clear()
    for plan in "auto", path("named"):
        first, second = (vpool(*words, VPOOL_PLAN=plan, **more).stdout for _ in range(2))
        assert line_with(first, "had no plan").startswith("--  the program (process "), first
        line = line_with(second, "used its plan")
        assert line.startswith("ok  the program (process ") and "10 of 10 large requests had their places" in line, line
    assert "plan" not in line_with(vpool(*words, **more).stdout, "was served")
    clear()


def a_replay_has_a_plan_for_each_device_of_its_trace():
    sizes = {0: 8 * MIB, 3: 20 * MIB}
    trace, plan = os.path.join(CACHE.name, "two.csv"), os.path.join(CACHE.name, "two.learnt")
    with open(trace, "w") as out:
        out.write("op,id,size,stream,us\n")
        out.writelines(f"a,{device << 48 | i},{size + i * MIB},{device},{i}\n" for i in range(20) for device, size in sizes.items())
    for _ in range(2):
        done = vpool("replay", "--json", trace, VPOOL_PLAN=plan)
        assert not done.returncode and not done.stderr, done
    for result in json.loads(done.stdout):
        learnt = result["learnt"]
        assert learnt["used"] and learnt["placed"] == learnt["requests"] == 20, result
    with open(plan) as file:
        assert sorted(line.split(",")[1] for line in file if line.startswith("device,")) == ["0", "3"]


tap.run([where_there_are_none_it_says_so, a_row_for_each_device, all_of_one, what_is_wrong_with_one_is_said,
         a_folder_that_cannot_be_read_is_not_empty, forgetting_removes_plans_alone,
         wrong_usage_gets_one_line, the_doctor_tells_of_plans, the_doctor_looks_at_a_named_one,
         the_doctor_tells_how_far_a_programs_plan_fitted, a_replay_has_a_plan_for_each_device_of_its_trace])
