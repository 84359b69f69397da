/* Adoption: sets the environment variables that make PyTorch, JAX and TensorFlow leave their allocations to CUDA. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <cuda.h>

/* Does PyTorch keep its cache (torch.h)? Then its variable is not set. */
extern bool vp_adopt_bare;
/* Does PyTorch use cudaMallocAsync because of us, not by the user's choice? */
extern bool vp_adopt_async;

/* Sets the variables that are unset, once, before the program starts: frameworks read them when they are loaded, which
 * may be before this library is initialised, and child processes inherit them. First unsets what the adoption of a
 * parent process has set (VPOOL_ADOPTED names it), so that a child follows its own VPOOL_ADOPT and variables. */
void vp_adopt(void);

/* Sets PyTorch's variable after all, if it is unset: PyTorch is about to read it, and its cache cannot be followed. */
void vp_adopt_torch(void);

/* PyTorch is being loaded and about to read its settings: unsets ours if the program has set the variable's other name.
 */
void vp_adopt_read(void);

/* The program is replacing PyTorch's allocator with its own. PyTorch has not parsed its variable yet, and would refuse
 * a backend there that is not in use: unsets ours. */
void vp_adopt_changed(void);

/* Is a framework loaded that makes stream-ordered calls because of us, where its own cache would make none? */
bool vp_adopt_has_any(void);

/* Returns the value to set for an attribute of a memory pool: `value`, or a pointer to 0. XLA's allocator sets a
 * release threshold, reads it back, and preallocates that much if XLA_PYTHON_CLIENT_PREALLOCATE is unset: it shall find
 * 0. If that were false, it would set no threshold, but also report no limit (bytes_limit), which programs plan by. */
void *vp_adopt_threshold(const void *caller, CUmemPool_attribute attr, void *value);

/* Logs, once, which values of the user were kept although they keep a framework's memory from the library. For
 * processes that use CUDA. */
void vp_adopt_report(void);

/* PyTorch fails with this text; NULL: CUDA refused to share stream-ordered memory. If the backend that we chose cannot
 * do what was asked, logs a line, once. */
void vp_adopt_refused(const char *text);

/* CUDA knows no block that PyTorch frees: one of a graph that was not launched yet, whose tensors the program keeps by
 * address alone. Logs a line, once. */
void vp_adopt_freed(void);

/* PyTorch makes an exception of this text. Rewords out of memory so that programs take it for that of its cache. */
void vp_adopt_reword(char *text, size_t length);
