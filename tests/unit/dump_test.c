/* Snapshots of the pool and what is made of them; the words and names of dumps. tests/process/dump has the dumps of
 * programs. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fixture.h"

#include "process/state.h"
#include "watch/dump.h"
#include "watch/say.h"
#include "base/output.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char SIM[] = "capacity=256M,granularity=64K,lazy=50";

/* ---- words and names ---- */

static struct vp_dump_plan parsed(const char *text, const char *wrong) {
    struct vp_dump_plan plan;
    const char *found;
    vp_dump_parse(text, &plan, &found);
    cr_assert_eq(found == NULL, wrong == NULL, "%s", text);
    if (wrong)
        cr_assert_eq(strncmp(found, wrong, strlen(wrong)), 0, "%s: %s", text, found);
    return plan;
}

Test(dump, words_are_read) {
    struct vp_dump_plan plan = parsed("exit, oom,signal,every:0.25", NULL);
    for (int i = 0; i <= VP_DUMP_EVERY; i++)
        cr_assert(plan.when[i]);
    cr_assert_eq(plan.every_ms, 250);
    plan = parsed("", NULL);
    cr_assert(!plan.when[VP_DUMP_EXIT] && !plan.when[VP_DUMP_EVERY]);
    plan = parsed(" ,,exit,", NULL);
    cr_assert(plan.when[VP_DUMP_EXIT]);
    cr_assert_eq(parsed("every:3600", NULL).every_ms, 3600000);
    cr_assert_eq(parsed("every:1.0009", NULL).every_ms, 1000);
}

Test(dump, wrong_words_are_found) {
    static const char *const words[] = {"exits",
                                        "exi",
                                        "every",
                                        "every:",
                                        "every:0",
                                        "every:0.01",
                                        "every:1s",
                                        "every:.5",
                                        "every:-1",
                                        "every:1.2.3",
                                        "every:99999999999999999999"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        cr_assert(!parsed(words[i], words[i]).when[VP_DUMP_EVERY], "%s", words[i]);
    cr_assert(parsed("wrong,exit", "wrong").when[VP_DUMP_EXIT], "the others hold");
}

Test(dump, names_are_made) {
    char name[512], pid[256], wanted[512];
    snprintf(pid, sizeof pid, "%d", (int)getpid());
    snprintf(wanted, sizeof wanted, "a-%s-7.3%%x%%", pid);
    cr_assert(vp_output_name(name, sizeof name, "a-%p-%n.%d%%x%", "pnd%", 7, 3));
    cr_assert_str_eq(name, wanted);
    cr_assert(!vp_output_name(name, 4, "abcd", "", 1, 0), "no room");
    cr_assert_eq(unsetenv("SLURM_PROCID") | unsetenv("RANK"), 0);
    cr_assert(vp_output_name(name, sizeof name, "%r%h", "r", 1, 0));
    cr_assert_str_eq(name, "0%h");
    cr_assert_eq(setenv("RANK", "17", 1) | setenv("WORLD_SIZE", "32", 1), 0);
    cr_assert_eq(gethostname(pid, sizeof pid - 1), 0);
    snprintf(wanted, sizeof wanted, "%s.17", pid);
    cr_assert(vp_output_name(name, sizeof name, "%h.%r", "phr", 1, 0));
    cr_assert_str_eq(name, wanted);
    cr_assert(vp_output_name(name, 5, "abcd", "", 1, 0));
}

/* Not even in one process: another container has processes of the same ids, and folders in common with this one. */
Test(dump, a_file_beside_is_nobody_elses) {
    char folder[] = "/tmp/vpool-beside-XXXXXX", file[64], names[20][128], small[70];
    int fds[20];
    cr_assert(mkdtemp(folder));
    snprintf(file, sizeof file, "%s/file", folder);
    for (int i = 0; i < 20; i++) {
        fds[i] = vp_output_beside(file, ".tmp", 0600, names[i], sizeof names[i]);
        cr_assert_gt(fds[i], STDERR_FILENO);
        cr_assert(!strncmp(names[i], file, strlen(file)) && strstr(names[i], ".tmp"), "%s", names[i]);
        for (int j = 0; j < i; j++)
            cr_assert_str_neq(names[i], names[j]);
    }
    for (int i = 0; i < 20; i++) {
        close(fds[i]);
        cr_assert_eq(unlink(names[i]), 0);
    }
    cr_assert_eq(vp_output_beside(file, ".tmp", 0600, small, strlen(file) + 5), -ENAMETOOLONG);
    cr_assert_eq(rmdir(folder), 0);
    cr_assert_eq(vp_output_beside(file, ".tmp", 0600, names[0], sizeof names[0]), -ENOENT);
}

Test(dump, sizes_and_times_are_said) {
    cr_assert_str_eq(vp_size_text(0).text, "0 B");
    cr_assert_str_eq(vp_size_text(1023).text, "1023 B");
    cr_assert_str_eq(vp_size_text(1024).text, "1.0 KiB");
    cr_assert_str_eq(vp_size_text(3 * MiB / 2).text, "1.5 MiB");
    cr_assert_str_eq(vp_size_text(5 * GiB).text, "5.0 GiB");
    cr_assert_str_eq(vp_size_text(UINT64_MAX).text, "15.9 EiB");
    cr_assert_str_eq(vp_size_text(55003776).text, "52.4 MiB");
    cr_assert_str_eq(vp_size_about(0).text, "0 B");
    cr_assert_str_eq(vp_size_about(1023).text, "1023 B");
    cr_assert_str_eq(vp_size_about(55003776).text, "52.5 MiB");
    cr_assert_str_eq(vp_size_about(5 * GiB).text, "5.0 GiB");
    cr_assert_str_eq(vp_size_about(GiB - 1).text, "1.0 GiB");
    cr_assert_str_eq(vp_size_about(UINT64_MAX).text, "15.9 EiB");
    cr_assert_str_eq(vp_time_text(1234567).text, "0.001 s");
    cr_assert_str_eq(vp_time_text(3599999999999).text, "3599.999 s");
    cr_assert_str_eq(vp_time_text(3600000000000).text, "1 h 0 min");
    cr_assert_str_eq(vp_time_text(109122957774000).text, "30 h 18 min");
    cr_assert_str_eq(vp_time_text(UINT64_MAX).text, "5124095 h 34 min");
}

/* ---- snapshots ---- */

static uint64_t sum(const struct vp_snapshot *snap, enum vp_region_state state) {
    const struct vp_snap_region *r = snap->regions.items;
    uint64_t bytes = 0;
    for (size_t i = 0; i < snap->regions.count; i++)
        bytes += r[i].state == state ? (state == VP_LIVE ? r[i].asked : r[i].size) : 0;
    return bytes;
}

/* The snapshot says the same as the pool that it was taken of, and the digest adds up. */
static void agree(struct vp_pool *pool, struct vp_snapshot *snap) {
    struct vp_digest digest;
    struct vp_memory_stats stats = vp_pool_stats(pool);
    cr_assert(vp_pool_check(pool, stderr));
    vp_snapshot_digest(snap, UINT64_MAX, &digest);
    cr_assert_eq(sum(snap, VP_LIVE), stats.live_bytes);
    cr_assert_eq(sum(snap, VP_FREE), digest.free_bytes);
    cr_assert_eq(stats.live_bytes + digest.internal + digest.free_bytes, stats.held_bytes);
    cr_assert_eq(digest.pinned + digest.pending + digest.idle, digest.free_bytes);
    cr_assert_eq(snap->chunks.count, pool->mem.chunk_count);
    cr_assert_eq(digest.live_blocks, stats.allocs - stats.frees);
}

Test(dump, a_snapshot_tells_the_bytes_apart) {
    struct vp_snapshot snap;
    struct vp_digest digest;
    setenv("VPOOL_HANDLE", "1M", 1);
    door_open("capacity=64M,granularity=64K,lazy=0");
    CUdeviceptr a = door_malloc(1000), b = door_malloc(8 * MiB),
                c = door_take(3 * MiB, door_stream(CU_STREAM_NON_BLOCKING));
    cu_ok(door_free(b));
    cr_assert(vp_enter());
    cr_assert(!vp_snapshot_take(vp_state.pools[0], &snap));
    agree(vp_state.pools[0], &snap);
    vp_snapshot_digest(&snap, UINT64_MAX, &digest);
    vp_leave();
    cr_assert_eq(digest.internal, 24, "1000 bytes take 1024");
    cr_assert_eq(digest.live_blocks, 2);
    cr_assert_eq(digest.pinned, 64 * KiB - 1024, "beside the small block");
    cr_assert_eq(digest.pending + digest.idle, 8 * MiB);
    cr_assert_eq(digest.sizes[9].live, 1);
    cr_assert_eq(digest.sizes[21].live_bytes, 3 * MiB);
    vp_snapshot_finish(&snap);
    cr_assert_null(snap.regions.items);
    cu_ok(door_free(a));
    cu_ok(door_free(c));
    door_close();
}

static atomic_bool over;
static CUcontext context;

static void *storm(void *seed_of) {
    enum { SLOTS = 16 };
    CUdeviceptr mine[SLOTS] = {0};
    unsigned seed = (unsigned)(uintptr_t)seed_of;
    cu_ok(cuCtxSetCurrent(context));
    CUstream stream = door_stream(CU_STREAM_NON_BLOCKING);
    while (!atomic_load(&over)) {
        CUdeviceptr *slot = &mine[rand_r(&seed) % SLOTS];
        size_t size = 1 + (size_t)rand_r(&seed) % (rand_r(&seed) % 8 ? 32 * KiB : 2 * MiB);
        if (*slot)
            cu_ok(rand_r(&seed) & 1 ? door_free(*slot) : door_free_async(*slot, stream));
        if (rand_r(&seed) & 1 ? door_alloc(slot, size) : door_alloc_async(slot, size, NULL, stream))
            *slot = 0;
    }
    return NULL;
}

/* Between two operations, whatever four threads are at. */
Test(dump, a_snapshot_in_a_storm_is_sound, .timeout = 100) {
    enum { THREADS = 4, SNAPSHOTS = 200 };
    pthread_t thread[THREADS];
    struct vp_snapshot snap;
    setenv("VPOOL_HANDLE", "1M", 1);
    context = door_open(SIM);
    for (uintptr_t i = 0; i < THREADS; i++)
        cr_assert(!pthread_create(&thread[i], NULL, storm, (void *)(i + 1)));
    for (int i = 0; i < SNAPSHOTS; i++) {
        cr_assert(vp_enter());
        if (vp_state.pools[0]) {
            cr_assert(!vp_snapshot_take(vp_state.pools[0], &snap));
            agree(vp_state.pools[0], &snap);
            vp_snapshot_finish(&snap);
        }
        vp_leave();
        usleep(500);
    }
    atomic_store(&over, true);
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    door_close();
}

/* What is left of the device, and what is idle beside it. */
Test(dump, the_largest_request_counts_what_can_be_built) {
    struct vp_dump_device d = {.stitches = true, .free = 5 * MiB + 1, .total = 64 * MiB};
    d.snap.granularity = 2 * MiB;
    d.digest.idle = 6 * MiB;
    d.digest.largest_block = 3 * MiB;
    cr_assert_eq(vp_dump_largest(&d), 10 * MiB);
    d.stitches = false;
    cr_assert_eq(vp_dump_largest(&d), 4 * MiB);
    d.limit = 8 * MiB;
    d.snap.stats.held_bytes = 6 * MiB;
    cr_assert_eq(vp_dump_fresh(&d), 2 * MiB);
    cr_assert_eq(vp_dump_largest(&d), 3 * MiB);
    d.snap.stats.held_bytes = 9 * MiB;
    cr_assert_eq(vp_dump_fresh(&d), 0);
}
