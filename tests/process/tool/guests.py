"""What the tests of the vpool command share: the command itself, and guests that it runs or watches."""
# SPDX-License-Identifier: Apache-2.0
import contextlib
import json
import os
import re
import subprocess
import sys
import time

VPOOL, GUEST, LIBRARY = map(os.path.realpath, sys.argv[2:5])
COMPARE = os.path.join(os.path.dirname(LIBRARY), "libvpool-compare.so")
SIM = os.path.join(os.environ["TEST_BUILD"], "sim")
MIB = 1 << 20
COMMANDS = ["doctor", "export", "exporter", "help", "options", "replay", "report", "run", "top", "version"]

# The user's environment: nothing of ours but a sanitizer's runtime, which has to come first.
ENV = {k: v for k, v in os.environ.items() if not k.startswith(("VPOOL_", "XLA_", "TF_", "PYTORCH_", "LD_"))}
RUNTIMES = os.environ.get("TEST_PRELOAD", "").split(":")[:-1]
if RUNTIMES:
    ENV["LD_PRELOAD"] = ":".join(RUNTIMES)
    ENV["ASAN_OPTIONS"] = ENV.get("ASAN_OPTIONS", "") + ":detect_leaks=0"


def page(pid):
    return f"/dev/shm/vpool-{os.geteuid()}-{pid}"


# Those of other tests, or of another build beside this one.
STRANGERS = re.compile("^vpool top: not shown: [0-9]+ under another version of libvpool.so\n", re.M)


def vpool(*args, strangers=False, **more):
    """Runs the command to its end: exit status, stdout, stderr, which tells of strangers if that is wished."""
    env = {**ENV, **{k: v for k, v in more.items() if k.isupper()}}
    done = subprocess.run([VPOOL, *map(str, args)], env=env, capture_output=True, timeout=300, text=True,
                          stdin=subprocess.DEVNULL)
    return done.returncode, done.stdout, done.stderr if strangers else STRANGERS.sub("", done.stderr)


class Guest:
    """A guest under `vpool run --sim` that has said its last word, and goes on."""

    def __init__(self, *words, last=None, env={}):
        self.process = subprocess.Popen([VPOOL, "run", "--sim", "--quiet", GUEST, *words], env={**ENV, **env},
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.pid = self.process.pid
        for line in self.process.stdout:
            if line.strip() == last:
                break

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        with contextlib.suppress(FileNotFoundError):    # another test's programs sweep, too
            os.unlink(page(self.pid))


def top(*args):
    """What top says of one process: its JSON object, or None."""
    status, out, _ = vpool("top", "--json", *args)
    found = json.loads(out)["processes"]
    return found[0] if found else None


def until(what, seconds=30):
    """Waits until it is true, and says how long that took; None if it never was."""
    begin = time.monotonic()
    while time.monotonic() - begin < seconds:
        if what():
            return time.monotonic() - begin
        time.sleep(0.02)
    return None


def is_plain(text):
    return not re.search("[\x00-\x09\x0b-\x1f\x7f]", text)


def one_line(*args):
    status, out, err = vpool(*args)
    assert status == 2, (args, status)
    assert err.count("\n") == 1 and not out and is_plain(err), (args, out, err)
