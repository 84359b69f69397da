/* Options: what is parsed, what is refused, and how that is said. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>

#include "base/log.h"
#include "base/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define G ((uint64_t)1 << 30)
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static struct vp_options options;
static char reported[4096];
static int reports;

static const char *look_in_list(void *context, const char *name) {
    char *const *environment = context;
    size_t length = strlen(name);
    for (; environment && *environment; environment++) {
        if (!strncmp(*environment, name, length) && (*environment)[length] == '=')
            return *environment + length + 1;
    }
    return NULL;
}

static void keep_line(void *context, const char *line) {
    reports++;
    strcat(strcat(reported, line), "\n");
}

static bool says(const char *text) {
    return strstr(reported, text) != NULL;
}

static void parse(const char *setting) {
    char *environment[] = {(char *)setting, NULL};
    reports = 0;
    reported[0] = '\0';
    vp_options_parse(&options, look_in_list, environment, keep_line, NULL);
}

static void find_unknown(const char *setting) {
    char *environment[] = {"HOME=/root", (char *)setting, "VPOOL_STATS=1", NULL};
    reports = 0;
    reported[0] = '\0';
    vp_options_find_unknown(environment, keep_line, NULL);
}

Test(options, defaults) {
    parse("HOME=/root");
    cr_expect(eq(int, reports, 0));
    cr_expect(eq(int, options.policy, VP_POLICY_VPOOL));
    cr_expect(eq(int, options.wait, VP_WAIT_AUTO));
    cr_expect(eq(int, options.log, VP_LOG_WARN));
    cr_expect(options.adopt == VP_ADOPT_AUTO);
    cr_expect(not(options.sync_free));
    cr_expect(eq(u64, options.handle, 256 << 20));
    cr_expect(eq(u64, options.va, 0));
    cr_expect(eq(str, options.stats, ""));
}

Test(options, the_log_levels_are_the_choices_in_their_order) {
    const char *words[] = {"quiet", "warn", "info", "debug"};
    for (int level = 0; level < VP_LOG_LEVELS; level++) {
        char setting[32];
        snprintf(setting, sizeof(setting), "VPOOL_LOG=%s", words[level]);
        parse(setting);
        cr_expect(eq(int, options.log, level));
    }
}

Test(options, booleans) {
    const char *truths[] = {"1", "yes", "on", "true", "YES"};
    const char *untruths[] = {"0", "no", "off", "false", "Off"};
    char setting[64];
    for (size_t i = 0; i < COUNT(truths); i++) {
        snprintf(setting, sizeof(setting), "VPOOL_SYNC_FREE=%s", truths[i]);
        parse(setting);
        cr_expect(options.sync_free, "%s", setting);
        snprintf(setting, sizeof(setting), "VPOOL_ADOPT=%s", untruths[i]);
        parse(setting);
        cr_expect(options.adopt == VP_ADOPT_NOTHING, "%s", setting);
    }
}

Test(options, sizes) {
    const struct {
        const char *text;
        uint64_t bytes;
    } cases[] = {
        {"65536", 65536},  {"64K", 65536},    {"64k", 65536},      {"64KiB", 65536},
        {"64KB", 65536},   {"65536B", 65536}, {"2M", 2 << 20},     {"32MiB", 32 << 20},
        {"1G", G},         {"1024m", G},      {"16Mi", 16 << 20},  {"0.5G", G / 2},
        {"1.5M", 3 << 19}, {"2.0M", 2 << 20}, {"65.25KiB", 66816}, {"0.123456789012345678901G", 132560718},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        char setting[64];
        snprintf(setting, sizeof(setting), "VPOOL_HANDLE=%s", cases[i].text);
        parse(setting);
        cr_expect(eq(int, reports, 0), "%s: %s", setting, reported);
        cr_expect(eq(u64, options.handle, cases[i].bytes), "%s", setting);
    }
    parse("VPOOL_VA=4T");
    cr_expect(eq(u64, options.va, 4096 * G));
}

Test(options, a_wrong_value_is_reported_and_the_default_used) {
    const char *cases[] = {"2G",
                           "1K",
                           "0",
                           "-1",
                           "12Q",
                           "M",
                           "16 M",
                           "16i",
                           "16Mb i",
                           "99999999999999999999",
                           "18446744073709551615T",
                           "1.5",
                           "70000.0",
                           "70000.5B",
                           "1.M",
                           ".5M",
                           "1..5M",
                           "1.5.5M",
                           "1.1G"};
    for (size_t i = 0; i < COUNT(cases); i++) {
        char setting[64], expected[160];
        snprintf(setting, sizeof(setting), "VPOOL_HANDLE=%s", cases[i]);
        snprintf(expected, sizeof(expected), "%s is not valid (allowed: 64K..1G); using 256M\n", setting);
        parse(setting);
        cr_expect(eq(int, reports, 1), "%s", setting);
        cr_expect(eq(str, reported, expected));
        cr_expect(eq(u64, options.handle, 256 << 20));
    }
    parse("VPOOL_POLICY=vmm");
    cr_expect(
        eq(str, reported,
           "VPOOL_POLICY=vmm is not valid (allowed: vpool, vpmm, bfc, es, gmlake, stalloc, native); using vpool\n"));
    parse("VPOOL_ADOPT=2");
    cr_expect(eq(str, reported, "VPOOL_ADOPT=2 is not valid (allowed: auto, bare, async, 0, 1); using auto\n"));
    cr_expect(options.adopt == VP_ADOPT_AUTO);
    parse("VPOOL_TRACE=true");
    cr_expect(eq(str, reported, "VPOOL_TRACE=true is not valid (allowed: FILE, FILE.gz); using none\n"));
    cr_expect(eq(str, options.trace, ""));
    parse("VPOOL_VPMM_PAGES=1K");
    cr_expect(eq(int, reports, 1));
}

Test(options, an_empty_value_counts_as_unset) {
    parse("VPOOL_POLICY=");
    cr_expect(eq(int, reports, 0));
    cr_expect(eq(int, options.policy, VP_POLICY_VPOOL));
}

/* A file of options may ask for what the environment does not want. */
Test(options, nought_is_none_and_no_file) {
    static const char *const off[] = {"0", "no", "off", "false"};
    for (size_t i = 0; i < COUNT(off); i++) {
        char setting[64];
        snprintf(setting, sizeof(setting), "VPOOL_TRACE=%s", off[i]);
        parse(setting);
        cr_expect(eq(str, options.trace, ""), "%s", setting);
    }
    parse("VPOOL_DUMP=0");
    cr_expect(eq(str, options.dump, ""));
    parse("VPOOL_STATS=on");
    cr_expect(eq(str, options.stats, "1"));
    parse("VPOOL_DUMP_FILE=0");
    cr_expect(eq(str, options.dump_file, "0"));
}

Test(options, choices_are_whole_words) {
    parse("VPOOL_POLICY=vpmm");
    cr_expect(eq(int, options.policy, VP_POLICY_VPMM));
    parse("VPOOL_POLICY=Native");
    cr_expect(eq(int, options.policy, VP_POLICY_NATIVE));
    parse("VPOOL_POLICY=vp");
    cr_expect(eq(int, reports, 1));
    parse("VPOOL_POLICY=vpool, vpmm");
    cr_expect(eq(int, reports, 1));
}

Test(options, strings_are_copied_and_bounded) {
    static char setting[VP_OPTION_TEXT + 32] = "VPOOL_STATS=/tmp/stats.%p.json";
    parse(setting);
    memset(setting, 'x', sizeof(setting) - 1);
    cr_expect(eq(str, options.stats, "/tmp/stats.%p.json"));
    memcpy(setting, "VPOOL_STATS=", strlen("VPOOL_STATS="));
    parse(setting);
    cr_expect(eq(str, reported, "VPOOL_STATS is longer than 4095 characters; it is left unset\n"));
    cr_expect(eq(str, options.stats, ""));
}

Test(options, unknown_variables_are_reported_with_what_was_meant) {
    find_unknown("VPOOL_POLICIE=vpmm");
    cr_expect(eq(str, reported, "VPOOL_POLICIE is not an option of vpool; did you mean VPOOL_POLICY?\n"));
    find_unknown("VPOOL_STAT=1");
    cr_expect(eq(str, reported, "VPOOL_STAT is not an option of vpool; did you mean VPOOL_STATS?\n"));
    find_unknown("VPOOL_COFFEE=black");
    cr_expect(eq(str, reported, "VPOOL_COFFEE is not an option of vpool\n"));
    find_unknown("VPOOL_SIM=bytes");
    cr_expect(eq(int, reports, 0));
    find_unknown("VPOOLING=1");
    cr_expect(eq(int, reports, 0));
}

Test(options, a_very_long_unknown_name_is_cut) {
    char setting[2048] = "VPOOL_";
    memset(setting + strlen(setting), 'X', sizeof(setting) - 1 - strlen(setting));
    find_unknown(setting);
    cr_expect(eq(int, reports, 1));
    cr_expect(lt(sz, strlen(reported), 256));
}

Test(options, a_share_is_a_size_or_a_percentage) {
    static const struct {
        const char *setting;
        uint64_t value;
        int reports;
    } cases[] = {{"VPOOL_LIMIT=2G", 2ull << 30, 0}, {"VPOOL_LIMIT=80%", 80, 0}, {"VPOOL_LIMIT=100%", 100, 0},
                 {"VPOOL_LIMIT=0", 0, 0},           {"VPOOL_LIMIT=0%", 0, 1},   {"VPOOL_LIMIT=101%", 0, 1},
                 {"VPOOL_LIMIT=50", 0, 1},          {"VPOOL_LIMIT=%", 0, 1},    {"VPOOL_LIMIT=1000000%", 0, 1},
                 {"VPOOL_LIMIT=-5%", 0, 1}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        parse(cases[i].setting);
        cr_expect(options.limit == cases[i].value && reports == cases[i].reports, "%s: %llu, %d", cases[i].setting,
                  (unsigned long long)options.limit, reports);
    }
    parse("VPOOL_LIMIT=80%");
    reported[0] = '\0';
    vp_options_print_values(&options, keep_line, NULL);
    cr_expect(says("VPOOL_LIMIT=80%\n"));
}

Test(options, the_values_in_force_are_listed) {
    parse("VPOOL_HANDLE=1536K");
    vp_options_print_values(&options, keep_line, NULL);
    cr_expect(says("VPOOL_HANDLE=1536K\n"));
    cr_expect(says("VPOOL_POLICY=vpool (default)\n"));
    cr_expect(not(says("VPOOL_SIM")));
}

Test(options, a_synchronous_cuda_frees_synchronously_too) {
    parse("CUDA_LAUNCH_BLOCKING=1");
    cr_expect(options.sync_free);
    parse("CUDA_LAUNCH_BLOCKING=0");
    cr_expect(not(options.sync_free));
    char *both[] = {"CUDA_LAUNCH_BLOCKING=1", "VPOOL_SYNC_FREE=0", NULL};
    vp_options_parse(&options, look_in_list, both, keep_line, NULL);
    cr_expect(not(options.sync_free), "what is said in so many words counts");
}

Test(options, the_process_reads_its_environment_once) {
    setenv("VPOOL_POLICY", "native", 1);
    setenv("VPOOL_LOG", "quiet", 1);
    cr_expect(eq(int, vp_options()->policy, VP_POLICY_NATIVE));
    cr_expect(not(vp_log_shows(VP_LOG_WARN)));
    setenv("VPOOL_POLICY", "vpmm", 1);
    cr_expect(eq(int, vp_options()->policy, VP_POLICY_NATIVE));
}

/* A default that is not itself allowed would pass unseen, since it is never reported. */
Test(options, each_default_is_a_value_allowed) {
#define CHECK_DEFAULT(kind, field, variable, fallback, allowed, sentence)                                              \
    parse(variable "=" fallback);                                                                                      \
    cr_expect(eq(int, reports, 0), "%s", reported);
    VP_OPTIONS(CHECK_DEFAULT)
}
