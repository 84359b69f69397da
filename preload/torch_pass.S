/* Functions of PyTorch's libraries of which only the call matters: told of, then jumped to with every argument in place.
 *
 * No signature is needed this way, nor a look at where the answer goes. vp_torch_pass() gets the number, the registers of
 * the first arguments and the return address, and answers the real function's address. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "doors_list.h"

#if defined(__x86_64__)

    .macro PASS number, name
    .globl  \name
    .type   \name, @function
    .p2align 4
\name:
    .cfi_startproc
    endbr64
    subq    $64, %rsp
    .cfi_adjust_cfa_offset 64
    movq    %rdi, 0(%rsp)
    movq    %rsi, 8(%rsp)
    movq    %rdx, 16(%rsp)
    movq    %rcx, 24(%rsp)
    movq    %r8, 32(%rsp)
    movq    %r9, 40(%rsp)
    movl    $\number, %edi
    movq    %rsp, %rsi
    movq    64(%rsp), %rdx  /* the return address */
    subq    $8, %rsp        /* the stack is aligned for a call */
    .cfi_adjust_cfa_offset 8
    call    vp_torch_pass
    addq    $8, %rsp
    .cfi_adjust_cfa_offset -8
    movq    0(%rsp), %rdi
    movq    8(%rsp), %rsi
    movq    16(%rsp), %rdx
    movq    24(%rsp), %rcx
    movq    32(%rsp), %r8
    movq    40(%rsp), %r9
    addq    $64, %rsp
    .cfi_adjust_cfa_offset -64
    jmp     *%rax
    .cfi_endproc
    .size   \name, . - \name
    .endm

#elif defined(__aarch64__)

    .macro PASS number, name
    .globl  \name
    .type   \name, %function
    .p2align 4
\name:
    .cfi_startproc
    hint    #34             /* bti c */
    stp     x29, x30, [sp, #-96]!
    .cfi_def_cfa_offset 96
    .cfi_offset 29, -96
    .cfi_offset 30, -88
    mov     x29, sp
    stp     x0, x1, [sp, #16]
    stp     x2, x3, [sp, #32]
    stp     x4, x5, [sp, #48]
    stp     x6, x7, [sp, #64]
    str     x8, [sp, #80]   /* where a large answer goes */
    mov     w0, #\number
    add     x1, sp, #16
    mov     x2, x30
    bl      vp_torch_pass
    mov     x16, x0
    ldp     x0, x1, [sp, #16]
    ldp     x2, x3, [sp, #32]
    ldp     x4, x5, [sp, #48]
    ldp     x6, x7, [sp, #64]
    ldr     x8, [sp, #80]
    ldp     x29, x30, [sp], #96
    .cfi_restore 30
    .cfi_restore 29
    .cfi_def_cfa_offset 0
    br      x16
    .cfi_endproc
    .size   \name, . - \name
    .endm

#else
#error "written for x86-64 and aarch64"
#endif

    .hidden vp_torch_pass
    .text
#define PASSED(number, symbol) PASS number, symbol;
    VP_DOORS_TORCH_PASSED(PASSED)

    .section .note.GNU-stack, "", %progbits
