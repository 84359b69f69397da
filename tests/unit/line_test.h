/* What the tests of lines share. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LINE_TEST_H
#define LINE_TEST_H

#include "fixture.h"

static const char SIM[] = "capacity=64M,granularity=64K,lazy=0";

static inline struct vp_line *line_of(CUstream stream)
{
    struct vp_line *line = NULL;
    cr_assert(!vp_line_get(&fx.lines, stream, &line));
    return line;
}

static inline struct vp_line *line(int stream)
{
    return line_of(fx.stream[stream]);
}

static inline vp_cond freed(struct vp_line *on, bool record)
{
    vp_cond cond = { 0 };
    cr_assert(!vp_cond_free(&fx.lines, &cond, on, record));
    return cond;
}

static inline vp_cond freed_by_all(bool record)
{
    vp_cond cond = { 0 };
    cr_assert(!vp_cond_barrier(&fx.lines, &cond, fx.context, record));
    return cond;
}

/* Over, as far as the driver says when asked? */
static inline bool over(vp_cond *cond)
{
    vp_lines_poll(&fx.lines, true);
    return vp_cond_settle(&fx.lines, cond);
}

static inline unsigned long records(void)
{
    return vp_sim_calls("cuEventRecord");
}

static inline unsigned long barriers(void)
{
    return vp_sim_calls("cuCtxRecordEvent");
}

#endif
