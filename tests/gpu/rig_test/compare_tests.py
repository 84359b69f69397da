#!/usr/bin/env python3
"""scripts/compare-tests, with a stand-in for pytest: a library that is there makes some tests end otherwise. Reports in TAP."""
# SPDX-License-Identifier: Apache-2.0
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True
HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "common"))
import tap

LIBRARY, OUT = Path(sys.argv[1]).resolve(), Path(sys.argv[2])
COMPARE = HERE.parents[2] / "scripts/compare-tests"
STUB = HERE / "stub_pytest"


def compare(*words, library=LIBRARY):
    OUT.mkdir(parents=True, exist_ok=True)
    found = OUT / "found.json"
    found.unlink(missing_ok=True)
    env = os.environ | {"PYTHONPATH": str(STUB), "STUB_LUCK": str(OUT / "luck"), "VPOOL_PAGE": "0"}
    (OUT / "luck").unlink(missing_ok=True)
    run = subprocess.run([sys.executable, COMPARE, "--library", library, "--json", found, *words], env=env, cwd=OUT, text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return run, json.loads(found.read_text(encoding="utf-8")) if found.exists() else None


def what_fails_with_the_library_alone_is_found():
    run, found = compare("--", "right", "wrong", "worse", "luck")
    assert run.returncode == 1, run.stdout
    assert found == {"plain": [{"test": "worse", "alone": "passed", "outcome": "failed", "why": "it is there"}]}, found
    assert "alone   3 passed, 1 failed, 0 skipped" in run.stdout and "plain   1 passed, 3 failed, 0 skipped" in run.stdout, run.stdout
    assert "1 fail with the library that do not alone" in run.stdout


def a_crash_is_a_failure():
    run, found = compare("--", "right", "crash", "wrong")
    assert run.returncode == 1 and "ended by signal 6" in run.stdout, run.stdout
    assert [row["test"] for row in found["plain"]] == ["crash"], found


def what_is_as_alone_is_no_finding():
    run, found = compare("--modes", "plain,bare,0,native", "--", "right", "wrong")
    assert run.returncode == 0 and found == {"plain": [], "bare": [], "0": [], "native": []}, run.stdout


def each_mode_has_its_settings():
    run, _ = compare("--modes", "plain,bare,async,0,native", "--", "settings")
    assert run.returncode == 0, run.stdout
    said = (OUT / "luck").read_text(encoding="utf-8").split("\n")[:-1]
    backend = "backend:cudaMallocAsync"  # set by the library under async, or by the mode
    assert said == ["None None False", "None None True", "bare None True", f"async {backend} True", "0 None True",
                    f"None {backend} False"], said


def nothing_is_called_right_that_did_not_run():
    for words in (["--", "none"], ["--limit", "1", "--", "hang"]):
        run, _ = compare(*words)
        assert run.returncode == 1 and "not all ran" in run.stdout, run.stdout


def a_run_that_ends_before_its_tests_is_told():
    """Though each test by itself ends as alone."""
    for name in "exits", "torn", "fewer":
        run, found = compare("--", "right", name, "wrong")
        assert run.returncode == 1 and "not all ran: plain" in run.stdout and found == {"plain": []}, run.stdout


def a_test_that_is_run_again_counts_once():
    run, found = compare("--", "right", "again")
    assert run.returncode == 0 and "plain   2 passed, 0 failed" in run.stdout and found == {"plain": []}, run.stdout


def what_is_interrupted_leaves_no_tests():
    luck = OUT / "luck"
    luck.unlink(missing_ok=True)
    env = os.environ | {"PYTHONPATH": str(STUB), "STUB_LUCK": str(luck)}
    with subprocess.Popen([sys.executable, COMPARE, "--library", LIBRARY, "--", "hang"], env=env, cwd=OUT, stderr=subprocess.PIPE, text=True) as run:
        for _ in range(1000):
            if luck.exists() and luck.read_text(encoding="utf-8").endswith("\n"):
                break
            time.sleep(0.01)
        run.send_signal(signal.SIGINT)
        said = run.communicate(timeout=300)[1]
    pid = int(luck.read_text(encoding="utf-8"))
    try:
        assert run.returncode == 130 and not said, (run.returncode, said)
        assert not Path(f"/proc/{pid}").exists()
    finally:
        if Path(f"/proc/{pid}").exists():
            os.kill(pid, signal.SIGKILL)


def wrong_arguments_are_told():
    for words, library, what in ((["--modes", "foo", "--", "x"], LIBRARY, "no mode foo"), (["--", "x"], OUT / "none.so", "is not there"),
                                 (["--json", "/none/x.json", "--", "x"], LIBRARY, "/none is no folder")):
        run, _ = compare(*words, library=library)
        assert run.returncode == 2 and what in run.stdout, run.stdout


tap.run([what_fails_with_the_library_alone_is_found, a_crash_is_a_failure, what_is_as_alone_is_no_finding, each_mode_has_its_settings,
        a_run_that_ends_before_its_tests_is_told, a_test_that_is_run_again_counts_once, nothing_is_called_right_that_did_not_run, what_is_interrupted_leaves_no_tests, wrong_arguments_are_told])
