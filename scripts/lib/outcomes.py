"""A plugin of pytest's for scripts/compare-tests: appends how each part of a test ended to the file that VPOOL_OUTCOMES
names, as a line of JSON, when it is known: what comes after a crash is lost, what came before is not. Of all tests runs the one that
VPOOL_OUTCOMES_ONLY names, if it is set."""
# SPDX-License-Identifier: Apache-2.0
import json
import os
import posixpath


def pytest_ignore_collect(collection_path):
    """Of a large suite the files of one test are enough, which saves most of the time by itself."""
    only = os.environ.get("VPOOL_OUTCOMES_ONLY", "").split("::")[0]
    return True if only and collection_path.is_file() and collection_path.name != posixpath.basename(only) else None


def pytest_collection_modifyitems(items):
    only = os.environ.get("VPOOL_OUTCOMES_ONLY")
    if only:
        items[:] = [item for item in items if item.nodeid == only]


def pytest_runtest_logreport(report):
    # With pytest-xdist its workers' reports come to the one that they work for, too.
    if os.environ.get("PYTEST_XDIST_WORKER"):
        return
    why = ""
    if report.failed:
        why = str(getattr(getattr(report.longrepr, "reprcrash", None), "message", report.longrepr)).strip()
    # A test's last part; or its worker has crashed.
    ends = report.when not in ("setup", "call")
    with open(os.environ["VPOOL_OUTCOMES"], "a", encoding="utf-8") as file:
        file.write(json.dumps([report.nodeid, report.outcome, why.splitlines()[0] if why else "", ends]) + "\n")
