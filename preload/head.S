/* How the doors begin that UCX writes into: it moves a function's first instructions, 12 bytes, to code of its own, and
 * knows but few that may stand there. A compiler's are others on another day. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "doors_list.h"

    .macro HEAD symbol
    .globl  \symbol
    .type   \symbol, %function
    .hidden vp_body_\symbol
    .p2align 4
\symbol:
    .cfi_startproc
#if defined(__x86_64__)
    subq    $0, %rsp
    subq    $0, %rsp
    subq    $0, %rsp
    jmp     vp_body_\symbol
#else
    hint    #34             /* bti c */
    b       vp_body_\symbol
#endif
    .cfi_endproc
    .size   \symbol, . - \symbol
    .endm

    .text
#define HEAD_OF(symbol) HEAD symbol;
    VP_DOORS_WITH_HEAD(HEAD_OF)

    .section .note.GNU-stack, "", %progbits
