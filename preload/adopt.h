/* Framework environment: the variables by which PyTorch, JAX and TensorFlow leave their allocations to CUDA,
 * and so to us. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <cuda.h>

/* Is PyTorch to keep its cache (torch.h)? Its variable is left alone then. */
extern bool vp_adopt_bare;
/* Is it to use its other backend, and not by the user's choice? */
extern bool vp_adopt_async;

/* Sets those that are unset, once. Before the program starts: frameworks read them when they are loaded, which may be
 * before this library begins, and children inherit them. What a parent's adoption set is taken back first
 * (VPOOL_ADOPTED names it): a child goes by its own VPOOL_ADOPT and variables. */
void vp_adopt(void);

/* Sets PyTorch's after all, if it is unset: it is about to be read, and turns out to be needed. */
void vp_adopt_torch(void);

/* PyTorch is about to read its settings, as it is loaded: ours goes if the program has set the variable's other name.
 */
void vp_adopt_read(void);

/* PyTorch's allocator is being changed for the program's own. PyTorch has not parsed its variable yet, and would refuse
 * a backend there that is not in use: ours goes. */
void vp_adopt_changed(void);

/* A memory pool's attribute is being set. XLA's allocator sets a threshold, asks for it, and preallocates so much,
 * where XLA_PYTHON_CLIENT_PREALLOCATE is unset: it is to find none. With false there it would set none, but tell of no
 * limit (bytes_limit), by which programs plan. What is to be set: `value`, or a 0. */
void *vp_adopt_threshold(const void *caller, CUmemPool_attribute attr, void *value);

/* Says which values of the user's were kept although they keep a framework's memory from us. For a process
 * that uses CUDA, once. */
void vp_adopt_report(void);

/* PyTorch fails with that text; NULL: CUDA shows memory of streams to nobody else. What its other backend cannot, where
 * that was not the user's choice, is worth a line, once. */
void vp_adopt_refused(const char *text);

/* PyTorch makes an exception of that text: out of memory is to be known by it as where its cache stays. */
void vp_adopt_reword(char *text, size_t length);
