"""vpool from Python: marks, ranges, figures and snapshots of the GPU memory pool that this process runs under.

    import vpool

    with vpool.range("epoch 3"):            # or @vpool.range("evaluate") before a function
        train()
    vpool.mark("checkpoint written")
    print(vpool.stats(0).held_bytes)        # what the pool of device 0 has of the device
    vpool.trim()                            # idle memory goes back to the devices
    vpool.snapshot()["devices"][0]          # every region, as docs/dumps.md describes it
    with vpool.asleep():                    # the device is another program's, as docs/pausing.md describes it
        wait_for_the_other()

The module asks libvpool.so, which `vpool run -- python train.py` or LD_PRELOAD puts into the process. It links to
nothing, starts no CUDA and needs no other package. In a process without the library everything may be called all the
same: a function that has nothing to tell returns None (mark: False, trim: 0), and the first call says so by one
warning of the class NotPreloaded. preloaded() asks without a warning.
"""
# SPDX-License-Identifier: Apache-2.0
from vpool._library import NotPreloaded, preloaded, version
from vpool._marks import mark, range, range_pop, range_push
from vpool._pools import Stats, devices, snapshot, stats, trim
from vpool._sleep import asleep, pause, resume

__all__ = ["NotPreloaded", "Stats", "asleep", "devices", "mark", "pause", "preloaded", "range", "range_pop", "range_push",
           "resume", "snapshot", "stats", "trim", "version"]


def __getattr__(name):
    if name == "__version__":
        from vpool._release import release
        return release()
    raise AttributeError(f"module 'vpool' has no attribute '{name}'")
