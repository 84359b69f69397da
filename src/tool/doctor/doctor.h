/* Shared by the parts of vpool doctor. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/options.h"

/* Right; something to know; something to do. */
enum mark { OK, NOTE, WRONG };

/* lending.c: what keeps idle memory from processes that lack it, of what is started now and of those that run. */
void vp_doctor_lending(const struct vp_options *o, void (*say)(enum mark mark, const char *line));

/* asleep.c: of each process that vpool pause was at, whether it runs, and what to do about it. */
void vp_doctor_asleep(void (*say)(enum mark mark, const char *line));
