/* Which process of a run came first, and what is told when a signal ends one.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VP_FIRST_H
#define VP_FIRST_H

/* At load, where statistics are to be printed: marks the environment, unless the parent has. */
void vp_first_mark(void);

/* When the program has its driver: statistics are written, too, where a signal ends the process that it has no handler
 * for. */
void vp_first_hear_signals(void);

#endif
