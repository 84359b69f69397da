/* A training loop without the arithmetic: the memory traffic of a small network with recompute, where each
 * step has another sequence length, so that no two steps ask for the same sizes.
 *
 *     forward    keep one activation a layer, drop the inner ones;  ask for the largest block, the logits
 *     backward   make the inner ones again;  one gradient a layer, averaged on the side stream
 *     optimiser  two moments and the weight of each layer change
 *     input      the batch of the next step is fetched on the side stream meanwhile
 *
 * Each block is filled with a value that tells it from its neighbours. When the loop is done with a block, it
 * fetches parts of it and compares them at the end of the step: memory with two owners shows up as a mismatch.
 *
 * blocks.c does the asking, the counting and the comparing. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "blocks.h"

#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

enum { LAYERS = 12, SEQ_MIN = 128, SEQ_MAX = 1024 };

/* Bytes for one position of the sequence, before --scale. The odd terms keep sizes off any round boundary. */
enum { BATCH_WIDTH = 1024, BOUNDARY_WIDTH = 1024 + 24, INNER_WIDTH = 4096 + 40, LOGITS_WIDTH = 8192 + 8 };

/* What a block is for: one part of the value that fills it. */
enum role { BATCH, WEIGHT, FIRST_MOMENT, SECOND_MOMENT, BOUNDARY, INNER, LOGITS, GRADIENT, BUCKET, SCRATCH, RESCALED };

static struct {
    int steps;
    double scale;
    bool json;
} options = {.steps = 20, .scale = 1.0};

static struct {
    struct block weight, first, second; /* the two moments of the optimiser */
    struct block boundary, gradient;
} layer[LAYERS];

static struct block batch;
static unsigned char *staged[2]; /* the batch on the host, pinned: of even and of odd steps */

/* ---- numbers ---- */

static size_t scaled(size_t bytes) {
    size_t result = (size_t)((double)bytes * options.scale);
    return result ? result : 1;
}

/* Never 0, which fresh memory often holds. */
static unsigned char value_of(enum role role, int step, int index) {
    uint32_t mixed = ((uint32_t)step * 131 + (uint32_t)index) * 17 + (uint32_t)role;
    return (unsigned char)(1 + mixed * 2654435761u % 255);
}

/* ---- the network ---- */

static void network_open(void) {
    for (int l = 0; l < LAYERS; l++) {
        size_t bytes = scaled(600 * KIB + (size_t)(l % 5) * 97 * KIB + 40);
        layer[l].weight = block_take(COMPUTE, bytes, value_of(WEIGHT, 0, l));
        layer[l].first = block_take(COMPUTE, bytes, value_of(FIRST_MOMENT, 0, l));
        layer[l].second = block_take(COMPUTE, bytes, value_of(SECOND_MOMENT, 0, l));
    }
}

static void network_close(void) {
    for (int l = 0; l < LAYERS; l++) {
        struct block *own[] = {&layer[l].weight, &layer[l].first, &layer[l].second};
        for (int i = 0; i < 3; i++) {
            block_check(COMPUTE, own[i]);
            block_give(own[i]);
        }
    }
}

/* Starts to send a step's batch on the side stream. The host buffer is free: two steps ago has settled. */
static void batch_send(int step, size_t seq) {
    batch = block_take_on(SIDE, scaled(seq * BATCH_WIDTH), value_of(BATCH, step, 0));
    batch.value = value_of(BATCH, step, 1);
    memset(staged[step % 2], batch.value, batch.bytes);
    gpu_send(SIDE, batch.data, staged[step % 2], batch.bytes);
    gpu_record(BATCH_READY, SIDE);
}

static void forward(int step, size_t seq) {
    gpu_wait(BATCH_READY, COMPUTE);
    block_check(COMPUTE, &batch);
    for (int l = 0; l < LAYERS; l++) {
        struct block inner = block_take_on(COMPUTE, scaled(seq * INNER_WIDTH), value_of(INNER, step, l));
        layer[l].boundary = block_take_on(COMPUTE, scaled(seq * BOUNDARY_WIDTH), value_of(BOUNDARY, step, l));
        block_check(COMPUTE, &layer[l].weight);
        block_check(COMPUTE, &inner);
        block_give_on(COMPUTE, &inner);
    }
    /* The batch came from the side stream and goes back there, once this stream is past its last use. */
    gpu_record(BATCH_USED, COMPUTE);
    gpu_wait(BATCH_USED, SIDE);
    block_give_on(SIDE, &batch);
}

/* Averages a gradient with its peers': here, a trip through a bucket of the side stream and back. */
static void gradient_reduce(int step, int l) {
    struct block *gradient = &layer[l].gradient;

    gpu_record(GRADIENT_READY, COMPUTE);
    gpu_wait(GRADIENT_READY, SIDE);
    struct block bucket = block_take_on(SIDE, gradient->bytes, value_of(BUCKET, step, l));
    gpu_copy(SIDE, bucket.data, gradient->data, gradient->bytes);
    gpu_fill(SIDE, gradient->data, 0, gradient->bytes);
    gpu_copy(SIDE, gradient->data, bucket.data, gradient->bytes);
    block_give_on(SIDE, &bucket);
    gpu_record(GRADIENT_REDUCED, SIDE);
}

static void backward(int step, size_t seq) {
    struct block logits = block_take_on(COMPUTE, scaled(seq * LOGITS_WIDTH), value_of(LOGITS, step, 0));

    for (int l = LAYERS - 1; l >= 0; l--) {
        struct block inner = block_take_on(COMPUTE, scaled(seq * INNER_WIDTH), value_of(INNER, step, l));
        layer[l].gradient = block_take_on(COMPUTE, layer[l].weight.bytes, value_of(GRADIENT, step, l));
        gradient_reduce(step, l);
        block_check(COMPUTE, &layer[l].boundary);
        block_give_on(COMPUTE, &layer[l].boundary);
        block_check(COMPUTE, &inner);
        block_give_on(COMPUTE, &inner);
        if (l == LAYERS - 1) {
            block_check(COMPUTE, &logits);
            block_give_on(COMPUTE, &logits);
        }
    }
}

static void optimise(int step) {
    gpu_wait(GRADIENT_REDUCED, COMPUTE);
    for (int l = 0; l < LAYERS; l++) {
        struct block *gradient = &layer[l].gradient;

        block_check(COMPUTE, gradient);
        gpu_copy(COMPUTE, layer[l].first.data, gradient->data, gradient->bytes);
        layer[l].first.value = gradient->value;
        block_fill(&layer[l].second, COMPUTE, value_of(SECOND_MOMENT, step, l));
        block_fill(&layer[l].weight, COMPUTE, value_of(WEIGHT, step, l));
        block_give_on(COMPUTE, gradient);
    }
}

/* Plain memory, freed while its work is still queued and asked for again on another stream: the case where
 * an allocator that answers too early shows. */
static void clip_gradients(int step) {
    size_t bytes = scaled(256 * KIB + random_next() % (2 * MIB));

    struct block scratch = block_take(COMPUTE, bytes, value_of(SCRATCH, step, 0));
    block_check(COMPUTE, &scratch);
    block_give(&scratch);

    struct block rescaled = block_take(SIDE, bytes, value_of(RESCALED, step, 0));
    block_check(SIDE, &rescaled);
    block_give(&rescaled);
}

static size_t next_length(void) {
    return SEQ_MIN + random_next() % (SEQ_MAX - SEQ_MIN + 1);
}

static void train(void) {
    size_t seq = next_length();

    network_open();
    gpu_synchronize(COMPUTE);
    batch_send(1, seq);
    for (int step = 1; step <= options.steps; step++) {
        size_t next = next_length();
        forward(step, seq);
        if (step < options.steps)
            batch_send(step + 1, next);
        backward(step, seq);
        clip_gradients(step);
        optimise(step);
        checks_settle();
        seq = next;
    }
    network_close();
    checks_settle();
}

/* ---- the program ---- */

static void usage(FILE *out, const char *program) {
    fprintf(out,
            "usage: %s [--steps N] [--scale F] [--json]\n"
            "Allocates as a training loop does, through the %s, and checks its data.\n"
            "  --steps N   training steps (default 20)\n"
            "  --scale F   multiplies every size (default 1: about 53 MiB alive at once)\n"
            "  --json      print one JSON object as the last line\n"
            "Exits with 1 when any byte is not what was written, or when a CUDA call fails.\n",
            program, train_api);
}

static void parse(int argc, char **argv) {
    static const struct option known[] = {
        {"steps", required_argument, NULL, 'n'},
        {"scale", required_argument, NULL, 's'},
        {"json", no_argument, NULL, 'j'},
        {"help", no_argument, NULL, 'h'},
        {0},
    };
    int c;
    while ((c = getopt_long(argc, argv, "", known, NULL)) != -1)
        switch (c) {
        case 'n': options.steps = atoi(optarg); break;
        case 's': options.scale = atof(optarg); break;
        case 'j': options.json = true; break;
        case 'h': usage(stdout, argv[0]); exit(0);
        default: usage(stderr, argv[0]); exit(2);
        }
    if (optind < argc || options.steps < 1 || !(options.scale > 0)) {
        usage(stderr, argv[0]);
        exit(2);
    }
}

static void report(double seconds) {
    size_t peak_used = account.peak_used - account.idle_used;

    printf("%s: %d steps in %.2f s\n", train_api, options.steps, seconds);
    printf("  most bytes alive      %9.1f MiB\n", (double)account.peak_live / MIB);
    printf("  most of the device    %9.1f MiB\n", (double)peak_used / MIB);
    printf("  allocations, frees    %9zu calls, %.2f ms in them\n", account.calls, account.us / 1e3);
    printf("  data                  %9s\n", account.mismatches ? "WRONG" : "right");
    if (options.json)
        printf("{\"ok\": %s, \"mismatches\": %d, \"steps\": %d, \"seconds\": %.4f, \"peak_live_bytes\": %zu, "
               "\"alloc_calls\": %zu, \"alloc_us\": %.1f, \"peak_used_bytes\": %zu}\n",
               account.mismatches ? "false" : "true", account.mismatches, options.steps, seconds, account.peak_live,
               account.calls, account.us, peak_used);
}

int main(int argc, char **argv) {
    parse(argc, argv);
    gpu_open();
    blocks_open();
    for (int i = 0; i < 2; i++)
        staged[i] = gpu_host_alloc(scaled(SEQ_MAX * BATCH_WIDTH));

    double start = now_us();
    train();
    report((now_us() - start) / 1e6);

    for (int i = 0; i < 2; i++)
        gpu_host_free(staged[i]);
    blocks_close();
    gpu_close();
    return account.mismatches ? 1 : 0;
}
