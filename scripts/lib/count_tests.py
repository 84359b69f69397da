"""Adds up what passed and what failed over all parts of scripts/test, from the reports that Meson leaves.

usage: count_tests.py add TALLY FOLDER STATUS    what meson's report on that build folder's last run says; STATUS is
                                                 that of `meson test`
       count_tests.py one TALLY passed|failed NAME    something that is no test of Meson's
       count_tests.py total TALLY                what failed, and the line "N passed, N failed"; fails if something did

TALLY is a file that does not exist at first: a line for everything counted. Each case of a Criterion program is a test
of its own. A program that ends badly with no case failed (it crashed, or ran out of time) is one failed test.
"""
# SPDX-License-Identifier: Apache-2.0
import json
import re
import sys
import xml.etree.ElementTree as xml
from pathlib import Path


def report_of(folder):
    """The suites of a report. What a program printed stands in it as it is, with characters that XML does not have."""
    text = (Path(folder) / "meson-logs/testlog.junit.xml").read_text(encoding="utf-8", errors="replace")
    text = re.sub("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "?", text)
    return xml.fromstring(text.encode()).iter("testsuite")


def reason(suite, name):
    """What the program printed beside its "not ok": before it in Python's suites, behind it in Criterion's."""
    lines = "".join(out.text or "" for out in suite.iter("system-out")).splitlines()
    for at, line in enumerate(lines):
        if line.startswith("not ok") and name.split(" - ")[-1] in line:
            before, after = at, at + 1
            while before and lines[before - 1].startswith("#"):
                before -= 1
            while after < len(lines) and lines[after].startswith((" ", "#")):
                after += 1
            said = " ".join(" ".join(lines[before:at] + lines[at + 1:after]).split())
            return f": {said[:500]}" if said else ""
    return ""


def count(suites):
    """How many passed and were skipped, and what failed."""
    passed, skipped, failures = 0, 0, []
    for suite in suites:
        bad = []
        for case in suite.iter("testcase"):
            if case.find("failure") is not None or case.find("error") is not None:
                bad.append(f"{suite.get('name')} {case.get('name')}{reason(suite, case.get('name'))}")
            elif case.find("skipped") is not None:
                skipped += 1
            else:
                passed += 1
        if not bad and int(suite.get("errors", 0)):
            bad.append(f"{suite.get('name')} ended badly")
        failures += bad
    return passed, skipped, failures


def ended_badly(folder):
    """The programs that did, with the line that tells why: all of their cases may have passed before."""
    bad = []
    for line in (Path(folder) / "meson-logs/testlog.json").read_text(encoding="utf-8", errors="replace").splitlines():
        test = json.loads(line)
        if test["result"] not in ("OK", "SKIP", "EXPECTEDFAIL"):
            said = test.get("stderr", "").splitlines()
            why = [words for words in said if re.search("ERROR|WARNING: ThreadSanitizer|runtime error", words)] + said[-1:]
            bad.append(": ".join([f"{test['name']} ended badly, status {test['returncode']}", *why[:1]]))
    return bad


def note(tally, passed, failures):
    with open(tally, "a") as file:
        file.write(f"passed {passed}\n" + "".join(f"failed {failure}\n" for failure in failures))


def add(tally, folder, status):
    try:
        passed, skipped, failures = count(report_of(folder))
    except (OSError, xml.ParseError) as problem:
        passed, skipped, failures = 0, 0, [f"meson test gave no report: {problem}"]
    if status != "0" and not failures:
        try:
            failures = ended_badly(folder)
        except (OSError, ValueError, KeyError):
            pass
        failures = failures or [f"meson test ended with status {status}"]
    print(f"==> {folder}: {passed} passed, {len(failures)} failed, {skipped} skipped", flush=True)
    note(tally, passed, [f"{folder}: {failure}" for failure in failures])


def one(tally, word, name):
    note(tally, int(word == "passed"), [] if word == "passed" else [name])


def total(tally):
    lines = [line.partition(" ") for line in Path(tally).read_text().splitlines()]
    failures = [text for word, _, text in lines if word == "failed"]
    for failure in failures:
        print(f"FAILED: {failure}")
    print(f"{sum(int(text) for word, _, text in lines if word == 'passed')} passed, {len(failures)} failed")
    sys.exit(bool(failures))


def main(command, *arguments):
    {"add": add, "one": one, "total": total}[command](*arguments)


if __name__ == "__main__":
    main(*sys.argv[1:])
