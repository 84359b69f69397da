"""Runs a program under compute-sanitizer and counts what it finds.

usage: sanitize.py PROGRAM [ARGUMENTS...]

Prints one JSON object; "checksum" is the number of errors. Exits with 77 where the tool is missing or cannot watch
this device.
"""
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


def main():
    if not sys.argv[1:]:
        sys.exit(__doc__)
    checker = tool()
    if not checker:
        skip("no compute-sanitizer")
    # The tool itself allocates too: only the program it starts is to be under the library.
    preload = os.environ.pop("LD_PRELOAD", None)
    command = [checker, "--tool", "memcheck", "--target-processes", "all"]
    command += ["env", f"LD_PRELOAD={preload}"] if preload else []
    done = subprocess.run(command + sys.argv[1:], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace")
    print(done.stdout)
    if re.search(r"not supported|Unable to find|failed to initialize", done.stdout, re.I):
        skip("compute-sanitizer cannot watch this device")
    summary = re.findall(r"ERROR SUMMARY: (\d+) error", done.stdout)
    errors = sum(map(int, summary))
    print(json.dumps({"ok": bool(summary) and done.returncode == 0, "checksum": errors}))


main()
