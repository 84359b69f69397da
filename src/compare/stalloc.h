/* The plan by which the policy stalloc places requests; stalloc.c describes what was published. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Requests of at most this size are in no plan: they have a pool of their own. */
enum { VP_STALLOC_TINY = 512 };

/* The program's ranges with these names are modules, and steps: see docs/plans.md. */
#define VP_STALLOC_MODULE "module:"
#define VP_STALLOC_STEP "step:"

struct vp_stalloc_place {
    uint64_t size; /* the size taken, in whole quanta */
    uint64_t offset;
    uint32_t stream; /* the number of the stream that asked; only compared between places */
};

/* Addresses within the plan. */
struct vp_stalloc_space {
    uint64_t low, high;
};

/* A visit of a module, and the addresses that its requests may use: no planned block is there until the last of them is
 * freed. */
struct vp_stalloc_visit {
    size_t first, count; /* indices of its spaces */
    size_t next;         /* index of the module's next visit, plus one; 0: there is none */
    size_t at, phase;    /* how many places and phases come before it */
};

/* A module whose requests differ from visit to visit. */
struct vp_stalloc_module {
    size_t name;                /* where it begins in `names` */
    size_t first, last, repeat; /* indices of visits; `repeat` follows the last */
};

/* The n-th request gets the n-th place; requests of modules are not counted. */
struct vp_stalloc_plan {
    struct vp_stalloc_place *places;
    size_t count;
    size_t repeat; /* the place that follows the last: where the program's last step began */
    uint64_t peak; /* the size of the range of all places */
    struct vp_stalloc_module *modules;
    struct vp_stalloc_visit *visits;
    struct vp_stalloc_space *spaces;
    char *names;
    size_t module_count, visit_count, space_count, names_size;
};

/* Returns the index of the module of that name; the number of modules: there is none. */
size_t vp_stalloc_module(const struct vp_stalloc_plan *plan, const char *name);

struct vp_pool;

/* Only for a pool of this policy: how many requests got their places so far, how many were left to the cache, and how
 * many of both were requests of modules. */
struct vp_stalloc_figures {
    uint64_t placed, missed, module_placed, module_missed;
};
struct vp_stalloc_figures vp_stalloc_figures(const struct vp_pool *pool);

/* The policy's range(): see struct vp_policy. */
void vp_stalloc_range(struct vp_pool *pool, const char *name, uint64_t thread, unsigned depth);
/* To be called when the planned program begins again. */
void vp_stalloc_restart(struct vp_pool *pool);
