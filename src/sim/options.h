/* The configuration of the simulated driver; sim.h describes the keys. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_MAX_DEVICES 8

struct sim_options {
    bool ledger, peers, decompress, trace, late_memset, managed_moves;
    size_t granularity;
    size_t capacity[SIM_MAX_DEVICES];
    unsigned vmm; /* devices with virtual memory management, one bit each */
    size_t host;  /* host memory that handles may take; 0: the device knows none there */
    int devices, driver, lazy, timeout_ms;
    int visible[SIM_MAX_DEVICES], visible_count; /* the devices that are visible, in this order; 0: all */
    uint64_t seed;
    char shared[256]; /* the file that processes share; "": none */
};
