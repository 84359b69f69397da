"""Runs PyTorch's operators on the sample inputs of its own tests, and compares the GPU's results with the CPU's.

The samples come with the package (torch.testing, `op_db`). Prints one JSON object; "checksum" names the operators
that failed or answered something else than on the CPU: random ones do so anyway, on every run alike.
"""
# SPDX-License-Identifier: Apache-2.0
import argparse
import contextlib
import itertools
import json
import sys
import time
import types
import unittest
import warnings

import torch

# torch.testing imports a module for tests of another kind, which the package does not bring along.
if "expecttest" not in sys.modules:
    try:
        import expecttest
    except ImportError:
        stand_in = types.ModuleType("expecttest")
        stand_in.TestCase = unittest.TestCase
        sys.modules["expecttest"] = stand_in

from torch.testing._internal.common_methods_invocations import op_db

# What these answer is whatever the memory held before.
UNWRITTEN = ("empty", "new_empty", "resize", "Tensor.new")


def to(device, value):
    """The same arguments on another device."""
    if isinstance(value, torch.Tensor):
        return value.detach().to(device)
    if isinstance(value, torch.device):
        return torch.device(device)
    if isinstance(value, (list, tuple)):
        moved = [to(device, item) for item in value]
        return type(value)(*moved) if hasattr(value, "_fields") else type(value)(moved)
    if isinstance(value, dict):
        return {key: device if key == "device" else to(device, item) for key, item in value.items()}
    return value


def outcome(op, device, sample):
    torch.manual_seed(1)
    try:
        return op(to(device, sample.input), *to(device, list(sample.args)), **to(device, sample.kwargs))
    except Exception as problem:  # the same one is wanted on either device
        return type(problem)


def alike(one, other):
    if isinstance(one, type) or isinstance(other, type):
        return one is other
    try:
        torch.testing.assert_close(one, to("cpu", other), rtol=1e-3, atol=1e-3, equal_nan=True, check_device=False,
                                   check_stride=False)
    except AssertionError:
        return False
    except Exception:  # no tensors: a number, a string
        return True
    return True


def differs(op, device, count):
    """Whether it fails on the GPU, or answers otherwise there, for one of the first samples."""
    try:
        dtypes = op.supported_dtypes("cpu")
        dtype = torch.float32 if torch.float32 in dtypes else min(dtypes, key=str)  # none at all: the CPU lacks it
        samples = list(itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=False), count))
    except Exception:  # not to be had here, with or without us
        return True, 0
    results = [alike(outcome(op, "cpu", sample), outcome(op, device, sample)) for sample in samples]
    return not all(results), len(results)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", metavar="N", type=int, default=12, help="of each operator (default 12)")
    parser.add_argument("--every", metavar="N", type=int, default=1, help="only every Nth operator")
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    warnings.simplefilter("ignore")

    begin, runs, different = time.monotonic(), 0, []
    ops = [op for op in op_db if not op.name.startswith(UNWRITTEN)][::options.every]
    with open("/dev/null", "w") as nowhere, contextlib.redirect_stdout(nowhere):
        for op in ops:
            bad, count = differs(op, options.device, options.samples)
            runs += count
            if bad:
                different.append(op.name + (f".{op.variant_test_name}" if op.variant_test_name else ""))
    if options.device == "cuda":
        torch.cuda.synchronize()
    print(json.dumps({"ok": runs > 0, "operators": len(ops), "runs": runs, "checksum": " ".join(sorted(different)),
                      "seconds": time.monotonic() - begin}))


main()
