#!/usr/bin/env python3
"""A program that marks its modules, recorded, planned, and run again by STAlloc's places: on the simulated driver. Reports in TAP.

usage: plan_live.py VPOOL
From the environment: TEST_PRELOAD (a sanitizer's runtime may stand in it before libvpool.so).
"""
# SPDX-License-Identifier: Apache-2.0
import ctypes
import json
import os
import random
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.realpath(__file__))
MIB = 1 << 20


class Memory:
    """Blocks of CUDA's stream-ordered memory."""

    def __init__(self):
        self.cuda = ctypes.CDLL("libcuda.so.1")
        context, self.stream = ctypes.c_void_p(), ctypes.c_void_p()
        self.must("cuInit", 0)
        self.must("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.must("cuCtxSetCurrent", context)
        self.must("cuStreamCreate", ctypes.byref(self.stream), 1)

    def must(self, name, *arguments):
        result = getattr(self.cuda, name)(*arguments)
        assert not result, (name, result)

    def alloc(self, size):
        block = ctypes.c_uint64()
        self.must("cuMemAllocAsync", ctypes.byref(block), ctypes.c_size_t(size), self.stream)
        return block

    def free(self, block):
        self.must("cuMemFreeAsync", block, self.stream)


class Attributes(ctypes.Structure):
    """What a range of NVTX's has, by its version 3."""
    _fields_ = [("version", ctypes.c_uint16), ("size", ctypes.c_uint16), ("colour", ctypes.c_uint32 * 5), ("payload", ctypes.c_uint64),
                ("kind", ctypes.c_int32), ("message", ctypes.c_char_p)]


def nvtx_module():
    """Modules marked by what the library attaches to NVTX, as ranges of its default domain."""
    functions, asked = (ctypes.c_void_p * 16)(), ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
    slots = (ctypes.c_void_p * 16)(*(ctypes.addressof(functions) + i * ctypes.sizeof(ctypes.c_void_p) for i in range(16)))

    @asked
    def table(module, out, size):
        if module != 5:
            return 0
        ctypes.c_void_p.from_address(out).value = ctypes.addressof(slots)
        ctypes.c_uint.from_address(size).value = 16
        return 1

    class Callbacks(ctypes.Structure):
        _fields_ = [("size", ctypes.c_size_t), ("table", asked)]
    callbacks = Callbacks(ctypes.sizeof(Callbacks), table)
    exported = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32)(lambda number: ctypes.addressof(callbacks) if number == 1 else None)
    assert ctypes.CDLL(None).InitializeInjectionNvtx2(exported) == 1
    push = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(functions[4])
    pop = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(functions[5])

    def module(name, function):
        def run():
            attributes = Attributes(version=3, size=ctypes.sizeof(Attributes), kind=1, message=f"module:{name}".encode())
            assert push(None, ctypes.byref(attributes)) == 0
            function()
            assert pop(None) == 0
        return run
    return module


def program(seed, steps, nvtx=False):
    """Layers of the same sizes in each step; and experts, whose sizes are drawn. Marked as the PyTorch examples are."""
    sys.path.insert(0, os.path.join(HERE, "../../../examples"))
    import marks
    module = nvtx_module() if nvtx else marks.module
    memory, drawn, saved = Memory(), random.Random(seed), []

    def temporary(size):
        memory.free(memory.alloc(size))

    def attention():
        temporary(6 * MIB)
        saved.append(memory.alloc(2 * MIB))

    def experts():
        saved.append(memory.alloc(MIB + 512 * drawn.randrange(1, 4096)))

    def experts_back():
        temporary(MIB + 512 * drawn.randrange(1, 4096))
        memory.free(saved.pop())
    weights = [memory.alloc(8 * MIB) for _ in range(3)]
    temporary(40 * MIB)
    for step in range(steps):
        marks.begin(f"step:{step}")
        marks.begin("phase:forward")
        for layer in range(3):
            module(f"{layer}.attention", attention)()
            module(f"{layer}.experts", experts)()
        marks.begin("phase:backward")
        for layer in reversed(range(3)):
            module(f"{layer}.experts", experts_back)()
            memory.free(saved.pop())
        if nvtx:
            temporary(39 * MIB)  # by nobody's module
    for block in weights:
        memory.free(block)


if sys.argv[1] == "--program":
    program(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:] == ["nvtx"])
    sys.exit()

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(HERE, "../../common"))
import tap

VPOOL = os.path.realpath(sys.argv[1])
ENV = {k: v for k, v in os.environ.items() if not k.startswith("VPOOL_")}
RUNTIMES = os.environ.get("TEST_PRELOAD", "").split(":")[:-1]
if RUNTIMES:
    ENV["LD_PRELOAD"] = ":".join(RUNTIMES)
    ENV["ASAN_OPTIONS"] = ENV.get("ASAN_OPTIONS", "") + ":detect_leaks=0"
FOLDER = tempfile.TemporaryDirectory()


def path(name):
    return os.path.join(FOLDER.name, name)


def run(*options, seed=1, steps=4, marked=()):
    """What the device's statistics were, and what was said."""
    done = subprocess.run([VPOOL, "run", "--sim=1G", "--stats=" + path("stats"), *options, "--", sys.executable, os.path.realpath(__file__),
                           "--program", str(seed), str(steps), *marked], env=ENV, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and not done.stdout, done
    with open(path("stats")) as file:
        return json.load(file)["devices"][0], done.stderr


def plan(marked=()):
    run("--trace=" + path("trace.csv"), marked=marked)
    done = subprocess.run([VPOOL, "plan", "--published", "--json", "-o", path("plan"), path("trace.csv")], env=ENV, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def the_same_run_lies_where_it_was_planned():
    one = plan()
    assert one["modules"] == 3 and one["module_requests"] == 24 and one["blocks"] == 4 + 4 * 6, one
    figures, said = run("--policy", "stalloc", "--plan", path("plan"))
    # The experts find room beside the layers, under the peak that the first block made.
    assert figures["peak_held_bytes"] == one["peak"] == 64 * MIB and not said, (figures, said)
    assert run("--policy", "bfc")[0]["peak_held_bytes"] > 64 * MIB


def so_does_a_longer_one_and_one_with_other_experts():
    plan()
    for seed, steps in (1, 12), (2, 4), (3, 20):
        figures, said = run("--policy", "stalloc", "--plan", path("plan"), seed=seed, steps=steps)
        assert figures["peak_held_bytes"] == 64 * MIB and not said, (seed, figures, said)


def modules_end_where_nvtx_says_so():
    assert plan(["nvtx"])["module_requests"] == 24
    figures, said = run("--policy", "stalloc", "--plan", path("plan"), marked=["nvtx"])
    assert figures["peak_held_bytes"] == 64 * MIB and not said, (figures, said)


def the_variable_names_it_as_well():
    plan()
    ENV["VPOOL_POLICY"], ENV["VPOOL_PLAN"] = "stalloc", path("plan")
    try:
        assert run()[0]["peak_held_bytes"] == 64 * MIB
    finally:
        del ENV["VPOOL_POLICY"], ENV["VPOOL_PLAN"]


def a_plan_that_is_none_is_one_line_and_the_cache_serves():
    for name, text in ("cut", "vpool-plan,2\nmade,x,y\n"), ("newer", "vpool-plan,9\n"), ("else", "PK"):
        with open(path(name), "w") as out:
            out.write(text)
    for name in "cut", "newer", "else", "missing":
        figures, said = run("--policy", "stalloc", "--plan", path(name))
        assert said.count("\n") == 1 and "VPOOL_PLAN" in said and name in said and figures["peak_held_bytes"] > 64 * MIB, (name, said)


def the_examples_compile_and_mark_nothing_without_the_library():
    folder = os.path.join(HERE, "../../../examples")
    for name in sorted(os.listdir(folder)):
        if name.endswith(".py"):
            with open(os.path.join(folder, name), encoding="utf-8") as source:
                compile(source.read(), name, "exec")
    done = subprocess.run([sys.executable, "-c", "import marks; marks.begin('step:0'); assert marks.module('all', len) is len; marks.follow('x', None)"],
                          env={**ENV, "PYTHONPATH": folder, "VPOOL_TRACE": path("none.csv")}, capture_output=True, text=True)
    assert done.returncode == 0 and not done.stdout + done.stderr, done


tap.run([the_same_run_lies_where_it_was_planned, so_does_a_longer_one_and_one_with_other_experts,
         modules_end_where_nvtx_says_so, the_variable_names_it_as_well,
         a_plan_that_is_none_is_one_line_and_the_cache_serves,
         the_examples_compile_and_mark_nothing_without_the_library])
