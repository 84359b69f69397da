"""A stand-in for pytest: runs "tests" that are named, and tells a plugin of each part as pytest does."""
# SPDX-License-Identifier: Apache-2.0
import importlib
import os
import sys
import time
from types import SimpleNamespace

IS_THERE = "LD_PRELOAD" in os.environ
LUCK = os.environ["STUB_LUCK"]


def fails(name):
    """Why it does; None: it passes."""
    if name == "hang":
        with open(LUCK, "w", encoding="utf-8") as file:
            file.write(f"{os.getpid()}\n")
        time.sleep(60)
    if name == "crash" and IS_THERE:
        os.abort()
    if name in ("exits", "torn") and IS_THERE and "VPOOL_OUTCOMES_ONLY" not in os.environ:
        if name == "torn":
            with open(os.environ["VPOOL_OUTCOMES"], "a", encoding="utf-8") as file:
                file.write('["torn", "pas')
        os._exit(1)
    if name == "luck" and IS_THERE and not os.path.exists(LUCK):
        open(LUCK, "w", encoding="utf-8").close()
        return "bad luck"
    if name == "settings":
        with open(LUCK, "a", encoding="utf-8") as file:
            file.write(f"{os.environ.get('VPOOL_ADOPT')} {os.environ.get('PYTORCH_CUDA_ALLOC_CONF')} {IS_THERE}\n")
    if name == "worse" and IS_THERE:
        return "it is there"
    return "always" if name == "wrong" else None


def main(words):
    plugin = importlib.import_module(words[words.index("-p") + 1])
    items = [SimpleNamespace(nodeid=name) for name in words if name.isalpha() and name not in ("outcomes", "none")]
    plugin.pytest_collection_modifyitems(items)
    for item in items:
        if item.nodeid == "again":  # as pytest-rerunfailures tells of it
            plugin.pytest_runtest_logreport(SimpleNamespace(nodeid="again", when="call", outcome="rerun", failed=False, longrepr=None))
        if item.nodeid == "fewer" and IS_THERE and "VPOOL_OUTCOMES_ONLY" not in os.environ:
            return
        for when in ("setup", "call", "teardown"):
            why = fails(item.nodeid) if when == "call" else None
            plugin.pytest_runtest_logreport(SimpleNamespace(nodeid=item.nodeid, when=when, outcome="failed" if why else "passed",
                                                            failed=bool(why), longrepr=why))


if __name__ == "__main__":
    main(sys.argv[1:])
