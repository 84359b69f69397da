"""The pools of this process: figures, snapshots, and memory that goes back to the devices."""
# SPDX-License-Identifier: Apache-2.0
import errno
import json
import os
import tempfile

from vpool._library import CStats, ctypes, function, needed

DEVICES = 64        # ordinals that the library knows


class Stats(dict):
    """The figures of one pool, by name and as attributes: stats["held_bytes"] is stats.held_bytes.

    allocs, frees: calls served. live_bytes, peak_live_bytes: handed out, as asked for. held_bytes, peak_held_bytes:
    physical memory that the pool has of the device. spilled_bytes, peak_spilled_bytes: with VPOOL_SPILL, of the host
    beside it. efficiency: what was alive at most, divided by what was had at most, and at most 1. asleep_bytes: of a pause.
    given_back_bytes, lent_bytes, loans_asked, loans_refused: idle memory that went back to the device; because another
    process lacked it; how often this one asked others, and was asked in vain. ooms: calls that ended out of memory.
    waits_gpu, waits_host, waits_fruitless: waits for what another stream had freed. driver_ns, host_wait_ns: time in
    the driver, and in the waits of the host. written_after_free: with VPOOL_POISON=1, blocks of any device that were
    written to after their free.
    """

    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


def _ask(device):
    call = function("vpool_stats")
    if not call:
        return None
    figures = CStats(size=ctypes.sizeof(CStats))
    if call(device, ctypes.byref(figures)):
        return None
    found = Stats((name, getattr(figures, name)) for name, _ in CStats._fields_[1:])
    held = found["peak_held_bytes"] + found["peak_spilled_bytes"]
    found["efficiency"] = found["peak_live_bytes"] / held if held > found["peak_live_bytes"] else 1.0
    return found


def _check(device):
    if not 0 <= device < DEVICES:
        raise ValueError(f"there is no device {device}: 0 to {DEVICES - 1}")


def devices():
    """The devices that have a pool, by CUDA's ordinals. One has it from the first allocation there on."""
    return [device for device in range(DEVICES) if _ask(device) is not None] if needed("vpool_stats") else []


def stats(device=0):
    """The figures of a device's pool (CUDA's ordinal); None: it has none (yet), or the library is not preloaded."""
    _check(device)
    return _ask(device) if needed("vpool_stats") else None


def trim(device=None, keep=0):
    """Gives idle memory back until at most `keep` bytes are held: of one device, or of each that has a pool. Returns the
    bytes given back. Memory that queued work may still use stays."""
    if keep < 0:
        raise ValueError("keep is a number of bytes")
    if device is not None:
        _check(device)
    call = needed("vpool_trim")
    which = [] if not call else devices() if device is None else [device]
    return sum(max(call(each, min(keep, 2**64 - 1)), 0) for each in which)


def snapshot(file=None):
    """What every pool looks like now, each region of it: a dict, as docs/dumps.md describes the JSON of a dump. None:
    there is no pool (yet), or the library is not preloaded. With the name of a file the JSON is written there, too, for
    `vpool report`."""
    call = needed("vpool_snapshot")
    if not call:
        return None
    with tempfile.TemporaryFile() as out:
        failed = -call(out.fileno())
        if failed == errno.ENODEV:
            return None
        if failed:
            raise OSError(failed, os.strerror(failed))
        out.seek(0)
        text = out.read()
    if file is not None:
        with open(file, "wb") as copy:
            copy.write(text)
    return json.loads(text)
