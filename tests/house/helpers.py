#!/usr/bin/env python3
"""Tests of what the scripts and the CI use: the count of tests, the archive of fuzz inputs, the steps. Reports in TAP.

usage: helpers.py BUILD
"""
# SPDX-License-Identifier: Apache-2.0
import gzip
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.dont_write_bytecode = True
ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests/common"))
import tap

CORPUS = ROOT / "tests/fuzz/corpus.tar.gz"
REPORT = """<?xml version='1.0'?><testsuites>
<testsuite name="unit" errors="0"><testcase name="one"/><testcase name="two"><skipped/></testcase>
<testcase name="three"><failure/></testcase><system-out>ok 1 - one
# said before \x01
not ok 3 - three
</system-out></testsuite>
<testsuite name="crashed" errors="1"><testcase name="four"/></testsuite>
</testsuites>"""


def call(script, *arguments, timeout=None, env=None):
    return subprocess.run([sys.executable, ROOT / script, *map(str, arguments)], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=timeout, env=env)


def count(*arguments):
    return call("scripts/lib/count_tests.py", *arguments)


def tests_are_counted():
    with tempfile.TemporaryDirectory() as folder:
        build, tally = Path(folder, "build"), Path(folder, "tally")
        (build / "meson-logs").mkdir(parents=True)
        (build / "meson-logs/testlog.junit.xml").write_text(REPORT)
        assert count("add", tally, build, 1).stdout == f"==> {build}: 2 passed, 2 failed, 1 skipped\n"
        count("one", tally, "passed", "soak")
        count("one", tally, "failed", "the build")
        done = count("total", tally)
        assert done.returncode == 1 and done.stdout.splitlines() == [
            f"FAILED: {build}: unit three: # said before ?", f"FAILED: {build}: crashed ended badly", "FAILED: the build",
            "3 passed, 3 failed"], done.stdout


def a_program_that_ends_badly_behind_its_cases_is_named():
    with tempfile.TemporaryDirectory() as folder:
        build, tally = Path(folder, "build"), Path(folder, "tally")
        (build / "meson-logs").mkdir(parents=True)
        (build / "meson-logs/testlog.junit.xml").write_text(
            """<testsuites><testsuite name="leaks" errors="0"><testcase name="one"/></testsuite></testsuites>""")
        count("add", tally, build, 1)
        (build / "meson-logs/testlog.json").write_text("".join(json.dumps(test) + "\n" for test in [
            {"name": "sound", "result": "OK", "returncode": 0},
            {"name": "leaks", "result": "ERROR", "returncode": -6, "stderr": "said\n==1==ERROR: leaks\n\nmore\n"}]))
        count("add", tally, build, 1)
        assert count("total", tally).stdout.splitlines() == [
            f"FAILED: {build}: meson test ended with status 1",
            f"FAILED: {build}: leaks ended badly, status -6: ==1==ERROR: leaks", "2 passed, 2 failed"]


def nothing_passes_unseen():
    with tempfile.TemporaryDirectory() as folder:
        tally = Path(folder, "tally")
        assert "0 passed, 1 failed" in count("add", tally, folder, 0).stdout, "no report"
        tally.unlink()
        count("one", tally, "passed", "soak")
        done = count("total", tally)
        assert (done.returncode, done.stdout) == (0, "1 passed, 0 failed\n")


def the_archive_is_what_its_inputs_make():
    with tempfile.TemporaryDirectory() as folder:
        copy, inputs = Path(folder, "copy.tar.gz"), Path(folder, "inputs")
        copy.write_bytes(CORPUS.read_bytes())
        assert call("tests/fuzz/corpus.py", "unpack", copy, inputs).returncode == 0
        for target in inputs.iterdir():
            assert call("tests/fuzz/corpus.py", "replace", copy, target.name, target).returncode == 0
        assert gzip.decompress(copy.read_bytes()) == gzip.decompress(CORPUS.read_bytes())


def inputs_are_added_once():
    with tempfile.TemporaryDirectory() as folder:
        copy, inputs, new = Path(folder, "copy.tar.gz"), Path(folder, "inputs"), Path(folder, "new")
        copy.write_bytes(CORPUS.read_bytes())
        new.write_bytes(b"an input that nobody has had")
        for _ in range(2):
            assert call("tests/fuzz/corpus.py", "add", copy, "json", new).returncode == 0
        assert call("tests/fuzz/corpus.py", "unpack", copy, inputs).returncode == 0
        assert sum(path.read_bytes() == new.read_bytes() for path in inputs.glob("json/*")) == 1


def runs(pid):
    try:
        return Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def a_mutation_that_hangs_a_test_is_noticed():
    """And nothing of that test goes on, nor keeps the script waiting for what it might yet say."""
    fails = runpy.run_path(str(ROOT / "scripts/mutate"))["fails"]
    with tempfile.TemporaryDirectory() as folder:
        pid, begin = Path(folder, "pid"), time.monotonic()
        assert fails(["sh", "-c", f"sleep 900 & echo $! >{pid}; wait"], {}, 5) and time.monotonic() - begin < 300
        while runs(pid.read_text().strip()):  # a moment more, as a signal takes effect once its process is scheduled
            assert time.monotonic() - begin < 600
            time.sleep(0.01)
    assert fails(["false"], {}, 9) and fails(["printf", r"ok 1\nnot ok 2\n"], {}, 9) and not fails(["true"], {}, 9)


def mutations_are_named_right():
    known = call("scripts/mutate", "--list").stdout.partition(":")[0]
    done = call("scripts/mutate", known, "nonsense", timeout=300)
    assert done.returncode and "nonsense" in done.stderr and not done.stdout, done


def nothing_looked_at_is_not_right():
    """Where no version of PyTorch can be had, none has what the library needs."""
    with tempfile.TemporaryDirectory() as folder:
        done = call("scripts/torch-symbols", "--cache", folder, "2.11.0", timeout=300, env=os.environ | {"PIP_NO_INDEX": "1"})
        assert done.returncode and "Traceback" not in done.stderr and "2.11.0" in done.stderr, done
        for script in "try-pythons", "try-promtool":
            done = call(f"scripts/{script}", "--build", f"{folder}/none", timeout=300)
            assert done.returncode == 1 and done.stderr.startswith(f"{script}: {folder}/none") and done.stderr.count("\n") == 1, done


def what_is_tried_with_each_python_can_be_built():
    targets = runpy.run_path(str(ROOT / "scripts/try-pythons"), run_name="looked at")["TARGETS"]
    for target in targets:
        done = subprocess.run(["ninja", "-C", sys.argv[1], "-t", "query", target], capture_output=True, text=True)
        assert not done.returncode, (target, done.stderr)


def a_folder_that_cannot_be_preloaded_from_is_not_built_in():
    for name in "a clone", "a:clone":
        with tempfile.TemporaryDirectory() as folder:
            lib = Path(folder, name, "scripts/lib")
            lib.mkdir(parents=True)
            shutil.copy(ROOT / "scripts/lib/setup.sh", lib)
            done = subprocess.run(["bash", "-c", 'source "$0"; configure build', lib / "setup.sh"], capture_output=True, text=True)
            assert done.returncode == 1 and re.fullmatch(f".*/{name}: LD_PRELOAD cannot hold .*\n", done.stderr), done


def the_workflow_calls_what_is_there():
    text = (ROOT / ".github/workflows/ci.yml").read_text()
    usage = (ROOT / "scripts/test").read_text()
    parts = set(" ".join(re.findall(r"^ +parts: (.+)$", text, re.M)).split())
    assert parts == set(re.search(r"usage: scripts/test \[([\w|]+)\]", usage)[1].split("|")), parts
    called = re.findall(r"(?<![\w/])\./[\w/.-]+", text)
    assert called and all((ROOT / name).is_file() for name in called), called


tap.run([tests_are_counted, a_program_that_ends_badly_behind_its_cases_is_named, nothing_passes_unseen,
         the_archive_is_what_its_inputs_make, inputs_are_added_once, a_mutation_that_hangs_a_test_is_noticed,
         mutations_are_named_right, nothing_looked_at_is_not_right, a_folder_that_cannot_be_preloaded_from_is_not_built_in,
         what_is_tried_with_each_python_can_be_built,
         the_workflow_calls_what_is_there])
