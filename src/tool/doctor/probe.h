/* The tests of `vpool doctor`, each in a process of its own (the command runs itself), so that a driver that crashes or
 * hangs is a finding, too. A test prints lines of a key and a value. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The driver, as any program finds it: its file, version and devices. */
int vp_probe_driver(void);
/* Under the library: the environment that it left, and what becomes of an allocation by each kind of call. */
int vp_probe_pool(void);
