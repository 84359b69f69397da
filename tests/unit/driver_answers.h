/* What the files of driver_answers share: how a question is put, and the sections that have files of their own. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <cuda.h>
#include <stdio.h>

extern CUcontext context;
extern size_t granularity;

/* A question, with its answer. */
#define SAY(call) printf("%-90s %d\n", #call, (int)(call))
/* What must succeed for the questions to make sense. */
#define NEED(call) need(call, #call, __LINE__)
void need(CUresult result, const char *what, int timeline);

CUmemAllocationProp prop_of(void);

void vmm(void);
void captures(void);
void shared(void);

void many_entered(void);
void ended_here(void);
void ended_elsewhere(void);
void ended_entered(void);
