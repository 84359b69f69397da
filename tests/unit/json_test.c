/* Writing JSON: what is written is what JSON allows. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>

#include "base/json.h"

#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

static struct vp_json json;
static char buffer[4096];
static int ends[2];

static void start(size_t buffer_size) {
    cr_assert(zero(pipe(ends)));
    vp_json_init(&json, ends[1], buffer, buffer_size);
}

static char *finish(void) {
    static char text[4096];
    size_t used = 0;
    cr_expect(zero(vp_json_finish(&json)));
    close(ends[1]);
    for (ssize_t got; (got = read(ends[0], text + used, sizeof(text) - 1 - used)) > 0;)
        used += (size_t)got;
    text[used] = '\0';
    return text;
}

static void write_sample(void) {
    vp_json_begin_object(&json, NULL);
    vp_json_u64(&json, "most", UINT64_MAX);
    vp_json_begin_array(&json, "list");
    vp_json_bool(&json, NULL, true);
    vp_json_begin_object(&json, NULL);
    vp_json_end_object(&json);
    vp_json_string(&json, NULL, NULL);
    vp_json_end_array(&json);
    vp_json_begin_array(&json, "none");
    vp_json_end_array(&json);
    vp_json_numbers(&json, {"one", 1}, {"two", 2});
    vp_json_row(&json, "row", {"three", 3}, {"four", 4});
    vp_json_end_object(&json);
}

static char sample[] = "{\n"
                       "  \"most\": 18446744073709551615,\n"
                       "  \"list\": [\n"
                       "    true,\n"
                       "    {},\n"
                       "    null\n"
                       "  ],\n"
                       "  \"none\": [],\n"
                       "  \"one\": 1,\n"
                       "  \"two\": 2,\n"
                       "  \"row\": { \"three\": 3, \"four\": 4 }\n"
                       "}\n";

Test(json, groups_nest) {
    start(sizeof(buffer));
    write_sample();
    cr_expect(eq(str, finish(), sample));
}

Test(json, a_buffer_of_any_size_gives_the_same_text) {
    for (size_t size = 1; size < 20; size++) {
        start(size);
        write_sample();
        cr_expect(eq(str, finish(), sample), "buffer of %zu", size);
    }
}

Test(json, strings_are_escaped) {
    const struct {
        const char *value;
        char *text;
    } cases[] = {
        {"", "\"\"\n"},
        {"a \"quoted\\\" one", "\"a \\\"quoted\\\\\\\" one\"\n"},
        {"line\nand\ttab\x01", "\"line\\u000aand\\u0009tab\\u0001\"\n"},
        {"\xc3\xb6, \xe2\x82\xac, \xf0\x9f\x90\xa7", "\"\xc3\xb6, \xe2\x82\xac, \xf0\x9f\x90\xa7\"\n"},
        {"latin1 \xe4.", "\"latin1 \\ufffd.\"\n"},
        {"cut \xe2\x82", "\"cut \\ufffd\\ufffd\"\n"},
        {"overlong \xc0\xaf", "\"overlong \\ufffd\\ufffd\"\n"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        start(sizeof(buffer));
        vp_json_string(&json, NULL, cases[i].value);
        cr_expect(eq(str, finish(), cases[i].text));
    }
}

Test(json, texts_are_cut_between_characters) {
    static const char text[] = "a\303\251\346\227\245\360\237\230\200b"; /* of one, two, three, four and one bytes */
    static const int fit[] = {0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 11, 11};
    for (int most = 0; most < 13; most++)
        cr_assert_eq(vp_utf8_fit(text, most), fit[most], "%d: %d", most, vp_utf8_fit(text, most));
    cr_assert_eq(vp_utf8_fit("\200\200\200\200\200\200", 5), 5, "what is no UTF-8 is cut anywhere");
}

Test(json, numbers) {
    start(sizeof(buffer));
    vp_json_begin_array(&json, NULL);
    vp_json_double(&json, NULL, 0.5);
    vp_json_double(&json, NULL, -1e300);
    vp_json_double(&json, NULL, 3);
    vp_json_double(&json, NULL, NAN);
    vp_json_double(&json, NULL, INFINITY);
    vp_json_end_array(&json);
    cr_expect(eq(str, finish(), "[\n  0.5,\n  -1e+300,\n  3,\n  null,\n  null\n]\n"));
}

Test(json, the_decimal_point_is_a_point_in_every_locale) {
    if (!setlocale(LC_NUMERIC, "de_DE.UTF-8") && !setlocale(LC_NUMERIC, "de_DE"))
        cr_skip_test("no such locale here");
    start(sizeof(buffer));
    vp_json_double(&json, NULL, 1.25);
    cr_expect(eq(str, finish(), "1.25\n"));
}

Test(json, a_failed_write_is_told_at_the_end) {
    int full = open("/dev/full", O_WRONLY);
    cr_assert(ge(int, full, 0));
    vp_json_init(&json, full, buffer, 8);
    write_sample();
    cr_expect(eq(int, vp_json_finish(&json), -ENOSPC));
    close(full);
}
