/* Guests of the stand-in for PyTorch: programs over its cache, each with cases by name. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "../../common/check.h"
#include "c10.h"
#include "told.h"

#include <cstdio>
#include <unistd.h>

namespace cache = c10::cuda::CUDACachingAllocator;
using c10::cuda::CUDAStream;
using c10::cuda::getCurrentCUDAStream;
using c10::cuda::makeStream;
using c10::cuda::setCurrentCUDAStream;

enum : size_t { KIB = 1 << 10, MIB = 1 << 20 };

struct Case {
    const char *name;
    void (*run)();
};
extern const Case data_cases[], order_cases[], room_cases[];

/* How many events there were so far; the events since then that are of a kind; NULL-terminated kinds of all of them. */
size_t told_count();
vpool_told told_at(size_t at);
void told_refuse(int refusals);
/* The last event of a kind since then; fails if there is none. */
vpool_told told_last(size_t since, char what);
unsigned told_number(size_t since, char what);

/* Two small allocations, after which segments are bare. */
void arm();
