/* The plan by which the policy stalloc places requests; stalloc.c describes what was published. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Requests of so many bytes and less are in no plan: they have a pool of their own. */
enum { VP_STALLOC_TINY = 512 };

/* Ranges of the program of these names are modules, and steps: docs/plans.md has what they are for. */
#define VP_STALLOC_MODULE "module:"
#define VP_STALLOC_STEP "step:"

struct vp_stalloc_place {
    uint64_t size; /* as it is taken: whole quanta */
    uint64_t offset;
    uint32_t stream; /* the number of the stream that asked, which nobody looks at */
};

/* Addresses within the plan. */
struct vp_stalloc_space {
    uint64_t low, high;
};

/* A module that was entered: what its requests may use, as no planned block lies there before the last of them ends. */
struct vp_stalloc_visit {
    size_t first, count; /* spaces */
    size_t next;         /* the module's next visit, and one; 0: there is none */
    size_t at, phase;    /* places before it, and phases */
};

/* A module whose requests differ from visit to visit. */
struct vp_stalloc_module {
    size_t name;                /* where it begins in `names` */
    size_t first, last, repeat; /* visits, and the one that follows the last */
};

/* The n-th request is to lie at the n-th place, but for those of modules. */
struct vp_stalloc_plan {
    struct vp_stalloc_place *places;
    size_t count;
    size_t repeat; /* the place that follows the last: that where the program's last step began */
    uint64_t peak; /* bytes that all places lie in */
    struct vp_stalloc_module *modules;
    struct vp_stalloc_visit *visits;
    struct vp_stalloc_space *spaces;
    char *names;
    size_t module_count, visit_count, space_count, names_size;
};

/* The module of that name; the number of modules: there is none. */
size_t vp_stalloc_module(const struct vp_stalloc_plan *plan, const char *name);

struct vp_pool;

/* Of a pool of this policy alone: how many requests got their places so far, and how many were left to the cache; and
 * of both, those of modules. */
struct vp_stalloc_figures {
    uint64_t placed, missed, module_placed, module_missed;
};
struct vp_stalloc_figures vp_stalloc_figures(const struct vp_pool *pool);

/* As struct vp_policy's range(). */
void vp_stalloc_range(struct vp_pool *pool, const char *name, uint64_t thread, unsigned depth);
/* The program that was planned begins once more. */
void vp_stalloc_restart(struct vp_pool *pool);
