#!/usr/bin/env python3
"""Asks this machine's driver all that the simulated one answers as one did from which tests/unit/driver_answers.txt was
recorded, and shows the answers that differ. Prints a JSON object last."""
# SPDX-License-Identifier: Apache-2.0
import difflib
import glob
import json
import os
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

from rig.build import BuildError, call, nvcc

UNIT = os.path.join(HERE, "../unit")


def compiled(folder):
    program = os.path.join(folder, "driver_answers")
    stubs = os.path.join(os.path.dirname(nvcc()), "../lib64/stubs")
    call([nvcc(), "-o", program, *sorted(glob.glob(os.path.join(UNIT, "driver_answers*.c"))), "-L", stubs, "-lcuda"])
    return program


def main():
    with open(os.path.join(UNIT, "driver_answers.txt")) as file:
        recorded = file.read().splitlines()
    with tempfile.TemporaryDirectory() as folder:
        try:
            program = compiled(folder)
        except BuildError as problem:
            print(json.dumps({"ok": False, "error": str(problem)}))
            return 1
        answers = subprocess.run([program], stdout=subprocess.PIPE, text=True, timeout=100).stdout.splitlines()
    differ = [line for line in difflib.unified_diff(recorded, answers, "recorded", "this driver's", n=0, lineterm="")]
    print("\n".join(differ))
    print(json.dumps({"ok": not differ, "answers": len(answers), "differ": sum(line[0] == "+" for line in differ[2:])}))
    return bool(differ)


if __name__ == "__main__":
    sys.exit(main())
