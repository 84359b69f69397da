"""Programs that are put to sleep and woken by the command: what is asked of both, and what is looked at."""
# SPDX-License-Identifier: Apache-2.0
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from holders import sim_of

VPOOL = sys.argv[2]
# The user's other processes are held up while one is woken, and whoever wakes one has a lock: each suite has a /dev/shm of its own.
APART = str(Path(sys.argv[1]).resolve().parent.parent / "pause/libapart.so")
*RUNTIMES, LIBRARY = os.environ["TEST_PRELOAD"].split(":")
SHM = tempfile.TemporaryDirectory(prefix="test-vpool-", dir="/dev/shm")
os.chmod(SHM.name, 0o1777)
os.environ |= {"TEST_PRELOAD": ":".join([*RUNTIMES, APART, LIBRARY]), "TEST_SHM": SHM.name}
PRELOADED = {"LD_PRELOAD": ":".join([*RUNTIMES, APART])}
DONE, FAILED, USAGE, REFUSED = range(4)
CALLS = ["cuCheckpointProcess" + name for name in ("GetState", "Lock", "Checkpoint", "Restore", "Unlock")]
DEVICE_CALLS = ["cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetUuid", "cuDevicePrimaryCtxRetain", "cuMemGetInfo"]


def environment(one, sim=""):
    return os.environ | PRELOADED | {"VPOOL_SIM": sim_of(one.ledger, sim)}


def start(one, command, *options, sim=""):
    return subprocess.Popen([VPOOL, command, *options, str(one.process.pid)], env=environment(one, sim), text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def vpool(one, command, *options, sim=""):
    """The exit status, and what was said."""
    with start(one, command, *options, sim=sim) as process:
        out, err = process.communicate(timeout=300)
    return process.returncode, out + err


def well(one, command, *options, sim=""):
    status, said = vpool(one, command, *options, sim=sim)
    assert status == DONE, (command, status, said)
    return said


def doctor(one):
    """What it says of the program; "" is nothing."""
    out = subprocess.run([VPOOL, "doctor"], env=environment(one), text=True, stdout=subprocess.PIPE, check=False).stdout
    return "\n".join(line for line in out.splitlines() if f"process {one.process.pid} " in line)


def top(*words):
    return subprocess.run([VPOOL, "top", *words], env=os.environ | PRELOADED, check=True, stdout=subprocess.PIPE, text=True).stdout


def figures_of(one):
    return json.loads(top("--json", "-d", "0.05", str(one.process.pid)))["processes"][0]


def record(one):
    return Path(f"{SHM.name}/vpool-{os.geteuid()}-{one.process.pid}.paused")


LOCK = Path(f"{SHM.name}/vpool-{os.geteuid()}.lock")


def parent(pid):
    """0: it is gone."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    except OSError:
        return 0


def locker(path):
    """The process that has locked the file; 0: none."""
    # "17: FLOCK  ADVISORY  WRITE 4711 00:1a:42 0 EOF"; who waits for it has an arrow before FLOCK
    held = [line.split() for line in Path("/proc/locks").read_text().splitlines()] if path.exists() else []
    file = f":{path.stat().st_ino}" if held else None
    return next((int(words[4]) for words in held if words[1] == "FLOCK" and words[5].endswith(file)), 0)


def wait_until_it_has(path, command):
    """Until the command's helper has locked the file, unless it is over."""
    while command.poll() is None and parent(locker(path)) != command.pid:
        time.sleep(0.02)


def ask(one, *words):
    """Says something and does not wait for the answer."""
    one.process.stdin.write(" ".join(map(str, words)) + "\n")
    one.process.stdin.flush()


def answer(one):
    return one.process.stdout.readline().split()


def is_silent(one, seconds=0.3):
    return not select.select([one.process.stdout], [], [], seconds)[0]


def furnish(one, mib=100):
    one.well("TAKE", "x", mib)
    one.well("ALLOC", "y", 20)


def check(one, mib=100):
    """It runs, with every byte."""
    for name in "xy":
        one.well("CHECK", name)
    assert one.well("FREEMEM") <= 256 - mib - 20
    one.well("TAKE", "z", 10)
    one.well("CHECK", "z")
    one.well("DROP", "z")
    assert not record(one).exists()
