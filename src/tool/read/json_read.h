/* Reads JSON that the library wrote: small, entirely in memory, and not deeply nested. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

/* Gets a value that is no object or array, with its path ("devices.0.allocs"); for a string, the text. Both are valid
 * only during the call. */
typedef void vp_json_value_fn(void *context, const char *path, const char *value);

/* Calls `value` for each value, in order. False: it is no JSON, or nested too deeply; earlier values were passed on. */
bool vp_json_read(const char *text, vp_json_value_fn *value, void *context);
/* The same. Returns NULL, or about where in `text` the fault is. */
const char *vp_json_fault(const char *text, vp_json_value_fn *value, void *context);
