/* The library's beginning and end in a process.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VP_LOAD_H
#define VP_LOAD_H

/* The program has its driver and the library is open on it. Once. */
void vp_load_opened(void);

/* nvtx.c: in the child of a fork. */
void vp_nvtx_fork_child(void);

#endif
