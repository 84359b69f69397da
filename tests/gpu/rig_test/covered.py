#!/usr/bin/env python3
"""Tests of how scripts/bench reads from a trace how much its stacks name, and what they cost. No GPU is needed.

usage: covered.py
"""
# SPDX-License-Identifier: Apache-2.0
import os
import sys
import tempfile

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, folder) for folder in ("..", "../../common")]

import tap
from rig import covered
from rig.rows import Row
from rig.runner import Run

MIB = 1 << 20
# Stacks: 1 a line, 3 an operator in the backward pass, 4 the same code in a thread that ought to have lines, 5 no torch.
HEAD = """op,id,size,stream,us
l,1,abcd,/x/libtorch_cuda.so,0
l,2,abcd,/x/libother.so,0
n,1,p,12:step:/x/tra,0
+,,,in.py,0
n,2,c,1:0x10,0
n,3,t,thread pt_autograd_0: no Python frame,0
n,4,t,thread python3: no Python frame,0
n,5,c,2:0x10,0
s,1,0,1,0
s,2,0,3,0
s,3,2,2,0
s,6,0,4,0
s,4,6,2,0
s,5,2,5,0
"""


def coverage(lines):
    with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
        file.write(HEAD + lines)
        file.flush()
        return covered.Coverage(file.name)


def what_is_alive_at_the_peak_is_told():
    found = coverage(f"a,1,{60 * MIB},0,1,1\na,2,{30 * MIB},0,2,3\na,3,{9 * MIB},0,3,4\na,4,1000,0,4,0\nf,1,0,0,5\n"
                     f"a,5,{20 * MIB},0,6,1\n")
    assert found.peak == 99 * MIB + 1000 and found.at_peak[covered.LINE] == 60 * MIB
    assert found.at_peak[covered.OPERATOR] == 30 * MIB and found.at_peak[covered.NOTHING] == 9 * MIB
    assert abs(found.named_at_peak() - 100 * 90 / 99) < 1e-9
    assert covered.peak_goal("", found).holds is False


def a_large_block_without_a_stack_is_not_named():
    found = coverage(f"a,1,{4 * MIB},0,1,0\na,2,{4 * MIB},0,1,1\n")
    assert found.named_at_peak() == 50


def threads_of_python_are_to_have_lines():
    found = coverage(f"a,1,{999 * MIB},0,1,1\nf,1,0,0,2\na,2,{500 * MIB},0,3,3\na,3,{MIB},0,4,4\n")
    assert abs(found.of_python() - 99.9) < 1e-9 and found.nameless == {"python3": MIB}, found.nameless
    assert covered.python_goal("", found).holds
    assert not covered.python_goal("", coverage(f"a,1,{99 * MIB},0,1,1\na,3,{MIB},0,4,4\n")).holds
    # Of a backward thread, and no operator: nobody's.
    assert coverage(f"a,1,{MIB},0,1,5\n").allocated == {covered.NOTHING: MIB}


def row(*turns):
    made = Row("", [])
    made.runs = [Run("", code=0, result={"lap_ms": [[lap] for lap in laps]}) for laps in turns]
    return made


def cost_is_paired():
    goal = covered.cost_goal("", row([100, 110], [100, 100]), row([101, 100], [140, 101]))
    assert goal.holds and goal.figure.startswith("0.50 %") and "4 pairs" in goal.figure, goal.figure
    assert covered.cost_goal("", row([100]), row([103])).holds is False
    assert covered.cost_goal("", row(), row([103])).holds is None


def an_empty_trace_names_nothing():
    assert coverage("").named_at_peak() == 0 and coverage("").of_python() == 0


tap.run([what_is_alive_at_the_peak_is_told, a_large_block_without_a_stack_is_not_named, threads_of_python_are_to_have_lines,
         cost_is_paired, an_empty_trace_names_nothing])
