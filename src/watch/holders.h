/* Who holds memory, and in which ranges the program is, told in text and JSON. Where stacks are not recorded and no
 * range was ever begun, nothing is told. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "watch/say.h"
#include "watch/shared_stats.h"
#include "base/json.h"
#include "driver/driver.h"

/* The largest holders of a device, in dumps and statistics at exit. */
enum { VP_HOLDERS_TOLD = 32 };

/* An array `holders`: each with bytes, blocks, sampled and its stack, the innermost frame first; `named`: of native
 * code with the functions' names, for which see vp_holders_say(). */
void vp_holders_json(struct vp_json *j, CUdevice device, bool named);
/* Arrays `stacks` and `frames`: those stacks below `count` that `named` marks, and those that called them, by number;
 * the callers first. */
void vp_holders_stacks_json(struct vp_json *j, uint8_t *named, uint32_t count);
/* The `most` largest, each with so many frames; every line begins with `indent`. Not under the library's lock: names of
 * functions are asked of the dynamic linker. */
void vp_holders_say(struct vp_text *t, CUdevice device, int most, int frames, const char *indent);

/* Answers a reader's wish, if there is one, by a file beside that of the page. Not under a lock. */
void vp_holders_answer(struct vp_shared_stats *page, const char *file);

/* Tells the log who asked for a block. Not under the library's lock either. */
void vp_holders_log(uint32_t stack);

/* Of the peak, when it was and the line that held most then: in words behind "the peak was". "": not known. Not under
 * the library's lock. */
void vp_holders_peak(char *text, size_t room);

/* An array `ranges`: for each name the most that was alive in one, and how many there were. */
void vp_ranges_json(struct vp_json *j);
/* An array `threads`: the range that each is in. */
void vp_ranges_open_json(struct vp_json *j);
void vp_ranges_say(struct vp_text *t);
/* The five in which most was alive, a line each. */
void vp_ranges_say_most(struct vp_text *t, const char *indent);
