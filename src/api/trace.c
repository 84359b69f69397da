/*
 * Recording: every allocation and free that is served, as a line of the trace format that `vpool replay` reads.
 *
 * Lines are written into a mapped window of the file, so that what was recorded is in the file even if the process is killed; the file is then longer
 * than its text by some zero bytes, which the reader passes over. Called under the lock.
 */
#include "api/api_private.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* The file grows by a step at a time; two steps are mapped, so that a line may cross from one to the next. A step takes some hundred thousand events. */
enum { STEP = 4 << 20 };

static struct {
    int fd;
    bool tried, on;
    char *window;               /* 2 * STEP bytes of the file, from `base` on */
    size_t used;
    off_t base;
    uint64_t begin;
} trace;

static void stop(const char *why) {
    vp_log(VP_LOG_WARN, "VPOOL_TRACE: %s: %s; recording stops", why, strerror(errno));
    trace.on = false;
}

static bool map_window(void) {
    void *mem = MAP_FAILED;
    if (!ftruncate(trace.fd, trace.base + 2 * STEP))
        mem = mmap(NULL, 2 * STEP, PROT_READ | PROT_WRITE, MAP_SHARED, trace.fd, trace.base);
    trace.window = mem == MAP_FAILED ? NULL : mem;
    return trace.window != NULL;
}

static void begin(void) {
    static const char header[] = "op,id,size,stream,us\n";
    char name[VP_OPTION_TEXT + 16];
    trace.tried = true;
    if (!*vp_options()->trace)
        return;
    trace.begin = vp_clock_ns();
    if (!vp_file_name(name, sizeof name, vp_options()->trace)) {
        errno = ENAMETOOLONG;
        stop("the file name");
    } else if ((trace.fd = open(name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)) < 0 || !map_window()) {
        stop(name);
    } else {
        trace.on = true;
        memcpy(trace.window, header, sizeof header - 1);
        trace.used = sizeof header - 1;
    }
}

static char *number(char *at, uint64_t n, char behind) {
    char digits[20];
    size_t count = 0;
    do
        digits[count++] = (char)('0' + n % 10);
    while (n /= 10);
    while (count)
        *at++ = digits[--count];
    *at++ = behind;
    return at;
}

void vp_trace_event(char op, uint64_t id, size_t size, const struct vp_line *line) {
    if (!trace.tried)
        begin();
    if (!trace.on)
        return;
    if (trace.used >= STEP) {
        munmap(trace.window, 2 * STEP);
        trace.base += STEP;
        trace.used -= STEP;
        if (!map_window()) {
            stop("the file cannot grow");
            return;
        }
    }
    char *at = trace.window + trace.used;
    *at++ = op;
    *at++ = ',';
    at = number(at, id, ',');
    at = number(at, size, ',');
    at = number(at, line ? line->number : 0, ',');
    at = number(at, (vp_clock_ns() - trace.begin) / 1000, '\n');
    trace.used = (size_t)(at - trace.window);
}

void vp_trace_end(void) {
    if (!trace.on)
        return;
    trace.on = false;
    munmap(trace.window, 2 * STEP);
    if (ftruncate(trace.fd, trace.base + (off_t)trace.used) < 0 || close(trace.fd) < 0)
        stop("the file cannot be closed");
}
