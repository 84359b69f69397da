/*
 * The end of a thread, and with it of its own default streams (CU_STREAM_PER_THREAD, one in each context). Nobody tells of it: a destructor of a thread-specific value does.
 *
 * It may run at odd times. In a thread that is inside the library already, or in a process whose CUDA is not ours, vp_enter() says no. Another destructor may use CUDA after it, and
 * the stream is then known again; so is this value, and the destructor runs once more, a few times at most. What is known after that, or where no key was to be had, stays
 * until the context ends.
 */
#include "api/api_private.h"

static struct {
    bool made;
    pthread_key_t key;
} ends;

static __thread struct {
    struct vp_list streams;     /* of vp_line.of_thread; with the lock held */
    bool asked, told;           /* somebody wants to know of the end; the destructor will run */
} own __attribute__((tls_model("initial-exec")));

static void thread_ends(void *unused) {
    (void)unused;
    own.told = false;
    if (!vp_enter())
        return;
    vp_lines_thread_ended(&vp_state.lines, &own.streams);
    vp_lines_tidy();
    vp_leave();
}

void vp_threads_init(void) {
    ends.made = ends.made || !pthread_key_create(&ends.key, thread_ends);
}

struct vp_list *vp_thread_streams(void *user) {
    (void)user;
    if (!ends.made)
        return NULL;
    if (!own.streams.next)
        vp_list_init(&own.streams);
    own.asked = true;
    return &own.streams;
}

/* Setting the value may call malloc, which is the program's. */
void vp_thread_left(void) {
    if (!own.asked)
        return;
    own.asked = false;
    if (!own.told)
        own.told = !pthread_setspecific(ends.key, &own);
}
