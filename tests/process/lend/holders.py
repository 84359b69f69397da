"""Programs that allocate and free as they are told (holder.c), side by side on one simulated device."""
# SPDX-License-Identifier: Apache-2.0
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager

HOLDER = sys.argv[1]
CAPACITY = 256
SIM = f"capacity={CAPACITY}M,granularity=64K,lazy=0"
OUT_OF_MEMORY = 2


def sim_of(ledger, more=""):
    return f"{SIM},shared={ledger}" + ("," + more if more else "")


class Holder:
    """One program, which obeys; under the library unless told otherwise."""

    def __init__(self, ledger, sim="", preload=True, **env):
        self.ledger = ledger
        preloaded = {"LD_PRELOAD": os.environ["TEST_PRELOAD"]} if preload else {}
        self.process = subprocess.Popen([HOLDER], env=os.environ | preloaded | {"VPOOL_SIM": sim_of(ledger, sim)} | env,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.seconds = 0

    def __call__(self, *words):
        """The result of a command, and its value if it has one."""
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, f"{words}: the program is gone"
        result, value, seconds = line.split()
        self.seconds = float(seconds)
        return (int(result), int(value)) if words[0] in ("STATS", "FREEMEM") else int(result)

    def well(self, *words):
        result = self(*words)
        assert (result[0] if isinstance(result, tuple) else result) == 0, (words, result)
        return result[1] if isinstance(result, tuple) else 0

    def end(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.stdin.close()
            assert self.process.wait(300) == 0


@contextmanager
def holders(*environments):
    with tempfile.TemporaryDirectory(prefix="vpool-lend-") as folder:
        made = [Holder(f"{folder}/ledger", **env) for env in environments]
        try:
            yield made
            for one in made:
                one.end()
        finally:
            for one in made:
                one.process.kill()
                one.process.wait()
