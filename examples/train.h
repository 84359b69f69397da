/* What the two example programs share.
 *
 * train.c tells the training loop once and asks for memory and GPU work through the functions below.
 * train_runtime.c answers them with the CUDA runtime API, train_driver.c with the driver API.
 * Each of them checks its own CUDA calls: a call that fails names itself on stderr and ends the program. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

/* Both streams are non-blocking: nothing but the events of the loop itself orders them. */
enum train_stream { COMPUTE, SIDE, STREAMS };

/* Events that hand work over between the two streams. */
enum train_event { BATCH_READY, BATCH_USED, GRADIENT_READY, GRADIENT_REDUCED, EVENTS };

/* The API's name, for the report. */
extern const char train_api[];

/* Opens device 0 and makes the streams and events; closes them again. */
void gpu_open(void);
void gpu_close(void);

/* Bytes of the device in use, by anyone. */
size_t gpu_used(void);

/* Memory that any stream may use at once; it may be freed while work on it is still queued. */
void *gpu_alloc(size_t bytes);
void gpu_free(void *block);

/* Memory that belongs to one stream's order. */
void *gpu_alloc_on(enum train_stream stream, size_t bytes);
void gpu_free_on(enum train_stream stream, void *block);

/* Pinned host memory, so that a fetch does not stop the host. */
void *gpu_host_alloc(size_t bytes);
void gpu_host_free(void *block);

/* Work queued on a stream; `host` must stay valid until the stream has been waited for. */
void gpu_fill(enum train_stream stream, void *block, unsigned char value, size_t bytes);
void gpu_copy(enum train_stream stream, void *to, const void *from, size_t bytes);
void gpu_send(enum train_stream stream, void *to, const void *host, size_t bytes);
void gpu_fetch(enum train_stream stream, void *host, const void *from, size_t bytes);

/* Order between streams, and between a stream and the host. */
void gpu_record(enum train_event event, enum train_stream stream);
void gpu_wait(enum train_event event, enum train_stream stream);
void gpu_synchronize(enum train_stream stream);
