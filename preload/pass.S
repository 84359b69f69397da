/* Functions of which the call matters: told of, then jumped to with every argument in place. So are those of PyTorch's
 * libraries, of which no signature is needed this way, nor a look at where the answer goes; and dlsym and dlvsym, seen by the
 * program instead of libc's: libc tells by the return address who asks, and by that what RTLD_NEXT, RTLD_DEFAULT and the
 * symbols of privately loaded libraries are, so that the real function must be *jumped* to, with the program's own return
 * address, and no compiler promises that of C.
 *
 * Who is told gets the number, the registers of the first arguments, which it may change, and the return address, and answers
 * the address to jump to. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "doors_list.h"

#if defined(__x86_64__)

    .macro PASS name, told
    .globl  \name
    .type   \name, @function
    .p2align 4
\name:
    .cfi_startproc
    endbr64
    subq    $72, %rsp       /* the stack is aligned for a call */
    .cfi_adjust_cfa_offset 72
    movq    %rdi, 0(%rsp)
    movq    %rsi, 8(%rsp)
    movq    %rdx, 16(%rsp)
    movq    %rcx, 24(%rsp)
    movq    %r8, 32(%rsp)
    movq    %r9, 40(%rsp)
    movl    $number, %edi
    movq    %rsp, %rsi
    movq    72(%rsp), %rdx  /* the return address */
    call    \told
    movq    0(%rsp), %rdi
    movq    8(%rsp), %rsi
    movq    16(%rsp), %rdx
    movq    24(%rsp), %rcx
    movq    32(%rsp), %r8
    movq    40(%rsp), %r9
    addq    $72, %rsp
    .cfi_adjust_cfa_offset -72
    jmp     *%rax
    .cfi_endproc
    .size   \name, . - \name
    .set    number, number + 1
    .endm

#elif defined(__aarch64__)

    .macro PASS name, told
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
    mov     w0, #number
    add     x1, sp, #16
    mov     x2, x30
    bl      \told
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
    .set    number, number + 1
    .endm

#else
#error "written for x86-64 and aarch64"
#endif

    .hidden vp_lookup_pass
    .hidden vp_torch_pass
    .text
    .set    number, 0
#define PASSED(name, symbol) PASS symbol, vp_torch_pass;
    VP_DOORS_TORCH_PASSED(PASSED)
    .set    number, 0
#define OF_LIBC(symbol) PASS symbol, vp_lookup_pass;
    VP_DOORS_LIBC(OF_LIBC)

    .section .note.GNU-stack, "", %progbits
