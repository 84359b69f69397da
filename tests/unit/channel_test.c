/* Sockets between processes of one user: messages, file descriptors, and who is hung up on. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>

#include "base/channel.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

struct line {
    struct vp_channel_name name;
    int listener, server, client;
};

static void *connect_there(void *name) {
    return (void *)(intptr_t)vp_channel_connect(name);
}

static struct line connected(bool files) {
    struct line line;
    pthread_t thread;
    void *client;
    line.listener = vp_channel_listen(&line.name, files);
    cr_assert_geq(line.listener, 0);
    cr_assert_eq(line.name.in_file, files);
    cr_assert(!pthread_create(&thread, NULL, connect_there, &line.name));
    line.server = vp_channel_accept(line.listener);
    cr_assert(!pthread_join(thread, &client));
    line.client = (int)(intptr_t)client;
    cr_assert(line.server >= 0 && line.client >= 0);
    return line;
}

static void hang_up(struct line *line) {
    close(line->server);
    close(line->client);
    close(line->listener);
    vp_channel_unlink(&line->name);
}

static int open_files(void) {
    int count = 0;
    for (int fd = 0; fd < 1024; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

static void passes_files(bool in_file) {
    int sent[VP_CHANNEL_FDS], got[VP_CHANNEL_FDS], before = open_files();
    struct line line = connected(in_file);
    char text[4] = "abc", read_back[4] = "";
    size_t n = VP_CHANNEL_FDS;
    for (int i = 0; i < VP_CHANNEL_FDS; i++) {
        sent[i] = memfd_create("vpool-test", MFD_CLOEXEC);
        cr_assert_eq(write(sent[i], &i, sizeof i), (ssize_t)sizeof i);
    }
    cr_assert(!vp_channel_send(line.client, text, sizeof text, sent, VP_CHANNEL_FDS));
    cr_assert(!vp_channel_receive(line.server, read_back, sizeof read_back, got, &n));
    cr_assert_str_eq(read_back, "abc");
    cr_assert_eq(n, VP_CHANNEL_FDS);
    for (int i = 0; i < VP_CHANNEL_FDS; i++) {
        int value = -1;
        cr_assert(pread(got[i], &value, sizeof value, 0) == (ssize_t)sizeof value && value == i);
        cr_assert(fcntl(got[i], F_GETFD) & FD_CLOEXEC, "no file passes on to a program");
        close(got[i]);
        close(sent[i]);
    }
    hang_up(&line);
    cr_assert_eq(open_files(), before);
}

Test(channel, passes_files_through_an_abstract_socket) {
    passes_files(false);
}

Test(channel, passes_files_through_a_socket_in_the_file_system) {
    passes_files(true);
}

Test(channel, leaves_no_file_open_that_is_not_wanted) {
    struct line line = connected(false);
    int files[3] = {0, 1, 2}, got[2], before = open_files();
    char byte = 1;
    size_t n = 2;
    cr_assert(!vp_channel_send(line.client, &byte, 1, files, 3));
    cr_assert_eq(vp_channel_receive(line.server, &byte, 1, got, &n), -EPROTO);
    cr_assert(!vp_channel_send(line.client, &byte, 1, files, 3));
    cr_assert_eq(vp_channel_receive(line.server, &byte, 1, NULL, NULL), -EPROTO);
    cr_assert_eq(open_files(), before);
    hang_up(&line);
}

Test(channel, says_when_no_file_can_be_taken) {
    struct line line = connected(false);
    struct rlimit limit, few;
    int files[2] = {0, 1}, got[2], next = dup(0);
    char byte = 1;
    size_t n = 2;
    close(next);
    cr_assert(!vp_channel_send(line.client, &byte, 1, files, 2));
    cr_assert(!getrlimit(RLIMIT_NOFILE, &limit));
    few = (struct rlimit){.rlim_cur = (rlim_t)next + 1, .rlim_max = limit.rlim_max};
    cr_assert(!setrlimit(RLIMIT_NOFILE, &few));
    cr_assert_eq(vp_channel_receive(line.server, &byte, 1, got, &n), -EPROTO);
    cr_assert_eq(dup(0), next, "the one that came was closed");
    close(next);
    cr_assert(!setrlimit(RLIMIT_NOFILE, &limit));
    hang_up(&line);
}

Test(channel, takes_whole_messages_alone) {
    struct line line = connected(false);
    char text[8] = "1234567";
    cr_assert(!vp_channel_send(line.client, text, 8, NULL, 0));
    cr_assert_eq(vp_channel_receive(line.server, text, 4, NULL, NULL), -EPROTO);
    cr_assert(!vp_channel_send(line.client, text, 4, NULL, 0));
    cr_assert_eq(vp_channel_receive(line.server, text, 8, NULL, NULL), -EPROTO);
    shutdown(line.client, SHUT_RDWR);
    cr_assert_eq(vp_channel_receive(line.server, text, 8, NULL, NULL), -ECONNRESET);
    hang_up(&line);
}

Test(channel, says_that_nobody_listens) {
    struct vp_channel_name name = {.id = {1, 2}};
    int listener;
    cr_assert_eq(vp_channel_connect(&name), -ECONNREFUSED);
    name.in_file = true;
    cr_assert_eq(vp_channel_connect(&name), -ENOENT);
    listener = vp_channel_listen(&name, false);
    close(listener);
    cr_assert_eq(vp_channel_connect(&name), -ECONNREFUSED);
}

static void *accept_there(void *listener) {
    return (void *)(intptr_t)vp_channel_accept(*(int *)listener);
}

Test(channel, stops_to_listen_when_it_is_shut_down) {
    struct vp_channel_name name;
    int listener = vp_channel_listen(&name, false);
    pthread_t thread;
    void *result;
    cr_assert(!pthread_create(&thread, NULL, accept_there, &listener));
    cr_assert(!shutdown(listener, SHUT_RDWR));
    cr_assert(!pthread_join(thread, &result));
    cr_assert_eq((int)(intptr_t)result, -EINVAL);
    close(listener);
}

/* Another user finds the socket, and gets nothing: neither as the one who asks nor as the one who listens. Needs root
 * to become somebody else. */
Test(channel, hangs_up_on_another_user) {
    struct vp_channel_name name;
    int status = 0;
    if (geteuid() != 0)
        cr_skip_test("no right to become somebody else");
    int listener = vp_channel_listen(&name, false);
    pid_t child = fork();
    if (child == 0) {
        if (setresuid(65534, 65534, 65534) < 0)
            _exit(2);
        _exit(vp_channel_connect(&name) == -EPERM ? 0 : 1);
    }
    cr_assert_eq(vp_channel_accept(listener), -EPERM);
    cr_assert(waitpid(child, &status, 0) == child && status == 0);
    close(listener);
}

/* What the program writes to a closed standard output would go to the other process, and spoil what is asked there. */
Test(channel, leaves_the_standard_descriptors_alone) {
    int kept[3], got[1];
    char byte = 0;
    size_t n = 1;
    for (int fd = 0; fd < 3; fd++) {
        kept[fd] = fcntl(fd, F_DUPFD_CLOEXEC, 3);
        close(fd);
    }
    struct line line = connected(false);
    int again = vp_channel_listen_again(&line.name);
    int err = vp_channel_send(line.client, &byte, 1, &line.client, 1);
    err = err ? err : vp_channel_receive(line.server, &byte, 1, got, &n);
    for (int fd = 0; fd < 3; fd++)
        if (kept[fd] >= 0)
            dup2(kept[fd], fd);
    cr_assert(!err && n == 1);
    cr_expect(line.listener > 2 && line.client > 2 && line.server > 2 && got[0] > 2 && (again < 0 || again > 2));
    hang_up(&line);
}

static void tick(int number) {
}

/* It is stopped, and as many wait for it as may. */
Test(channel, ticks_do_not_prolong_a_connection, .timeout = 30) {
    struct vp_channel_name name;
    const struct itimerval often = {{0, 10000}, {0, 10000}}, never = {0};
    int waiting[256], count = 0, listener = vp_channel_listen(&name, false);
    sigaction(SIGALRM, &(struct sigaction){.sa_handler = tick, .sa_flags = SA_RESTART}, NULL);
    cr_assert(!setitimer(ITIMER_REAL, &often, NULL));
    while (count < 256 && (waiting[count] = vp_channel_connect(&name)) >= 0)
        count++;
    cr_assert(!setitimer(ITIMER_REAL, &never, NULL));
    cr_assert(count < 256 && waiting[count] == -EAGAIN, "%d, %d", count, waiting[count]);
    while (count--)
        close(waiting[count]);
    close(listener);
}

static void *take_later(void *server) {
    char byte;
    usleep(50000);
    for (int i = 0; i < 3; i++)
        vp_channel_receive(*(int *)server, &byte, 1, NULL, NULL);
    return NULL;
}

/* The kernel counts what is on its way of all of a user's processes. */
static int send_more_than_may_be_on_their_way(void) {
    int files[VP_CHANNEL_FDS] = {0}, err = 0;
    char byte = 0;
    pthread_t thread;
    if (geteuid() == 0 && setresuid(65534, 65534, 65534) < 0)
        return 2;
    struct line line = connected(false);
    cr_assert(!setrlimit(RLIMIT_NOFILE, &(struct rlimit){VP_CHANNEL_FDS, VP_CHANNEL_FDS}));
    cr_assert(!pthread_create(&thread, NULL, take_later, &line.server));
    for (int i = 0; i < 4 && !err; i++)
        err = vp_channel_send(line.client, &byte, 1, files, VP_CHANNEL_FDS);
    return err != 0;
}

Test(channel, waits_for_what_is_on_its_way) {
    int status = 0;
    pid_t child = fork();
    if (child == 0)
        _exit(send_more_than_may_be_on_their_way());
    cr_assert(waitpid(child, &status, 0) == child && status == 0, "%x", status);
}
