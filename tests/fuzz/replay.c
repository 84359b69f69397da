/* A fuzz target without libFuzzer.
 *
 * usage: fuzz_TARGET PATH...                         runs the files named, and all files of the folders named
 *        fuzz_TARGET --random SECONDS [SEED [KEEP]]  runs random inputs, each written to the file KEEP before */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fuzz.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static unsigned done;

static void run_file(const char *path) {
    FILE *file = fopen(path, "rb");
    char *text = NULL;
    size_t size = 0, room = 0;
    if (!file)
        fuzz_fail("%s cannot be read", path);
    for (int c; (c = getc(file)) != EOF; text[size++] = (char)c)
        if (size == room && !(text = realloc(text, room = 2 * room + 4096)))
            abort();
    fclose(file);
    /* Said before it runs: the last one named is to blame. */
    printf("# %s\n", path);
    fflush(stdout);
    /* Exactly as long as the input, for the sanitizers. */
    uint8_t *data = malloc(size + !size);
    if (!data)
        abort();
    if (size)
        memcpy(data, text, size);
    free(text);
    LLVMFuzzerTestOneInput(data, size);
    free(data);
    done++;
}

/* xorshift64*. */
static uint64_t next_random(uint64_t *state) {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * UINT64_C(0x2545f4914f6cdd1d);
}

static void run_random(double seconds, uint64_t seed, const char *keep) {
    uint8_t data[4096];
    uint64_t state = seed * UINT64_C(0x9e3779b97f4a7c15) | 1;
    FILE *file = keep ? fopen(keep, "w+b") : NULL;
    for (time_t end = time(NULL) + (time_t)seconds; time(NULL) < end; done++) {
        size_t size = 1 + next_random(&state) % sizeof data;
        for (size_t i = 0; i < size; i++)
            data[i] = (uint8_t)(next_random(&state) >> 56);
        if (file && (fseek(file, 0, SEEK_SET) || fwrite(data, size, 1, file) != 1 || fflush(file) ||
                     ftruncate(fileno(file), (off_t)size)))
            abort();
        LLVMFuzzerTestOneInput(data, size);
    }
    if (file)
        fclose(file);
}

int main(int argc, char **argv) {
    if (argc > 2 && !strcmp(argv[1], "--random")) {
        run_random(atof(argv[2]), argc > 3 ? strtoull(argv[3], NULL, 10) : 1, argc > 4 ? argv[4] : NULL);
        printf("%u inputs, no finding\n", done);
        return 0;
    }
    for (int i = 1; i < argc; i++) {
        struct dirent **names;
        int n = scandir(argv[i], &names, NULL, alphasort);
        if (n < 0) {
            run_file(argv[i]);
            continue;
        }
        for (int k = 0; k < n; k++) {
            char path[4096];
            snprintf(path, sizeof path, "%s/%s", argv[i], names[k]->d_name);
            if (names[k]->d_name[0] != '.')
                run_file(path);
            free(names[k]);
        }
        free(names);
    }
    printf("%u inputs, no finding\n", done);
    return done == 0;
}
