/* Dumps by signal and by time.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VP_DUMPER_H
#define VP_DUMPER_H

/*
 * Starts what VPOOL_DUMP asks for: a thread, if there is anything to do for it, and a handler for the signal,
 * if the program has none. Once, when the program has its driver.
 */
void vp_dumper_start(void);

#endif
