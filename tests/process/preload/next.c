/* libnext.so: what libself.so finds behind itself. */
/* SPDX-License-Identifier: Apache-2.0 */
int self_answer(void);
int next_only(void);

int self_answer(void) {
    return 2;
}

int next_only(void) {
    return 3;
}
