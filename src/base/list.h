/* Intrusive doubly linked list. A head is a node that links to itself when the list is empty. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct vp_list {
    struct vp_list *prev, *next;
};

/* The struct of which `ptr` is the member `member`. */
#define vp_container_of(ptr, type, member) ((type *)(void *)((char *)(ptr) - offsetof(type, member)))

/* `pos` runs over the structs of the list, or over those behind `at`; the list must not change. The _safe forms allow
 * `pos` to be removed. */
#define vp_list_each(pos, head, member) vp_list_each_behind(pos, head, head, member)
#define vp_list_each_behind(pos, at, head, member)                                                                     \
    for (pos = vp_container_of((at)->next, __typeof__(*pos), member); &pos->member != (head);                          \
         pos = vp_container_of(pos->member.next, __typeof__(*pos), member))
#define vp_list_each_safe(pos, tmp, head, member) vp_list_each_safe_behind(pos, tmp, head, head, member)
#define vp_list_each_safe_behind(pos, tmp, at, head, member)                                                           \
    for (pos = vp_container_of((at)->next, __typeof__(*pos), member),                                                  \
        tmp = vp_container_of(pos->member.next, __typeof__(*pos), member);                                             \
         &pos->member != (head); pos = tmp, tmp = vp_container_of(tmp->member.next, __typeof__(*tmp), member))

static inline void vp_list_init(struct vp_list *l) {
    l->prev = l->next = l;
}

static inline bool vp_list_empty(const struct vp_list *l) {
    return l->next == l;
}

/* Inserts `n` right behind `at` (at the front, if `at` is the head). */
static inline void vp_list_insert(struct vp_list *at, struct vp_list *n) {
    n->prev = at;
    n->next = at->next;
    at->next->prev = n;
    at->next = n;
}

static inline void vp_list_append(struct vp_list *head, struct vp_list *n) {
    vp_list_insert(head->prev, n);
}

/* Removes `n` and leaves it an empty list, so that removing twice is harmless. */
static inline void vp_list_remove(struct vp_list *n) {
    n->prev->next = n->next;
    n->next->prev = n->prev;
    vp_list_init(n);
}
