"""Runs test functions and tells of each in the Test Anything Protocol."""
# SPDX-License-Identifier: Apache-2.0


def run(tests):
    print(f"1..{len(tests)}")
    for number, test in enumerate(tests, 1):
        try:
            test()
            print(f"ok {number} - {test.__name__}", flush=True)
        except Exception as error:  # whatever it is, the next test is worth running
            line = error.__traceback__.tb_next.tb_lineno
            print(f"# {type(error).__name__}, line {line}: {error}"[:2000].replace("\n", "\n# "))
            print(f"not ok {number} - {test.__name__}", flush=True)
