/* lab_options.c - see lab_options.h. */
#include "lab/lab_options.h"

#include <string.h>

#include "base/units.h"

#define DELAY_MAX_S 10.0
#define DESCRIPTION                                                                                                    \
    "hosts=4,rate=1gbit,delay=50ms,jitter=5ms,loss=1%,reorder=1%,duplicate=0.1%,corrupt=0.1%,sums=wrong,seed=7"

static bool take_hosts(gw_lab_options *options, const char *value) {
    int64_t hosts;
    if (!gw_integer_parse(value, 1, GW_LAB_HOSTS_MAX, &hosts)) return false;
    options->hosts = (int)hosts;
    return true;
}

static bool take_rate(gw_lab_options *options, const char *value) { return gw_rate_parse(value, &options->rate); }

static bool take_time(gw_time *time, const char *value) {
    double seconds;
    if (!gw_duration_parse(value, &seconds) || seconds > DELAY_MAX_S) return false;
    *time = (gw_time)(seconds * 1e9);
    return true;
}

static bool take_delay(gw_lab_options *options, const char *value) { return take_time(&options->network.delay, value); }

static bool take_jitter(gw_lab_options *options, const char *value) {
    return take_time(&options->network.jitter, value);
}

static bool take_loss(gw_lab_options *options, const char *value) {
    return gw_percent_parse(value, &options->network.loss);
}

static bool take_reorder(gw_lab_options *options, const char *value) {
    return gw_percent_parse(value, &options->network.reorder);
}

static bool take_duplicate(gw_lab_options *options, const char *value) {
    return gw_percent_parse(value, &options->network.duplicate);
}

static bool take_corrupt(gw_lab_options *options, const char *value) {
    return gw_percent_parse(value, &options->network.corrupt);
}

static bool take_sums(gw_lab_options *options, const char *value) {
    options->network.sums_right = strcmp(value, "right") == 0;
    return options->network.sums_right || strcmp(value, "wrong") == 0;
}

static bool take_seed(gw_lab_options *options, const char *value) {
    int64_t seed;
    if (!gw_integer_parse(value, 0, INT64_MAX, &seed)) return false;
    options->network.seed = (uint64_t)seed;
    return true;
}

static const struct {
    const char *name;
    bool (*take)(gw_lab_options *options, const char *value);
    const char *expects;
} words[] = {
    {"hosts", take_hosts, "a number of hosts from 1 to 64"},
    {"rate", take_rate, "a rate such as 1gbit or 100mbit"},
    {"delay", take_delay, "a time such as 50ms, at most 10 s"},
    {"jitter", take_jitter, "a time such as 5ms, at most 10 s"},
    {"loss", take_loss, "a share of the packets such as 1%"},
    {"reorder", take_reorder, "a share of the packets such as 1%"},
    {"duplicate", take_duplicate, "a share of the packets such as 0.1%"},
    {"corrupt", take_corrupt, "a share of the packets such as 0.1%"},
    {"sums", take_sums, "wrong (TCP drops a corrupt packet) or right (TCP takes it)"},
    {"seed", take_seed, "a whole number"},
};

static gw_status parse_word(char *word, gw_lab_options *options, gw_error *error) {
    char *value = strchr(word, '=');
    size_t name = value ? (size_t)(value - word) : 0;
    for (size_t i = 0; value && i < sizeof words / sizeof words[0]; i++) {
        if (strncmp(word, words[i].name, name) != 0 || words[i].name[name] != '\0') continue;
        if (words[i].take(options, value + 1)) return GW_OK;
        return gw_fail(error, GW_INVALID, "the %s of a lab is %s, not \"%s\"", words[i].name, words[i].expects,
                       value + 1);
    }
    return gw_fail(error, GW_INVALID, "a lab is described as %s, not \"%s\"", DESCRIPTION, word);
}

gw_status gw_lab_parse(const char *text, gw_lab_options *options, gw_error *error) {
    char copy[256], *rest = copy, *word;
    *options = (gw_lab_options){.hosts = 4, .rate = 1e9};
    if (strlen(text) >= sizeof copy) return gw_fail(error, GW_INVALID, "the description of the lab is too long");
    strcpy(copy, text);
    gw_status status = GW_OK;
    while (!status && (word = strsep(&rest, ","))) status = parse_word(word, options, error);
    if (!status && options->network.jitter > options->network.delay)
        status =
            gw_fail(error, GW_INVALID, "the jitter of a lab cannot be larger than its delay: give a longer delay=");
    return status;
}
