/* Is linked with the guest, as C++ programs are with PyTorch: its libraries begin before libvpool.so does.
 * usage: linked CASE */
/* SPDX-License-Identifier: Apache-2.0 */
int standin_run(const char *name);

int main(int argc, char **argv) {
    return argc == 2 ? standin_run(argv[1]) : 2;
}
