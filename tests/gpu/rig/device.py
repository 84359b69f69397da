"""The device as NVML sees it: how much of its memory is in use, by anyone."""
# SPDX-License-Identifier: Apache-2.0
import ctypes
import os
import threading
import time


class Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class Device:
    """One GPU: the first that CUDA programs would see. Raises OSError where there is no NVML or no GPU."""

    def __init__(self):
        self.nvml = ctypes.CDLL("libnvidia-ml.so.1")
        self.handle = ctypes.c_void_p()
        self._call("nvmlInit_v2")
        chosen = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0].strip() or "0"
        if chosen.isdigit():
            self._call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(int(chosen)), ctypes.byref(self.handle))
        else:
            self._call("nvmlDeviceGetHandleByUUID", chosen.encode(), ctypes.byref(self.handle))

    def _call(self, name, *arguments):
        code = getattr(self.nvml, name)(*arguments)
        if code:
            raise OSError(f"{name} returned {code}")

    def used(self):
        memory = Memory()
        self._call("nvmlDeviceGetMemoryInfo", self.handle, ctypes.byref(memory))
        return memory.used

    def name(self):
        text = ctypes.create_string_buffer(96)
        self._call("nvmlDeviceGetName", self.handle, text, ctypes.c_uint(len(text)))
        return text.value.decode()

    def driver(self):
        text = ctypes.create_string_buffer(96)
        self._call("nvmlSystemGetDriverVersion", text, ctypes.c_uint(len(text)))
        return text.value.decode()

    def architecture(self):
        """For nvcc's -arch."""
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._call("nvmlDeviceGetCudaComputeCapability", self.handle, ctypes.byref(major), ctypes.byref(minor))
        return f"sm_{major.value}{minor.value}"


class Peak:
    """Within its `with` block, asks for the memory in use every few milliseconds and keeps the most."""

    PERIOD_S = 0.005

    def __init__(self, device):
        self.device = device
        self.most = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self):
        while not self._stop.wait(self.PERIOD_S):
            try:
                self.most = max(self.most or 0, self.device.used())
            except OSError:
                pass

    def __enter__(self):
        if self.device:
            self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        if self.device:
            self._thread.join()


def idle_use(device):
    """Bytes in use now, once what a program before us held has gone. None: nobody tells."""
    if device is None:
        return None
    try:
        lowest = device.used()
        for _ in range(10):
            time.sleep(0.02)
            now = device.used()
            if now == lowest:
                break
            lowest = min(lowest, now)
        return lowest
    except OSError:
        return None
