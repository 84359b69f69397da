"""What the PyTorch examples tell vpool of themselves: steps, micro-batches and phases begin, modules run (docs/plans.md).

Without libvpool.so in the process nothing is told; the numbers are the same either way.
"""
# SPDX-License-Identifier: Apache-2.0
import os
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.realpath(__file__)), "../python"))  # a clone has the package there
import vpool

# Ranges cost a lock each, and are of use to whoever records or places by modules.
RANGES = vpool.preloaded() and (os.environ.get("VPOOL_TRACE", "") != "" or os.environ.get("VPOOL_POLICY") == "stalloc")


def begin(name):
    """A step, a micro-batch of it or a phase begins, until the next one does: "step:3", "microbatch:0", "phase:forward"."""
    if vpool.preloaded():
        vpool.mark(name)


def module(name, function):
    """The function, as a module of that name."""
    def run(*arguments, **named):
        with vpool.range(f"module:{name}"):
            return function(*arguments, **named)
    return run if RANGES else function


def follow(name, module):
    """From now on the module is one of that name wherever it runs, in the backward pass too. Not for one that is computed
    again in the backward pass: its function is marked by module()."""
    if not RANGES:
        return

    def push(*_):
        vpool.range_push(f"module:{name}")

    def pop(*_):
        vpool.range_pop()
    module.register_forward_pre_hook(push)
    module.register_forward_hook(pop, always_call=True)
    module.register_full_backward_pre_hook(push)
    module.register_full_backward_hook(pop)
