"""A device's memory asleep in host memory while other programs work, and back at the same addresses."""
# SPDX-License-Identifier: Apache-2.0
import contextlib
import errno
import os

from vpool._library import ctypes, needed
from vpool._pools import _check

CONTENTS = ("keep", "drop", "file")


if ctypes:
    class CPause(ctypes.Structure):
        """struct vpool_pause of include/vpool.h."""
        _fields_ = [("size", ctypes.c_size_t), ("contents", ctypes.c_int), ("wait_ms", ctypes.c_uint), ("file", ctypes.c_char_p),
                    ("reason", ctypes.c_char_p)]

FILE = CONTENTS.index("file")


def pause(device=0, contents="keep", file=None, wait=10.0):
    """Puts the memory of a device's pool to sleep: what is live goes to host memory, or to a new file of that name (then
    contents="file" may be left out); with contents="drop" nowhere. Until resume() nothing of it may be used. True if it
    sleeps now; False without the library. Where it cannot be, it raises OSError with the reason: TimeoutError when the
    device is not done in `wait` seconds."""
    _check(device)
    if contents not in CONTENTS or (contents == "file" and file is None) or (contents == "drop" and file is not None):
        raise ValueError(f"contents is one of {', '.join(CONTENTS)}: to a file that is named, and what is dropped to none")
    call = needed("vpool_pause_with")
    if not call:
        return False
    how = CPause(size=ctypes.sizeof(CPause), contents=FILE if file is not None else CONTENTS.index(contents),
                 wait_ms=int(min(max(1, wait * 1000), 2**32 - 1)), file=os.fsencode(file) if file is not None else None)
    failed = -call(device, ctypes.byref(how))
    if failed == errno.ENODEV:
        return False
    if failed:
        raise OSError(failed, how.reason.decode() if how.reason else os.strerror(failed), file)
    return True


def resume(device=0):
    """Wakes it, at the same addresses. True if it is awake now; False without the library. OSError: it sleeps on, and may
    be woken later; ENOMEM if the device has not so much memory free."""
    _check(device)
    call = needed("vpool_resume")
    failed = -call(device) if call else errno.ENODEV
    if failed == errno.ENODEV:
        return False
    if failed:
        raise OSError(failed, os.strerror(failed))
    return True


@contextlib.contextmanager
def asleep(device=0, contents="keep", file=None, wait=10.0):
    """Around what others do meanwhile: pauses, and resumes at its end."""
    sleeps = pause(device, contents, file, wait)
    try:
        yield sleeps
    finally:
        if sleeps:
            resume(device)
