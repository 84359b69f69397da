/* What the race tests share. They are plain programs, since Criterion does not bear ThreadSanitizer; each
 * does one thing from several threads at once. ThreadSanitizer finds the races; without it the programs still
 * find crashes, hangs and wrong answers. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "../common/doors.h"
#include "sim.h"

/* Ends the program unless the condition holds. */
#define CHECK(condition) race_check(condition, #condition, __FILE__, __LINE__)
/* Ends the program unless the CUDA call succeeds. */
#define CU(call) race_check_result(call, #call, __FILE__, __LINE__)

enum { RACERS = 4 };

void race_check(bool condition, const char *text, const char *file, int line);
void race_check_result(CUresult res, const char *text, const char *file, int line);

/* Configures the simulated driver, opens the api on it, and makes the primary context of device 0 current. */
void race_open(const char *sim);
CUcontext race_context(void);

/* Runs `racer(index)` in RACERS threads that set off together, each with the primary context current; returns
 * when all have ended. */
void race_run(void (*racer)(int index));

/* Proves every pool sound, and that no queued work was wronged. */
void race_close(void);
