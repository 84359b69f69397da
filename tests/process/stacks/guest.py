"""Programs of Python whose stacks are known: `guest.py EXPECTED held|free CASE...`, on the simulated driver.

Each allocation has a size of its own. EXPECTED gets a line of JSON for each: the size, and the frames that Python itself
tells, the innermost first. held: CUDA is called with the interpreter's lock, else without.
"""
# SPDX-License-Identifier: Apache-2.0
import asyncio
import atexit
import ctypes
import gc
import json
import os
import sys
import threading

EXPECTED = open(sys.argv[1], "a", encoding="utf-8")
cuda = (ctypes.PyDLL if sys.argv[2] == "held" else ctypes.CDLL)("libcuda.so.1")
context, device = ctypes.c_void_p(), ctypes.c_int()
MIB, number, lock = 1 << 20, 0, threading.Lock()


def start():
    assert cuda.cuInit(0) == 0 and cuda.cuDeviceGet(ctypes.byref(device), 0) == 0
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0


def frames(frame):
    while frame:
        code = frame.f_code
        yield [frame.f_lineno, getattr(code, "co_qualname", code.co_name), code.co_filename]
        frame = frame.f_back


def alloc():
    """One block, whose pointer is returned."""
    global number
    pointer = ctypes.c_uint64()
    with lock:
        number += 1
        size = MIB + 512 * number
        EXPECTED.write(json.dumps([size, list(frames(sys._getframe(1)))]) + "\n")
        EXPECTED.flush()
    assert cuda.cuCtxSetCurrent(context) == 0
    assert cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size)) == 0
    return pointer


def free(pointer):
    assert cuda.cuMemFree_v2(pointer) == 0


class Layer:
    def forward(self):
        return [alloc() for _ in range(3)]

    def __del__(self):
        free(alloc())


def plain():
    Layer().forward()
    (lambda: alloc())()
    größe()


def größe():
    return alloc()


def generators():
    def numbers():
        for _ in range(3):
            yield alloc()

    def outer():
        yield from numbers()
    list(outer())
    sorted([2, 1], key=lambda n: alloc() and n)


def coroutines():
    async def inner():
        await asyncio.sleep(0)
        return alloc()

    async def outer():
        await asyncio.gather(inner(), inner())
    asyncio.run(outer())


def cells():
    """Code that comes and goes at one address, and differs in its file alone, its first line, or its lines."""
    for i in range(200):
        names = {"alloc": alloc, "free": free}
        exec(compile("\n" * (i % 3) + "free(alloc())", f"<cell {i}>", "exec"), names)
        exec(compile("def f():\n" + "    pass\n" * (i % 5) + "    free(alloc())\nf()", "<same>", "exec"), names)
        del names
        if i % 20 == 0:
            gc.collect()


def names():
    """Names that are no text for a trace: with zero bytes, colons, halves of characters."""
    code = (lambda: alloc()).__code__
    for name, file in (("<cell line: 1>", "/tmp/cell.py"), ("a\0b", "zero.py"), ("zero", "a\0b.py"), ("half\udcff", "\udcff.py"),
                       ("", ""), ("\n,;%\"\x1b[2J", "\n,;%\"\x1b[2J")):
        more = {"co_qualname": name} if sys.version_info >= (3, 11) else {}
        type(alloc)(code.replace(co_name=name, co_filename=file, **more), globals())()


def deep():
    def down(n):
        return alloc() if n == 0 else down(n - 1)
    sys.setrecursionlimit(20000)
    threading.stack_size(256 << 20)
    thread = threading.Thread(target=lambda: down(5000))
    thread.start()
    thread.join()
    threading.stack_size(0)


def threads():
    def work():
        for _ in range(20):
            free(alloc())
    for _ in range(5):
        several = [threading.Thread(target=work) for _ in range(8)]
        for thread in several:
            thread.start()
        for thread in several:
            thread.join()


def exceptions():
    try:
        raise KeyError("kept")
    except KeyError as error:
        alloc()
        assert sys.exc_info()[1] is error and error.__traceback__.tb_next is None
    alive = [sys.getrefcount(alloc.__code__), sys.getrefcount(exceptions.__code__)]
    for _ in range(50):
        free(alloc())
    assert alive == [sys.getrefcount(alloc.__code__), sys.getrefcount(exceptions.__code__)]


def traced():
    """Under a debugger's hook, which has line numbers of its own."""
    seen = []

    def hook(frame, event, argument):
        seen.append(frame.f_lineno)
        return hook

    def called():
        alloc()
        alloc()
    sys.settrace(hook)
    called()
    sys.settrace(None)
    assert seen


def forks():
    """CUDA begins in the child alone: this case does not start it."""
    if os.fork() == 0:
        start()
        größe()
        EXPECTED.flush()
        sys.exit(0)
    assert os.wait()[1] == 0


def ends():
    """Threads at work, destructors and handlers while the interpreter ends."""
    def work():
        pointer = ctypes.c_uint64()
        cuda.cuCtxSetCurrent(context)
        while True:
            if cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(3 * MIB)) == 0:
                cuda.cuMemFree_v2(pointer)

    class Last:
        def __del__(self, call=cuda.cuMemAlloc_v2, pointer=ctypes.c_uint64(), by=ctypes.byref, size=ctypes.c_size_t):
            call(by(pointer), size(5 * MIB))
    # With the lock they crash Python 3.10 all by themselves.
    for _ in range(0 if sys.argv[2] == "held" else 4):
        threading.Thread(target=work, daemon=True).start()
    atexit.register(lambda: alloc())
    sys.modules["kept_to_the_end"] = Last()
    alloc()


def interpreters():
    """In a second interpreter of the process: whatever is told, nothing breaks."""
    try:
        import _interpreters as module
    except ImportError:
        import _xxsubinterpreters as module
    code = f"""
import ctypes
cuda, pointer = ctypes.CDLL("libcuda.so.1"), ctypes.c_uint64()
def inside():
    assert cuda.cuCtxSetCurrent(ctypes.c_void_p({context.value})) == 0
    for _ in range(10):
        assert cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t({7 * MIB})) == 0
        assert cuda.cuMemFree_v2(pointer) == 0
inside()
"""
    for _ in range(3):
        try:
            second = module.create("legacy") if module.__name__ == "_interpreters" else module.create(isolated=False)
        except TypeError:
            second = module.create()
        (module.exec if hasattr(module, "exec") else module.run_string)(second, code)
        alloc()
        module.destroy(second)
        alloc()


def greenlets():
    from greenlet import greenlet

    def ping():
        alloc()
        other.switch()
        alloc()

    def pong():
        alloc()
        one.switch()
    one, other = greenlet(ping), greenlet(pong)
    one.switch()
    alloc()


if __name__ == "__main__":
    if sys.argv[3:] != ["forks"]:
        start()
    for name in sys.argv[3:]:
        globals()[name]()
