/* The configuration string, and the failures that tests inject. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "sim_private.h"
#include "sim.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define MAX_RULES 16

struct rule {
    char name[64];      /* "*": any call that may fail */
    unsigned long left; /* calls until it fails; 0: a free place */
    bool onward;
    CUresult result;
};

static struct rule rules[MAX_RULES];

bool sim_name_matches(const char *symbol, const char *name) {
    size_t length = strlen(name);
    if (strncmp(symbol, name, length) != 0)
        return false;
    const char *rest = symbol + length;
    return *rest == '\0' || (rest[0] == '_' && rest[1] == 'v');
}

static int add_rule(const char *name, unsigned long nth, bool onward, CUresult result) {
    for (int i = 0; i < MAX_RULES; i++)
        if (rules[i].left == 0) {
            rules[i] = (struct rule){.left = nth, .onward = onward, .result = result};
            snprintf(rules[i].name, sizeof(rules[i].name), "%s", name);
            return 0;
        }
    return -ENOSPC;
}

CUresult sim_fail_check(const struct sim_entry *entry) {
    CUresult result = CUDA_SUCCESS;
    for (int i = 0; i < MAX_RULES; i++) {
        struct rule *rule = &rules[i];
        if (rule->left == 0)
            continue;
        bool any = strcmp(rule->name, "*") == 0;
        if (any ? (entry->flags & SIM_SURE) != 0 : !sim_name_matches(entry->name, rule->name))
            continue;
        if (rule->left > 1) {
            rule->left--;
        } else {
            result = rule->result;
            rule->left = rule->onward;
        }
    }
    return result;
}

/* ---- calls that take long ---- */

static struct delay {
    char name[64];
    unsigned ms; /* 0: a free place */
    bool after;
} delays[MAX_RULES];

unsigned sim_delay_check(const struct sim_entry *entry, bool after) {
    unsigned ms = 0;
    for (int i = 0; i < MAX_RULES && delays[i].ms; i++)
        if (delays[i].after == after && sim_name_matches(entry->name, delays[i].name))
            ms += delays[i].ms;
    return ms;
}

static bool parse_delay(char *text) {
    char *colon = strchr(text, ':'), *end;
    int i = 0;
    while (i < MAX_RULES && delays[i].ms)
        i++;
    if (!colon || colon == text || i == MAX_RULES)
        return false;
    *colon = '\0';
    unsigned long ms = strtoul(colon + 1, &end, 10);
    bool after = *end == '+';
    if (end == colon + 1 || end[after] != '\0' || ms == 0 || ms > 3600000)
        return false;
    delays[i] = (struct delay){.ms = (unsigned)ms, .after = after};
    snprintf(delays[i].name, sizeof(delays[i].name), "%s", text);
    return true;
}

void sim_fail_reset(void) {
    memset(rules, 0, sizeof(rules));
    memset(delays, 0, sizeof(delays));
}

SIM_EXPORT void vp_sim_fail(const char *name, long nth, CUresult result) {
    name = name ? name : "*";
    pthread_mutex_lock(&sim.lock);
    if (nth == 0) {
        for (int i = 0; i < MAX_RULES; i++)
            if (strcmp(rules[i].name, name) == 0)
                rules[i].left = 0;
    } else if (add_rule(name, (unsigned long)labs(nth), nth < 0, result) < 0) {
        fprintf(stderr, "[sim] more than %d failures asked for; that of %s is ignored\n", MAX_RULES, name);
    }
    pthread_mutex_unlock(&sim.lock);
}

/* ---- the string ---- */

enum option_type { NUMBER, BYTES, CHOICE, FAILURE, DELAY, TEXT, SIZES, DEVICES, SWITCHES };

static const struct option {
    const char *key;
    enum option_type type;
    size_t offset, width; /* the field in struct sim_options */
    uint64_t min, max, preset;
    const char *choices[2];
} table[] = {
#define FIELD(member) offsetof(struct sim_options, member), sizeof(((struct sim_options *)0)->member)
    {"backing", CHOICE, FIELD(ledger), 0, 1, 0, {"bytes", "ledger"}},
    {"capacity", SIZES, 0, 0, 1 << 20, (uint64_t)1 << 46, 256u << 20, {NULL, NULL}},
    {"granularity", BYTES, FIELD(granularity), 64 << 10, 1 << 30, 2 << 20, {NULL, NULL}},
    {"host", BYTES, FIELD(host), 0, (uint64_t)1 << 46, (uint64_t)1 << 40, {NULL, NULL}},
    {"devices", NUMBER, FIELD(devices), 1, SIM_MAX_DEVICES, 1, {NULL, NULL}},
    {"visible", DEVICES, 0, 0, 0, SIM_MAX_DEVICES - 1, 0, {NULL, NULL}},
    {"driver", NUMBER, FIELD(driver), 11020, 99990, 13000, {NULL, NULL}},
    {"peers", NUMBER, FIELD(peers), 0, 1, 1, {NULL, NULL}},
    {"vmm", SWITCHES, 0, 0, 0, 1, 1, {NULL, NULL}},
    {"decompress", NUMBER, FIELD(decompress), 0, 1, 0, {NULL, NULL}},
    {"lazy", NUMBER, FIELD(lazy), 0, 100, 50, {NULL, NULL}},
    {"memset", CHOICE, FIELD(late_memset), 0, 1, 0, {"wait", "late"}},
    {"managed", CHOICE, FIELD(managed_moves), 0, 1, 0, {"stays", "moves"}},
    {"timeout", NUMBER, FIELD(timeout_ms), 1, 3600000, 5000, {NULL, NULL}},
    {"seed", NUMBER, FIELD(seed), 0, UINT64_MAX, 1, {NULL, NULL}},
    {"trace", NUMBER, FIELD(trace), 0, 1, 0, {NULL, NULL}},
    {"shared", TEXT, FIELD(shared), 0, 0, 0, {NULL, NULL}},
    {"fail", FAILURE, 0, 0, 0, 0, 0, {NULL, NULL}},
    {"delay", DELAY, 0, 0, 0, 0, 0, {NULL, NULL}},
#undef FIELD
};

static void store(const struct option *option, uint64_t value) {
    void *field = (char *)&sim.options + option->offset;
    switch (option->width) {
    case 1: *(uint8_t *)field = (uint8_t)value; break;
    case 4: *(uint32_t *)field = (uint32_t)value; break;
    case 8: *(uint64_t *)field = value; break;
    }
}

static bool parse_number(const char *text, enum option_type type, uint64_t *value) {
    char *end;
    errno = 0;
    *value = strtoull(text, &end, 0);
    if (end == text || errno || *text == '-')
        return false;
    if (type == BYTES && *end) {
        const char *units = "KMGT", *unit = strchr(units, *end);
        if (!unit || *value > UINT64_MAX >> 10 * (unit - units + 1))
            return false;
        *value <<= 10 * (unit - units + 1);
        end++;
    }
    return *end == '\0';
}

/* Reads numbers or sizes with colons between. Returns how many there are; 0: they are invalid. */
static int parse_list(char *text, const struct option *option, uint64_t list[SIM_MAX_DEVICES]) {
    int count = 0;
    for (char *part; (part = strsep(&text, ":")) != NULL; count++)
        if (count == SIM_MAX_DEVICES || !parse_number(part, option->type == SIZES ? BYTES : NUMBER, &list[count]) ||
            list[count] < option->min || list[count] > option->max)
            return 0;
    return count;
}

static bool store_list(char *text, const struct option *option) {
    uint64_t list[SIM_MAX_DEVICES];
    const int count = parse_list(text, option, list);
    for (int i = 0; i < SIM_MAX_DEVICES && count; i++)
        if (option->type == SIZES)
            sim.options.capacity[i] = list[i < count ? i : count - 1];
        else if (option->type == SWITCHES)
            sim.options.vmm = (sim.options.vmm & ~(1u << i)) | (unsigned)list[i < count ? i : count - 1] << i;
        else if (i < count)
            sim.options.visible[i] = (int)list[i];
    if (count && option->type == DEVICES)
        sim.options.visible_count = count;
    return count > 0;
}

static bool parse_failure(char *text) {
    char *colon = strchr(text, ':'), *end;
    if (!colon || colon == text)
        return false;
    *colon = '\0';
    unsigned long nth = strtoul(colon + 1, &end, 10);
    bool onward = *end == '+', whole = nth > 0 && end > colon + 1;
    unsigned long result = CUDA_ERROR_OUT_OF_MEMORY;
    end += onward;
    if (whole && *end == ':') {
        const char *code = end + 1;
        result = strtoul(code, &end, 10);
        whole = result > 0 && result <= CUDA_ERROR_UNKNOWN;
    }
    return whole && !*end && add_rule(text, nth, onward, (CUresult)result) == 0;
}

/* Reads one part. Returns NULL, or what would be valid. */
static const char *parse_part(char *part) {
    static char allowed[128];
    char *value = strchr(part, '=');
    if (!value)
        return "key=value";
    *value++ = '\0';
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        const struct option *option = &table[i];
        if (strcmp(option->key, part) != 0)
            continue;
        uint64_t number;
        switch (option->type) {
        case CHOICE:
            for (int choice = 0; choice < 2; choice++)
                if (strcmp(option->choices[choice], value) == 0) {
                    store(option, (uint64_t)choice);
                    return NULL;
                }
            snprintf(allowed, sizeof(allowed), "%s or %s", option->choices[0], option->choices[1]);
            return allowed;
        case TEXT:
            snprintf(allowed, sizeof(allowed), "at most %zu bytes", option->width - 1);
            if (strlen(value) >= option->width)
                return allowed;
            strcpy((char *)&sim.options + option->offset, value);
            return NULL;
        case SIZES:
        case DEVICES:
        case SWITCHES:
            snprintf(allowed, sizeof(allowed), "up to %d of %llu to %llu, with colons between", SIM_MAX_DEVICES,
                     (unsigned long long)option->min, (unsigned long long)option->max);
            return store_list(value, option) ? NULL : allowed;
        case FAILURE: return parse_failure(value) ? NULL : "NAME:N or NAME:N+, and :CODE of the error";
        case DELAY: return parse_delay(value) ? NULL : "NAME:MS or NAME:MS+";
        case BYTES:
        case NUMBER:
            if (parse_number(value, option->type, &number) && number >= option->min && number <= option->max &&
                (option->offset != offsetof(struct sim_options, granularity) || (number & (number - 1)) == 0)) {
                store(option, number);
                return NULL;
            }
            snprintf(allowed, sizeof(allowed), "%llu to %llu", (unsigned long long)option->min,
                     (unsigned long long)option->max);
            return allowed;
        }
    }
    return "one of backing, capacity, granularity, host, devices, visible, peers, driver, vmm, decompress, lazy, memset, managed, timeout, "
           "seed, trace, shared, fail, delay";
}

/* Reads the options. Without a text, sets the defaults. */
int sim_options_parse(const char *text, const char *source) {
    if (!text) {
        for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
            if (table[i].type == TEXT)
                *((char *)&sim.options + table[i].offset) = '\0';
            else if (table[i].type < FAILURE)
                store(&table[i], table[i].preset);
            else if (table[i].type == SIZES)
                store_list((char[]){"256M"}, &table[i]);
        sim.options.vmm = (1u << SIM_MAX_DEVICES) - 1;
        sim.options.visible_count = 0;
        return 0;
    }
    int result = 0;
    char *copy = strdup(text), *rest = copy, *part;
    while (copy && (part = strsep(&rest, ",")) != NULL) {
        char shown[96];
        snprintf(shown, sizeof(shown), "%s", part);
        const char *allowed = *part ? parse_part(part) : NULL;
        if (allowed) {
            fprintf(stderr, "[sim] %s: '%s' is not understood; allowed: %s; the default is used\n", source, shown,
                    allowed);
            result = -EINVAL;
        }
    }
    free(copy);
    return result;
}
