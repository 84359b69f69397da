/* The library and the simulated driver, opened afresh for each input and closed behind it. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "fuzz.h"

#include <cuda.h>

struct world {
    int devices;
    bool small_are_native; /* the policy leaves them to the driver */
    bool lossy;            /* a call that gives back was made to fail: what it was for may stay */
    size_t capacity, granularity;
    size_t limit;     /* bytes that the pool of a device may hold */
    size_t handle;    /* bytes of the largest handle */
    bool dropped;     /* blocks of bare segments went with their context, which count as no frees */
    bool captures;    /* there is so much memory that captures may keep some back */
    bool newer;       /* the input may name the younger kinds of operations */
    bool unseen;      /* contexts end with nobody telling the library, and handles may be used that are no more */
    bool can_peer;    /* devices may access each other's memory */
    bool no_holds;    /* the pool may leave memory to the driver, whose calls wait for what is held */
    bool old_driver;  /* no barriers over contexts: events on the legacy stream */
    bool sync_free;   /* cudaFree waits for the device */
    bool never_waits; /* no stream is made to wait for another, but to avoid being out of memory */
    CUcontext context[2];
};

extern struct world world;

/* What the rest of the program does while a call of the library waits on the host and has let its lock go;
 * NULL: nothing. */
extern void (*world_meanwhile)(void);

/* The options of the library and of the driver come from the input; those of the policy only where the program is not
 * to have `bare` segments, which one policy has alone. */
void world_open(struct fuzz_input *in, bool bare);
/* All blocks must have been freed, by the program's own calls. Fails if anything is left. */
void world_close(void);
/* Fails unless the pools' invariants hold and the driver saw nothing wrong. */
void world_check(void);
