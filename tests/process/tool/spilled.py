"""Tests of what vpool top tells of memory that is alive beside the device's: for tool.py."""
# SPDX-License-Identifier: Apache-2.0
import json
import os
import re
import tempfile

from guests import GUEST, Guest, MIB, top, until, vpool
from terminal import Terminal


def top_counts_what_is_spilled_as_held():
    """As the statistics of the process do."""
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "stats.json")
        with Guest("open", "bytes=1100000", "bytes=1300000", "line", "free", last="bytes=1300000",
                   env={"VPOOL_SPILL": "1G", "VPOOL_SPILL_TEST": "1M", "VPOOL_STATS": file, "VPOOL_LOG": "quiet"}) as guest:
            device = top(guest.pid)["devices"][0]
            guest.process.communicate("\n")
        with open(file) as stats:
            told = json.load(stats)["devices"][0]
        assert 0 < told["peak_live_bytes"] < told["peak_spilled_bytes"] and told["efficiency"] == device["efficiency"] < 1, (told, device)


def top_adds_up_what_is_free():
    """What one has alive in the host's memory takes nothing off what another has free on the device."""
    with Guest("open", "bytes=1100000", "bytes=40000000", "line", last="bytes=40000000",
               env={"VPOOL_SPILL": "1G", "VPOOL_SPILL_TEST": "1M"}) as host, \
            Guest("open", "alloc=24", "async=1", "free", "free", "line", last="async=1") as idle:
        assert until(lambda: top(idle.pid)["devices"][0]["live_bytes"] == 0), top(idle.pid)
        rows = [top(guest.pid)["devices"][0] for guest in (host, idle)]
        assert rows[0]["live_bytes"] > rows[0]["held_bytes"] + rows[1]["free_bytes"] > 20 * MIB, rows
        line = vpool("top", "--once", host.pid, idle.pid)[1].splitlines()[0]
        assert line.endswith(f" {sum(row['free_bytes'] for row in rows) / MIB:.1f}M free"), (line, rows)
        terminal = Terminal(host.pid)
        drawn = terminal.read(r"GPU .*1 process")
        assert re.search(r"\[ +\] 39.2M live \(#\), 0B held \(-\) of 256.0M", drawn), drawn
        terminal.press(b"q")
        terminal.end()


def what_is_spilled_is_not_saved():
    with tempfile.TemporaryDirectory() as folder:
        status, _, err = vpool("run", "--sim", f"--report={folder}/page.html", GUEST, "open", "alloc=3", "alloc=4",
                               VPOOL_SPILL="1G", VPOOL_SPILL_TEST="4M")
    assert status == 0 and "saved" not in err and "%)" not in err.split("; a caching")[0].rsplit("\n", 1)[1], err
    assert "7.0 MiB alive at most, 4.0 MiB of it held of the device, the rest spilled or asleep; a caching allocator" in err, err


TESTS = [top_counts_what_is_spilled_as_held, top_adds_up_what_is_free, what_is_spilled_is_not_saved]
