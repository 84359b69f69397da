/* Framework environment: the variables by which PyTorch, JAX and TensorFlow leave their allocations to CUDA,
 * and so to us.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VP_ADOPT_H
#define VP_ADOPT_H

/*
 * Sets those that are unset. Before the program starts: frameworks read them when they are loaded, and
 * children inherit them. What a parent's adoption set is taken back first (VPOOL_ADOPTED names it): a child goes by its
 * own VPOOL_ADOPT and variables.
 */
void vp_adopt(void);

/*
 * Says which values of the user's were kept although they keep a framework's memory from us. For a process
 * that uses CUDA, once.
 */
void vp_adopt_report(void);

#endif
