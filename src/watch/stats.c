/* Statistics at exit. Makes no CUDA call, and waits for no lock that a thread of a dying process may hold. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "watch/watch.h"

#include "base/json.h"
#include "base/output.h"
#include "pool/stream_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct device_stats {
    struct vp_pool_stats pool;
    struct vp_timeline_stats timelines;
};

static struct device_stats device_stats(CUdevice dev) {
    const struct vp_pool *pool = vp_state.pools[dev];
    return (struct device_stats){pool->stats, vp_timelines_stats(&vp_state.timelines, dev)};
}

static double efficiency(const struct vp_pool_stats *s) {
    return s->peak_held_bytes ? (double)s->peak_live_bytes / (double)s->peak_held_bytes : 1.0;
}

static void json_calls(struct vp_json *j, const struct device_stats *s) {
    vp_json_begin_object(j, "driver_calls");
#define JSON_CALL(field, name) vp_json_u64(j, #name, s->pool.calls.field);
    VP_POOL_CALLS(JSON_CALL)
#undef JSON_CALL
    vp_json_u64(j, "cuEventRecord", s->timelines.records);
    vp_json_u64(j, "cuCtxRecordEvent", s->timelines.barriers);
    vp_json_u64(j, "cuEventQuery", s->timelines.queries);
    vp_json_u64(j, "cuStreamWaitEvent", s->timelines.waits);
    vp_json_end_object(j);
}

static void json_device(struct vp_json *j, CUdevice dev) {
    const struct device_stats s = device_stats(dev);
    vp_json_begin_object(j, NULL);
    vp_json_u64(j, "device", (uint64_t)dev);
    vp_json_u64(j, "allocs", s.pool.allocs);
    vp_json_u64(j, "frees", s.pool.frees);
    vp_json_u64(j, "live_bytes", s.pool.live_bytes);
    vp_json_u64(j, "peak_live_bytes", s.pool.peak_live_bytes);
    vp_json_u64(j, "held_bytes", s.pool.held_bytes);
    vp_json_u64(j, "peak_held_bytes", s.pool.peak_held_bytes);
    vp_json_double(j, "efficiency", efficiency(&s.pool));
    json_calls(j, &s);
    vp_json_double(j, "driver_us", (double)(s.pool.driver_ns + s.timelines.ns) / 1e3);
    vp_json_u64(j, "waits_gpu", s.pool.waits_gpu);
    vp_json_u64(j, "waits_host", s.pool.waits_host);
    vp_json_u64(j, "waits_fruitless", s.pool.waits_fruitless);
    vp_json_double(j, "waits_host_us", (double)s.pool.host_wait_ns / 1e3);
    vp_json_u64(j, "ooms", s.pool.ooms);
    vp_json_u64(j, "stitches", s.pool.stitches);
    vp_json_u64(j, "reactivations", s.pool.reactivations);
    vp_json_u64(j, "reaps", s.pool.reaps);
    vp_json_u64(j, "metadata_bytes", vp_pool_metadata(vp_state.pools[dev]));
    vp_json_end_object(j);
}

/* What others in the process made by cuMemCreate. */
static void json_others(struct vp_json *j, CUdevice dev) {
    const struct vp_foreign_sum *o = &vp_state.others[dev];
    vp_json_begin_object(j, NULL);
    vp_json_u64(j, "device", (uint64_t)dev);
    vp_json_u64(j, "handles", o->handles);
    vp_json_u64(j, "bytes", o->bytes);
    vp_json_u64(j, "peak_bytes", o->peak_bytes);
    vp_json_end_object(j);
}

static int write_json(int fd) {
    struct vp_json j;
    char buffer[4096];
    vp_json_init(&j, fd, buffer, sizeof buffer);
    vp_json_begin_object(&j, NULL);
    vp_json_string(&j, "version", VP_VERSION);
    vp_json_u64(&j, "pid", (uint64_t)getpid());
    vp_json_string(&j, "policy", vp_policy_name());
    vp_json_begin_array(&j, "devices");
    for (int dev = 0; dev < VP_DEVICES; dev++)
        if (vp_state.pools[dev])
            json_device(&j, dev);
    vp_json_end_array(&j);
    vp_json_begin_array(&j, "others");
    for (int dev = 0; dev < VP_DEVICES; dev++)
        if (vp_state.others[dev].peak_bytes)
            json_others(&j, dev);
    vp_json_end_array(&j);
    vp_json_begin_array(&j, "doors");
    for (int i = 0; i < VP_PASSED_COUNT; i++)
        if (vp_state.doors >> i & 1)
            vp_json_string(&j, NULL, vp_passed_names[i]);
    vp_json_end_array(&j);
    vp_json_begin_object(&j, "passed_on");
    for (int i = 0; i < VP_PASSED_COUNT; i++)
        if (atomic_load(&vp_state.passed[i]))
            vp_json_u64(&j, vp_passed_names[i], atomic_load(&vp_state.passed[i]));
    vp_json_end_object(&j);
    vp_json_end_object(&j);
    return vp_json_finish(&j);
}

static void print_summary(void) {
    vp_log_print("%s, process %d, policy %s", VP_VERSION, (int)getpid(), vp_policy_name());
    for (int dev = 0; dev < VP_DEVICES; dev++) {
        if (!vp_state.pools[dev])
            continue;
        const struct device_stats s = device_stats(dev);
        vp_log_print("device %d: peak live %.1f MiB, peak held %.1f MiB, efficiency %.1f %%", dev,
                     (double)s.pool.peak_live_bytes / 1048576, (double)s.pool.peak_held_bytes / 1048576,
                     100 * efficiency(&s.pool));
        vp_log_print("  %llu allocations, %llu frees; %.1f MiB still live, %.1f MiB held; out of memory %llu times",
                     (unsigned long long)s.pool.allocs, (unsigned long long)s.pool.frees,
                     (double)s.pool.live_bytes / 1048576, (double)s.pool.held_bytes / 1048576,
                     (unsigned long long)s.pool.ooms);
        vp_log_print("  driver: %.1f ms in %llu creates, %llu maps, %llu unmaps; %llu events, %llu queries",
                     (double)(s.pool.driver_ns + s.timelines.ns) / 1e6, (unsigned long long)s.pool.calls.create,
                     (unsigned long long)s.pool.calls.map, (unsigned long long)s.pool.calls.unmap,
                     (unsigned long long)(s.timelines.records + s.timelines.barriers),
                     (unsigned long long)s.timelines.queries);
        vp_log_print(
            "  ranges stitched %llu times, taken back %llu times; waits: %llu on the GPU, %llu on the host (%.1f ms, %llu in vain)",
            (unsigned long long)s.pool.stitches, (unsigned long long)s.pool.reactivations,
            (unsigned long long)s.pool.waits_gpu, (unsigned long long)s.pool.waits_host,
            (double)s.pool.host_wait_ns / 1e6, (unsigned long long)s.pool.waits_fruitless);
    }
    for (int dev = 0; dev < VP_DEVICES; dev++)
        if (vp_state.others[dev].peak_bytes)
            vp_log_print("device %d: others made up to %.1f MiB themselves, and have %.1f MiB in %llu handles", dev,
                         (double)vp_state.others[dev].peak_bytes / 1048576,
                         (double)vp_state.others[dev].bytes / 1048576,
                         (unsigned long long)vp_state.others[dev].handles);
    for (int i = 0; i < VP_PASSED_COUNT; i++)
        if (atomic_load(&vp_state.passed[i]))
            vp_log_print("passed on to CUDA: %s, %llu times", vp_passed_names[i],
                         (unsigned long long)atomic_load(&vp_state.passed[i]));
}

static void write_file(const char *pattern) {
    char name[VP_OPTION_TEXT + 16];
    if (!vp_output_name(name, sizeof name, pattern, "p", 0, 0)) {
        vp_log_print("VPOOL_STATS: the file name is too long");
        return;
    }
    int fd = vp_output_open(name, O_TRUNC);
    int err = fd < 0 ? fd : write_json(fd);
    if (fd >= 0 && close(fd) < 0 && !err)
        err = -errno;
    if (err)
        vp_log_print("VPOOL_STATS: %s cannot be written: %s", name, vp_output_error(err));
}

void vp_stats_write(void) {
    const char *where = vp_options()->stats;
    if (!*where || !strcmp(where, "0") || atomic_load(&vp_state.phase) != VP_OPEN)
        return;
    bool locked = vp_lock_for_a_while(&vp_state.lock);
    for (int dev = 0; locked && dev < VP_DEVICES; dev++)
        if (vp_state.pools[dev])
            vp_stream_caches_flush(vp_state.pools[dev], VP_FLUSH_ALL);
    if (!strcmp(where, "1"))
        print_summary();
    else
        write_file(where);
    if (locked)
        pthread_mutex_unlock(&vp_state.lock);
}
