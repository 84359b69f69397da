"""Runs test functions and tells of each in the Test Anything Protocol."""
# SPDX-License-Identifier: Apache-2.0
import time

TRIES, PAUSE_S = 3, 3


def by_the_clock(test):
    """Marks a test that judges by time: where other processes took the machine's, it is tried again from its beginning."""
    test.tries = TRIES
    return test


def passes(test):
    for left in reversed(range(getattr(test, "tries", 1))):
        try:
            test()
            return True
        except Exception as error:  # whatever it is, the next test is worth running
            line = error.__traceback__.tb_next.tb_lineno
            again = f"{test.__name__} is tried again: " if left else ""
            print(f"# {again}{type(error).__name__}, line {line}: {error}"[:2000].replace("\n", "\n# "), flush=True)
            time.sleep(PAUSE_S if left else 0)  # what took the machine's time may be over by then
    return False


def run(tests):
    print(f"1..{len(tests)}")
    for number, test in enumerate(tests, 1):
        print(f"{'ok' if passes(test) else 'not ok'} {number} - {test.__name__}", flush=True)
