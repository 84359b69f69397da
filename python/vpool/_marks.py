"""Names for moments and for stretches of time, which the trace and the pictures made of it show."""
# SPDX-License-Identifier: Apache-2.0
import functools
import inspect
import types

from vpool._library import function, needed


def _text(name):
    if isinstance(name, (bytes, bytearray)):
        return bytes(name).replace(b"\0", b"?")
    return str(name).encode("utf-8", "replace").replace(b"\0", b"?")


def mark(name):
    """Marks this moment by a name, such as "epoch 3". True: it was recorded (VPOOL_TRACE is set)."""
    call = needed("vpool_mark")
    return bool(call) and call(_text(name)) == 0


def range_push(name):
    """Opens a range on this thread, within those that are open. True: the library took it."""
    call = needed("vpool_range_push")
    return bool(call) and call(_text(name)) >= 0


def range_pop():
    """Closes the range that this thread opened last. True: there was one."""
    call = function("vpool_range_pop")
    return bool(call) and call() >= 0


class range:
    """A named stretch of time: `with vpool.range("step"):`, or `@vpool.range("step")` before a function, a generator or a
    coroutine, asynchronous generators too; `@vpool.range` takes the function's own name. Ranges of a thread lie within each other, so that one before a
    generator or a coroutine is open while that runs, and not while it is suspended. An object may be used many times."""

    def __new__(cls, name=None):
        return cls()(name) if callable(name) else super().__new__(cls)

    def __init__(self, name=None):
        self.name = name

    def __enter__(self):
        # One without a name is one all the same: its end will come.
        range_push("range" if self.name is None or not _text(self.name) else self.name)
        return self

    def __exit__(self, *_):
        range_pop()
        return False

    def __call__(self, function):
        if self.name is None:
            self = range(function.__qualname__)
        if inspect.isasyncgenfunction(function):
            def wrapped(*arguments, **named):
                return self._asynchronous(function(*arguments, **named))
        elif inspect.iscoroutinefunction(function):
            run = types.coroutine(self._resumed)

            async def wrapped(*arguments, **named):
                return await run(function(*arguments, **named))
        elif inspect.isgeneratorfunction(function):
            def wrapped(*arguments, **named):
                return (yield from self._resumed(function(*arguments, **named)))
        else:
            def wrapped(*arguments, **named):
                with self:
                    return function(*arguments, **named)
        return functools.wraps(function)(wrapped)

    async def _asynchronous(self, steps):
        """The same of an asynchronous generator."""
        run, resume, value = types.coroutine(self._resumed), steps.asend, None
        while True:
            try:
                item = await run(resume(value))
            except StopAsyncIteration:
                return
            try:
                resume, value = steps.asend, (yield item)
            except GeneratorExit:
                await run(steps.aclose())
                raise
            except BaseException as error:
                resume, value = steps.athrow, error

    def _resumed(self, steps):
        """Runs a generator or a coroutine, open while it runs."""
        resume, value = steps.send, None
        while True:
            with self:
                try:
                    item = resume(value)
                except StopIteration as end:
                    return end.value
            try:
                resume, value = steps.send, (yield item)
            except GeneratorExit:
                with self:
                    steps.close()
                raise
            except BaseException as error:
                resume, value = steps.throw, error
