/* Reads JSON that the library wrote: small, entirely in memory, and not deeply nested. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

/* One value that is no object or array, with the path to it ("devices.0.allocs"); of strings, the text. Both
 * valid during the call only. */
typedef void vp_json_value_fn(void *context, const char *path, const char *value);

/* Calls `value` for each in order. False: not JSON, or too deep; what came before has been told. */
bool vp_json_read(const char *text, vp_json_value_fn *value, void *context);
/* The same; NULL, or about where in `text` it is no JSON. */
const char *vp_json_fault(const char *text, vp_json_value_fn *value, void *context);
