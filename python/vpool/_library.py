"""The functions of libvpool.so in this process, found where the dynamic linker has put them, and what to do without."""
# SPDX-License-Identifier: Apache-2.0
import os
import sys
import warnings

try:
    import ctypes
except ImportError:         # a sub-interpreter of Python 3.12: there the library cannot be asked
    ctypes = None


class NotPreloaded(RuntimeWarning):
    """libvpool.so is not in this process, or is of a release that lacks what was called."""


if ctypes:
    class CStats(ctypes.Structure):
        """struct vpool_stats of include/vpool.h. What an older library does not know is 0."""
        _fields_ = [("size", ctypes.c_size_t)] + [(name, ctypes.c_uint64) for name in (
            "allocs", "frees", "live_bytes", "peak_live_bytes", "held_bytes", "peak_held_bytes", "ooms", "waits_gpu",
            "waits_host", "driver_ns", "waits_fruitless", "host_wait_ns", "written_after_free", "spilled_bytes",
            "peak_spilled_bytes", "asleep_bytes", "given_back_bytes", "lent_bytes", "loans_asked", "loans_refused")]

    # By name: what it returns, what it takes, and whether other threads of Python go on meanwhile. To let them is right
    # where the library may wait, and costs more than the whole call where it writes one line.
    _SIGNATURES = {
        "vpool_version": (ctypes.c_char_p, [], False),
        "vpool_stats": (ctypes.c_int, [ctypes.c_int, ctypes.POINTER(CStats)], True),
        "vpool_mark": (ctypes.c_int, [ctypes.c_char_p], False),
        "vpool_range_push": (ctypes.c_int, [ctypes.c_char_p], False),
        "vpool_range_pop": (ctypes.c_int, [], False),
        "vpool_trim": (ctypes.c_int64, [ctypes.c_int, ctypes.c_uint64], True),
        "vpool_snapshot": (ctypes.c_int, [ctypes.c_int], True),
        "vpool_pause_with": (ctypes.c_int, [ctypes.c_int, ctypes.c_void_p], True),
        "vpool_resume": (ctypes.c_int, [ctypes.c_int], True),
    }
else:
    CStats, _SIGNATURES = None, {}

_found = {}
_warned = False


def function(name):
    """A function of the library; None: it is not there. Asked for once: what is preloaded is there from the start."""
    if name not in _found:
        try:
            returns, takes, lets_others = _SIGNATURES[name]
            found = getattr((ctypes.CDLL if lets_others else ctypes.PyDLL)(None), name)
            found.restype, found.argtypes = returns, takes
        except (AttributeError, KeyError, OSError):
            found = None
        _found[name] = found
    return _found[name]


def _depth():
    """How many calls up the program's own code is."""
    depth, frame = 2, sys._getframe(2)
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] == "vpool":
        depth, frame = depth + 1, frame.f_back
    return depth


def needed(name):
    """The same; where there is none, the first call of all says so."""
    global _warned
    found = function(name)
    if found is None and not _warned:
        _warned = True
        if os.environ.get("VPOOL_LOG", "").lower() != "quiet":
            warnings.warn("this interpreter has no ctypes, by which the library is asked: nothing is recorded" if not ctypes else
                          f"the libvpool.so in this process has no {name}(): it is of an older release" if preloaded() else
                          "libvpool.so is not preloaded: there are no pools to ask and nothing is recorded; "
                          "`vpool run -- python …` starts a program under it", NotPreloaded, stacklevel=_depth())
    return found


def preloaded():
    """Is this process under libvpool.so?"""
    return function("vpool_version") is not None


def version():
    """The release of the library in this process; None: it is not there."""
    ask = function("vpool_version")
    return ask().decode() if ask else None
