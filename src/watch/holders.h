/* Writes which stacks hold memory, and which ranges the program is in, as text and JSON. Writes nothing if stacks are
 * not recorded and no range was ever begun. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "watch/say.h"
#include "watch/shared_stats.h"
#include "base/json.h"
#include "driver/driver.h"

/* How many of the largest holders of a device dumps and statistics list. */
enum { VP_HOLDERS_TOLD = 32 };

/* Writes an array `holders`: each with bytes, blocks, sampled and its stack, the innermost frame first. `named`: with
 * the function names of native code, which vp_holders_say() has restrictions for. */
void vp_holders_json(struct vp_json *j, CUdevice device, bool named);
/* Writes arrays `stacks` and `frames`: the stacks below `count` that `named` marks and their callers, callers first. */
void vp_holders_stacks_json(struct vp_json *j, uint8_t *named, uint32_t count);
/* Writes the `most` largest holders, with `frames` frames each; every line begins with `indent`. Not under the
 * library's lock: the dynamic linker is asked for names of functions. */
void vp_holders_say(struct vp_text *t, CUdevice device, int most, int frames, const char *indent);

/* Answers a reader's request for holders, if there is one, in a file beside that of the page. Not under a lock. */
void vp_holders_answer(struct vp_shared_stats *page, const char *file);

/* Logs the stack that allocated a block. Not under the library's lock. */
void vp_holders_log(uint32_t stack);

/* When the peak was and which line held most then, as words behind "the peak was". "": not known. Not under a lock. */
void vp_holders_peak(char *text, size_t room);

/* Writes an array `ranges`: for each name, the most that was alive in a range, and how many ranges there were. */
void vp_ranges_json(struct vp_json *j);
/* Writes an array `threads`: the range that each thread is in. */
void vp_ranges_open_json(struct vp_json *j);
void vp_ranges_say(struct vp_text *t);
/* Writes the five ranges with the highest peaks, a line each. */
void vp_ranges_say_most(struct vp_text *t, const char *indent);
