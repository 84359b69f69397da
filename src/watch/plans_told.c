/* How far a plan has fitted, in statistics, dumps and the closing summary. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "watch/plans.h"

#include "base/log.h"
#include "pool/learnt/ahead.h"

struct vp_plan_figures vp_plans_figures(const struct vp_pool *pool) {
    const struct vp_ahead *a = pool->ahead;
    struct vp_plan_figures f = {.wanted = pool->learn || a, .used = a != NULL};
    if (!a)
        return f;
    f.requests = a->requests;
    f.known = a->found;
    f.placed = a->served;
    f.late = a->lacking;
    f.made_bytes = pool->mem.stats.planned_bytes;
    f.used_bytes = vp_ahead_used_bytes(pool);
    f.returned_bytes = pool->mem.stats.planned_returned;
    f.background_ns = a->background_ns;
    f.background_calls = a->background_calls;
    return f;
}

void vp_plans_json(struct vp_json *j, const struct vp_plan_figures *f) {
    if (!f->wanted)
        return;
    vp_json_begin_object(j, "plan");
    vp_json_bool(j, "used", f->used);
    vp_json_numbers(j, {"requests", f->requests}, {"known", f->known}, {"placed", f->placed}, {"late", f->late});
    vp_json_double(j, "share", f->requests ? (double)f->placed / (double)f->requests : 0);
    vp_json_numbers(j, {"made_bytes", f->made_bytes}, {"used_bytes", f->used_bytes},
                    {"returned_bytes", f->returned_bytes});
    vp_json_double(j, "background_us", (double)f->background_ns / 1e3);
    vp_json_u64(j, "background_calls", f->background_calls);
    vp_json_end_object(j);
}

void vp_plans_print(const struct vp_pool *pool) {
    const struct vp_plan_figures f = vp_plans_figures(pool);
    if (f.used)
        vp_log_print(
            "  plan: %lu of %lu large requests had their places; %.1f MiB made ahead in %.1f ms, %.1f MiB of it "
            "used, %.1f MiB given back",
            f.placed, f.requests, (double)f.made_bytes / 1048576, (double)f.background_ns / 1e6,
            (double)f.used_bytes / 1048576, (double)f.returned_bytes / 1048576);
    else if (f.wanted)
        vp_log_print("  plan: there was none to begin with; a run that exits leaves one for the next");
}
