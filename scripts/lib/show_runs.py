"""Prints what scripts/quickstart's program needed bare and under libvpool.so, side by side.

usage: show_runs.py FOLDER      that has bare.json and vpool.json (the program's figures) and stats.json (the library's)
"""
# SPDX-License-Identifier: Apache-2.0
import json
import sys
from pathlib import Path


def rows_of(bare, vpool, stats):
    device = max(stats["devices"], key=lambda device: device["peak_live_bytes"])
    yield "", "peak live", "peak held", "efficiency", "allocation calls", "time in them"
    for name, run, live, held in (
        ("bare", bare, bare["peak_live_bytes"], bare["peak_used_bytes"]),
        ("libvpool.so", vpool, device["peak_live_bytes"], device["peak_held_bytes"]),
    ):
        efficiency = f"{100 * live / held:.1f} %" if held else "-"
        yield (name, f"{live / 2**20:.1f} MiB", f"{held / 2**20:.1f} MiB", efficiency, str(run["alloc_calls"]),
               f"{run['alloc_us'] / 1000:.2f} ms")


def main(folder):
    files = (Path(folder) / name for name in ("bare.json", "vpool.json", "stats.json"))
    rows = list(rows_of(*(json.loads(file.read_text()) for file in files)))
    widths = [max(map(len, column)) for column in zip(*rows)]
    print()
    for name, *cells in rows:
        print("  ".join([name.ljust(widths[0])] + [cell.rjust(width) for cell, width in zip(cells, widths[1:])]))
    print()


if __name__ == "__main__":
    main(*sys.argv[1:])
