"""Runs a program under compute-sanitizer and counts what it finds.

usage: sanitize.py PLANTED PROGRAM [ARGUMENTS...]

PLANTED is a program with an error, which must be found first. Prints one JSON object; "checksum" is the number of
errors of PROGRAM. Exits with 77 where the tool is missing or cannot watch this device.
"""
# SPDX-License-Identifier: Apache-2.0
import glob
import json
import os
import re
import shutil
import subprocess
import sys

SKIPPED = 77


def tool():
    found = shutil.which("compute-sanitizer")
    if found:
        return found
    for path in glob.glob("/usr/local/cuda*/bin/compute-sanitizer") + \
            glob.glob("/usr/local/cuda*/compute-sanitizer/compute-sanitizer"):
        if os.access(path, os.X_OK):
            return path
    return None


def skip(reason):
    print(json.dumps({"ok": True, "skipped": reason}))
    sys.exit(SKIPPED)


def errors(checker, argv, preload=None):
    """How many it finds, and how the program ended. Only the program is to be under the library: the tool
    allocates too."""
    command = [checker, "--tool", "memcheck", "--target-processes", "all"]
    command += ["env", f"LD_PRELOAD={preload}"] if preload else []
    done = subprocess.run(command + argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    print(done.stdout)
    summary = re.findall(r"ERROR SUMMARY: (\d+) error", done.stdout)
    return (sum(map(int, summary)) if summary else None), done


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    checker = tool()
    if not checker:
        skip("no compute-sanitizer")
    preload = os.environ.pop("LD_PRELOAD", None)
    planted, done = errors(checker, sys.argv[1:2])
    # Of the program it may be said, too, that a call is not supported.
    if re.search(r"not supported|Unable to find|failed to initialize", done.stdout, re.I):
        skip("compute-sanitizer cannot watch this device")
    found, done = errors(checker, sys.argv[2:], preload)
    print(json.dumps({"ok": bool(planted) and found is not None and done.returncode == 0, "planted": planted, "checksum": found}))


main()
