/* Lists, slabs and maps; and what the machine has. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/os_memory.h"
#include "base/machine.h"
#include "base/slab.h"
#include "base/table.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- list ---- */

struct item {
    int value;
    struct vp_list link;
};

static int join(const struct vp_list *head) {
    const struct item *it;
    int digits = 0;
    vp_list_each(it, head, link)
        digits = digits * 10 + it->value;
    return digits;
}

Test(list, keeps_its_order) {
    struct vp_list head;
    struct item items[5], *it, *tmp;
    vp_list_init(&head);
    cr_assert(vp_list_empty(&head));
    for (int i = 0; i < 5; i++)
        items[i].value = i + 1;
    vp_list_append(&head, &items[1].link);
    vp_list_append(&head, &items[2].link);
    vp_list_insert(&head, &items[0].link);
    vp_list_insert(&items[2].link, &items[3].link);
    vp_list_append(&head, &items[4].link);
    cr_assert_eq(join(&head), 12345);
    vp_list_each_safe(it, tmp, &head, link)
        if (it->value % 2 == 0)
            vp_list_remove(&it->link);
    cr_assert_eq(join(&head), 135);
}

Test(list, removing_twice_is_harmless) {
    struct vp_list head;
    struct item a = {1}, b = {2};
    vp_list_init(&head);
    vp_list_append(&head, &a.link);
    vp_list_append(&head, &b.link);
    vp_list_remove(&a.link);
    vp_list_remove(&a.link);
    cr_assert_eq(join(&head), 2);
    vp_list_remove(&b.link);
    cr_assert(vp_list_empty(&head));
}

/* ---- slab ---- */

enum { OBJECTS = 20000 };

Test(slab, objects_are_zeroed_and_apart) {
    static char *object[OBJECTS];
    struct vp_slab slab;
    vp_slab_init(&slab, 40);
    cr_assert_eq(slab.size, 40, "sizes are multiples of 8");
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < OBJECTS; i++) {
            object[i] = vp_slab_alloc(&slab);
            cr_assert(object[i] && (uintptr_t)object[i] % 8 == 0);
            for (int byte = 0; byte < 40; byte++)
                cr_assert(!object[i][byte]);
            memset(object[i], 1 + i % 100, 40);
        }
        for (int i = 0; i < OBJECTS; i++) {
            for (int byte = 0; byte < 40; byte++)
                cr_assert_eq(object[i][byte], 1 + i % 100, "two objects share bytes");
            vp_slab_free(&slab, object[i]);
        }
    }
    cr_assert_eq(slab.spare, slab.total);
    cr_assert(slab.bytes < OBJECTS * 48 * 11 / 10, "the second round lives on the memory of the first");
    vp_slab_free(&slab, NULL);
    vp_slab_finish(&slab);
}

Test(slab, a_reservation_makes_the_next_ones_succeed) {
    struct vp_slab slab;
    vp_slab_init(&slab, 64);
    cr_assert(!vp_slab_reserve(&slab, 10000));
    size_t total = slab.total;
    cr_assert_lt(slab.bytes, 1024, "nothing was touched");
    for (int i = 0; i < 10000; i++)
        cr_assert(vp_slab_alloc(&slab));
    cr_assert_eq(slab.total, total);
    vp_slab_finish(&slab);
}

/* Whether the system then really uses huge pages is its own affair. */
Test(slab, of_many_objects_all_are_apart_and_all_memory_goes_back) {
    enum { MANY = 100000 };
    static uint64_t *object[MANY];
    struct vp_slab slab;
    vp_slab_init(&slab, 96);
    slab.many = true;
    for (int i = 0; i < MANY; i++) {
        object[i] = vp_slab_alloc(&slab);
        for (int word = 0; word < 12; word++)
            cr_assert_eq(object[i][word], 0);
        for (int word = 0; word < 12; word++)
            object[i][word] = (uint64_t)i;
    }
    for (int i = 0; i < MANY; i++)
        for (int word = 0; word < 12; word++)
            cr_assert_eq(object[i][word], (uint64_t)i);
    cr_assert_leq(slab.bytes, (size_t)MANY * 96 + 2 * VP_HUGE);
    uint64_t *last = object[MANY - 1];
    unsigned char resident;
    vp_slab_finish(&slab);
    cr_assert_neq(mincore((void *)((uintptr_t)last & ~(uintptr_t)4095), 1, &resident), 0);
}

Test(slab, neighbours_in_time_are_neighbours_in_memory) {
    struct vp_slab slab;
    vp_slab_init(&slab, 32);
    char *first = vp_slab_alloc(&slab);
    for (int i = 1; i < 100; i++)
        cr_assert_eq((char *)vp_slab_alloc(&slab), first + 32 * i);
    vp_slab_finish(&slab);
}

/* ---- table ---- */

struct object {
    uint64_t key;
    bool in;
};

Test(table, an_empty_one_holds_nothing) {
    struct vp_table table = {0};
    cr_assert_null(vp_table_get(&table, 1));
    cr_assert_null(vp_table_take(&table, 1));
    cr_assert_eq(vp_table_bytes(&table), 0);
    vp_table_finish(&table);
}

/* Keys as the library has them: addresses a quantum apart, and numbers that count up. Each step of 20,000 adds or takes
 * one of 5,000, so that runs of colliding keys are opened and closed in every way; the objects say what must be there.
 */
Test(table, agrees_with_an_array) {
    enum { KEYS = 5000, STEPS = 20000 };
    static struct object objects[KEYS];
    for (int step = 1; step <= 1 << 24; step *= 8) {
        struct vp_table table = {0};
        size_t used = 0;
        srand(1);
        for (int k = 0; k < KEYS; k++)
            objects[k] = (struct object){.key = UINT64_C(0x7f0000000000) + (uint64_t)k * (uint64_t)step};
        for (int i = 0; i < STEPS; i++) {
            struct object *o = &objects[rand() % KEYS], *sought = i % 2 ? o : &objects[rand() % KEYS];
            cr_assert_eq(vp_table_seek(&table, sought->key), sought->in ? sought : NULL);
            if (o->in) {
                cr_assert_eq(vp_table_take(&table, o->key), o);
                used--;
            } else {
                cr_assert_null(vp_table_take(&table, o->key));
                cr_assert(!vp_table_reserve(&table));
                vp_table_add(&table, o);
                used++;
            }
            o->in = !o->in;
        }
        cr_assert_eq(table.used, used);
        for (int k = 0; k < KEYS; k++)
            cr_assert_eq(vp_table_get(&table, objects[k].key), objects[k].in ? &objects[k] : NULL);
        vp_table_finish(&table);
    }
}

/* Keys that hash alike, which no program's addresses do: there is no room for one more before its distance no longer
 * fits a slot. */
Test(table, keys_of_one_home) {
    enum { KEYS = 300, FIT = 254, INVERSE_SHIFT = 40 };
    static struct object objects[KEYS];
    struct vp_table table = {0};
    int in = 0;
    for (uint64_t k = 0; k < KEYS; k++) {
        /* By the inverse of the hash's factor: the hashes differ in bits that no table of this size looks at. */
        objects[k].key = ((k + 1) << INVERSE_SHIFT) * UINT64_C(0xf1de83e19937733d);
        if (vp_table_reserve(&table))
            break;
        vp_table_add(&table, &objects[k]);
        in++;
    }
    cr_assert_eq(in, FIT);
    cr_assert_leq(vp_table_bytes(&table), 8 * 4096);
    for (int k = 0; k < KEYS; k++)
        cr_assert_eq(vp_table_get(&table, objects[k].key), k < in ? &objects[k] : NULL);
    for (int k = 0; k < in; k += 2)
        cr_assert_eq(vp_table_take(&table, objects[k].key), &objects[k]);
    for (int k = 0; k < in; k++)
        cr_assert_eq(vp_table_get(&table, objects[k].key), k % 2 ? &objects[k] : NULL);
    vp_table_finish(&table);
}

/* ---- clock ---- */

/* A thread that is interrupted between two looks sees any time pass; most are not. */
Test(clock, looked_at_often_it_tells_the_time) {
    enum { LOOKS = 200000, SLACK_NS = 2000 };
    struct vp_clock clock = {0};
    uint64_t last = 0;
    int right = 0;
    for (int i = 0; i < LOOKS; i++) {
        uint64_t before = vp_clock_ns(), now = vp_clock_often(&clock), after = vp_clock_ns();
        cr_assert_geq(now, last);
        last = now;
        right += now + SLACK_NS >= before && now <= after + SLACK_NS;
    }
    cr_assert_gt(right, LOOKS * 9 / 10, "%d of %d looks were right", right, LOOKS);
}

Test(clock, a_pause_is_no_shorter_or_longer_than_it_was) {
    struct vp_clock clock = {0};
    for (int i = 0; i < 1000; i++)
        vp_clock_often(&clock);
    for (int i = 0; i < 20; i++) {
        uint64_t before = vp_clock_ns(), begin = vp_clock_often(&clock);
        nanosleep(&(struct timespec){.tv_nsec = 1000000 << i % 4}, NULL);
        uint64_t end = vp_clock_often(&clock), after = vp_clock_ns();
        cr_assert_geq(end - begin, 1000000 - 20000);
        cr_assert_leq(end - begin, after - before + 20000);
    }
}

/* Another core's counter may be anything: what is told meanwhile is wrong by a few milliseconds at most. */
Test(clock, a_counter_that_jumps_is_found_out) {
    static const int64_t jumps[] = {INT64_MIN, -1000000000000, -1000000, -1, 1, 1000, 1000000, 1000000000000};
    struct vp_clock clock = {0};
    for (size_t i = 0; i < 100 * sizeof jumps / sizeof *jumps; i++) {
        for (int j = 0; j < 1000; j++)
            vp_clock_often(&clock);
        clock.ticks += (uint64_t)jumps[i % (sizeof jumps / sizeof *jumps)];
        for (int j = 0; j < 1000; j++) {
            uint64_t before = vp_clock_ns(), now = vp_clock_often(&clock);
            cr_assert_leq(now, vp_clock_ns() + 5000000);
            cr_assert_geq(now + 5000000, before);
        }
    }
}

/* ---- bits ---- */

Test(bits, find_the_largest_member_not_above) {
    enum { COUNT = 300000 };
    uint64_t *mem = calloc(1, vp_bits_bytes(COUNT));
    bool *has = calloc(COUNT, sizeof *has);
    struct vp_bits b;
    cr_assert(mem && has);
    vp_bits_init(&b, COUNT, mem);
    srand(1);
    for (int round = 0; round < 20000; round++) {
        size_t i = (size_t)rand() % (round % 3 ? COUNT : 200), at = (size_t)rand() % COUNT, is = at;
        bool add = rand() % 4 == 0;
        (add ? vp_bits_add : vp_bits_remove)(&b, i);
        has[i] = add;
        cr_assert_eq(vp_bits_at_most(&b, i) == i, add);
        while (is != SIZE_MAX && !has[is])
            is--;
        cr_assert_eq(vp_bits_at_most(&b, at), is);
    }
    free(mem);
    free(has);
}

Test(bits, of_one_word_and_of_full_ones) {
    uint64_t mem[70] = {0};
    struct vp_bits b;
    cr_assert(vp_bits_bytes(64) == 8 && vp_bits_bytes(65) == 24 && vp_bits_bytes(4096) == 65 * 8);
    vp_bits_init(&b, 4096, mem);
    cr_assert_eq(vp_bits_at_most(&b, 4095), SIZE_MAX);
    vp_bits_add(&b, 0);
    for (size_t i = 0; i < 4096; i++)
        cr_assert_eq(vp_bits_at_most(&b, i), 0);
    for (size_t i = 1; i < 4096; i++)
        vp_bits_add(&b, i);
    for (size_t i = 0; i < 4096; i++)
        cr_assert_eq(vp_bits_at_most(&b, i), i);
}

/* ---- who reaches a GPU's memory ---- */

static void show(const char *root, const char *name) {
    char path[256];
    snprintf(path, sizeof path, "%s/sys/%s", root, name);
    for (char *slash = path + strlen(root) + 1; (slash = strchr(slash, '/')); *slash++ = '/') {
        *slash = '\0';
        mkdir(path, 0700);
    }
    cr_assert(!mkdir(path, 0700), "%s", path);
}

static void hide(const char *root, const char *name) {
    char path[256];
    snprintf(path, sizeof path, "%s/sys/%s", root, name);
    cr_assert(!rmdir(path), "%s", path);
}

Test(rdma, is_possible_unless_the_kernel_shows_otherwise) {
    static const char *const some[] = {"class/infiniband/mlx5_0",
                                       "module/nvidia_peermem",
                                       "module/gdrdrv",
                                       "module/nvidia_fs",
                                       "module/cxi_ss1",
                                       "module/nvme_strom",
                                       "module/nvidia/holders/ajantv2"},
                             *const own[] = {"module/nvidia/holders/nvidia_uvm",
                                             "module/nvidia/holders/nvidia_modeset"};
    char root[] = "/tmp/vpool-rdma-XXXXXX", command[64];
    cr_assert(mkdtemp(root));
    cr_assert(vp_rdma_possible(root), "nothing is known");
    show(root, "class");
    cr_assert(vp_rdma_possible(root), "another driver, as under WSL2 or on a Jetson");
    show(root, "module/nvidia");
    cr_assert(!vp_rdma_possible(root), "a kernel without InfiniBand that does not unload modules");
    show(root, "class/infiniband");
    show(root, "module/nvidia/holders");
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        show(root, own[i]);
    cr_assert(!vp_rdma_possible(root));
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        show(root, some[i]);
        cr_assert(vp_rdma_possible(root), "%s", some[i]);
        hide(root, some[i]);
    }
    cr_assert(!vp_rdma_possible(root));
    snprintf(command, sizeof command, "rm -r %s", root);
    cr_assert_eq(system(command), 0);
}
