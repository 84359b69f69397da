"""Trains a small network with JAX on batches of varying size, and compares it with the same in numpy.

Prints one JSON object; "checksum" is the same whatever the allocator, but for the last digits.
"""
# SPDX-License-Identifier: Apache-2.0
import json
import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np

WIDTHS = [256, 1024, 1024, 16]
BATCHES = [512, 4096, 1536, 16384, 3000]  # each is compiled once
STEPS = 60
COMPARED = 3  # steps that numpy follows
RATE = 1e-2

jax.config.update("jax_default_matmul_precision", "highest")


def start_weights():
    numbers = np.random.default_rng(1)
    return [numbers.standard_normal(shape, dtype=np.float32) / np.float32(np.sqrt(shape[0]))
            for shape in zip(WIDTHS, WIDTHS[1:])]


def batch(step):
    numbers = np.random.default_rng(100 + step)
    x = numbers.standard_normal((BATCHES[step % len(BATCHES)], WIDTHS[0]), dtype=np.float32)
    return x, np.sin(x[:, : WIDTHS[-1]])


def loss_of(weights, x, y):
    for weight in weights[:-1]:
        x = jnp.tanh(x @ weight)
    return jnp.mean((x @ weights[-1] - y) ** 2)


@jax.jit
def train_step(weights, x, y):
    loss, slopes = jax.value_and_grad(loss_of)(weights, x, y)
    return [weight - RATE * slope for weight, slope in zip(weights, slopes)], loss


def numpy_step(weights, x, y):
    kept = [x]
    for weight in weights[:-1]:
        kept.append(np.tanh(kept[-1] @ weight))
    error = kept[-1] @ weights[-1] - y
    slope = 2 * error / error.size
    result = []
    for weight, before in zip(reversed(weights), reversed(kept)):
        result.insert(0, weight - RATE * (before.T @ slope))
        slope = (slope @ weight.T) * (1 - before**2)
    return result, np.mean(error**2)


def main():
    weights = [jnp.asarray(weight) for weight in start_weights()]
    reference = [weight.astype(np.float64) for weight in start_weights()]
    losses, times, wrong = [], [], []
    for step in range(STEPS):
        x, y = batch(step)
        start = time.perf_counter()
        weights, loss = train_step(weights, x, y)
        losses.append(float(loss))
        times.append(1e3 * (time.perf_counter() - start))
        if step < COMPARED:
            reference, expected = numpy_step(reference, x.astype(np.float64), y.astype(np.float64))
            if not np.isclose(losses[-1], expected, rtol=1e-3):
                wrong.append(f"step {step}: loss {losses[-1]}, numpy {expected}")
    try:
        stats = jax.devices()[0].memory_stats() or {}
    except Exception:  # not every allocator keeps any
        stats = {}
    print(json.dumps({
        "ok": not wrong and bool(np.all(np.isfinite(losses))),
        "wrong": wrong,
        "device": str(jax.devices()[0]),
        "checksum": float(sum(np.abs(np.asarray(weight, dtype=np.float64)).sum() for weight in weights)),
        "first_ms": times[0],
        "late_ms": statistics.median(times[STEPS // 2:]),
        "final_loss": losses[-1],
        "peak_live_bytes": stats.get("peak_bytes_in_use"),
    }))


main()
