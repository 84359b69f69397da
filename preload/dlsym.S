/* dlsym and dlvsym, seen by the program instead of libc's.
 *
 * libc tells by the return address who asks, and by that what RTLD_NEXT, RTLD_DEFAULT and the symbols of
 * privately loaded libraries are. So the real function must be *jumped* to, with the program's own return
 * address and arguments, and no compiler promises that of C. vp_early_ask() answers the address to hand out,
 * or NULL to go on; 1 is NULL for the program. */
/* SPDX-License-Identifier: Apache-2.0 */
#if defined(__x86_64__)

    .macro DOOR name, real, clear_version
    .globl  \name
    .type   \name, @function
    .p2align 4
\name:
    .cfi_startproc
    endbr64
    pushq   %rdi
    .cfi_adjust_cfa_offset 8
    pushq   %rsi
    .cfi_adjust_cfa_offset 8
    pushq   %rdx            /* with the return address, 32 bytes: the stack is aligned for a call */
    .cfi_adjust_cfa_offset 8
    .if \clear_version
    xorl    %edx, %edx
    .endif
    leaq    vp_lookup_ask(%rip), %rcx
    call    vp_early_ask
    popq    %rdx
    .cfi_adjust_cfa_offset -8
    popq    %rsi
    .cfi_adjust_cfa_offset -8
    popq    %rdi
    .cfi_adjust_cfa_offset -8
    testq   %rax, %rax
    jz      1f
    cmpq    $1, %rax
    je      2f
    ret
2:  xorl    %eax, %eax
    ret
1:  jmp     *\real(%rip)
    .cfi_endproc
    .size   \name, . - \name
    .endm

#elif defined(__aarch64__)

    .macro DOOR name, real, clear_version
    .globl  \name
    .type   \name, %function
    .p2align 4
\name:
    .cfi_startproc
    hint    #34             /* bti c */
    stp     x29, x30, [sp, #-48]!
    .cfi_def_cfa_offset 48
    .cfi_offset 29, -48
    .cfi_offset 30, -40
    mov     x29, sp
    stp     x0, x1, [sp, #16]
    str     x2, [sp, #32]
    .if \clear_version
    mov     x2, xzr
    .endif
    adrp    x3, vp_lookup_ask
    add     x3, x3, :lo12:vp_lookup_ask
    bl      vp_early_ask
    mov     x16, x0
    ldp     x0, x1, [sp, #16]
    ldr     x2, [sp, #32]
    ldp     x29, x30, [sp], #48
    .cfi_restore 30
    .cfi_restore 29
    .cfi_def_cfa_offset 0
    cbz     x16, 1f
    cmp     x16, #1
    csel    x0, xzr, x16, eq
    ret
1:  adrp    x16, \real
    ldr     x16, [x16, #:lo12:\real]
    br      x16
    .cfi_endproc
    .size   \name, . - \name
    .endm

#else
#error "dlsym is written for x86-64 and aarch64"
#endif

    .hidden vp_early_ask
    .hidden vp_lookup_ask
    .hidden vp_real_dlsym
    .hidden vp_real_dlvsym
    .text
    DOOR dlsym, vp_real_dlsym, 1
    DOOR dlvsym, vp_real_dlvsym, 0

    .section .note.GNU-stack, "", %progbits
