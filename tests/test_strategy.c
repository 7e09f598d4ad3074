/* test_strategy.c - the five-axis line: every combination printed and read back, and every error sentence. */
#include "test.h"

#include <locale.h>
#include <math.h>
#include <sys/stat.h>

#include "strategy/combine.h"
#include "strategy/strategy.h"

#define DEFAULTS "arch=auto sync=bsp compress=none schedule=wfbp transport=auto"

static const char *printed(const gw_strategy *strategy) {
    static char text[GW_STRATEGY_PRINT_BYTES];
    int length = gw_strategy_print(strategy, text, sizeof text);
    CHECK(length > 0 && length < GW_STRATEGY_PRINT_BYTES);
    CHECK_EQ(strlen(text), length);
    return text;
}

static const char *parsed(const char *line) {
    gw_strategy strategy;
    static gw_error error;
    error = (gw_error){.status = GW_OK};
    return gw_strategy_parse(line, &strategy, &error) ? error.text : printed(&strategy);
}

static void reads_lines(void) {
    CHECK_STR(DEFAULTS, parsed(""));
    CHECK_STR(DEFAULTS, parsed(" \t\n# only a remark"));
    CHECK_STR(DEFAULTS, parsed(DEFAULTS));
    CHECK_STR("arch=ring sync=bsp compress=none schedule=wfbp transport=tcp", parsed("transport=tcp arch=ring"));
    CHECK_STR("arch=ring:chunk=256K sync=bsp compress=none schedule=wfbp transport=auto",
              parsed("  arch=ring:chunk=262144\r\n"));
    CHECK_STR("arch=ring:chunk=1000 sync=bsp compress=none schedule=wfbp transport=auto",
              parsed("arch=ring:chunk=1000 # in bytes"));
    CHECK_STR(DEFAULTS, parsed("arch=auto:chunk=auto transport=auto:streams=1,congestion=auto"));
    CHECK_STR("arch=auto sync=bsp compress=none schedule=wfbp transport=tcp:streams=4,congestion=bbr",
              parsed("transport=tcp:congestion=bbr,streams=4"));
    CHECK_STR("arch=tree sync=bsp compress=none schedule=wfbp transport=shm",
              parsed("# two\narch=tree # lines\n\n#arch=ring\ntransport=shm"));
    CHECK_STR("arch=auto sync=bsp compress=topk:ratio=0.001,limit=0.5 schedule=wfbp transport=auto",
              parsed("compress=topk:limit=.5,feedback=both,ratio=1e-3"));
    CHECK_STR("arch=auto sync=bsp compress=doublesqueeze:codec=topk schedule=wfbp transport=auto",
              parsed("compress=doublesqueeze:codec=topk"));
}

/* ---- every combination ---- */

static double variant(const gw_param *param, int which) {
    if (param->kind == GW_PARAM_CHOICE) {
        int count = 0;
        while (param->choices[count]) count++;
        return which % count;
    }
    if (param->kind == GW_PARAM_FLAG) return which % 2;
    double within = (param->lowest + param->highest) / 3;
    switch (which) {
    case 0: return param->preset;
    case 1: return param->lowest;
    case 2: return param->highest;
    default: return param->kind == GW_PARAM_NUMBER ? within : floor(within);
    }
}

static void round_trip(const gw_strategy *strategy) {
    gw_strategy again;
    gw_error error = {.status = GW_OK};
    const char *text = printed(strategy);
    CHECK_EQ(GW_OK, gw_strategy_parse(text, &again, &error));
    CHECK_STR("", error.text);
    CHECK(gw_strategy_equal(strategy, &again));
}

static int combine(gw_strategy *strategy, int axis, int which) {
    if (axis == GW_AXES) {
        round_trip(strategy);
        return 1;
    }
    int count = 0;
    for (const gw_technique *const *at = gw_techniques((gw_axis)axis); *at; at++) {
        const gw_technique *technique = *at;
        gw_setting *setting = &strategy->axes[axis];
        *setting = (gw_setting){.technique = technique};
        for (int i = 0; technique->params && technique->params[i].name; i++)
            setting->values[i] = variant(&technique->params[i], which);
        count += combine(strategy, axis + 1, which);
    }
    return count;
}

static void all_combinations_round_trip(void) {
    gw_strategy strategy = {.accuracy = GW_ACCURACY_EXACT};
    int count = 0, expected = 5;
    for (int which = 0; which < 5; which++) count += combine(&strategy, 0, which);
    for (int axis = 0; axis < GW_AXES; axis++) {
        int techniques = 0;
        while (gw_techniques((gw_axis)axis)[techniques]) techniques++;
        expected *= techniques;
    }
    CHECK_EQ(expected, count);
    CHECK(count >= 5 * 6 * 13 * 4);
}

static void registries_are_sound(void) {
    for (int axis = 0; axis < GW_AXES; axis++) {
        int techniques = 0;
        gw_axis found;
        CHECK(gw_axis_parse(gw_axis_name((gw_axis)axis), &found) && found == (gw_axis)axis);
        CHECK(gw_axis_about((gw_axis)axis)[0] != '\0');
        for (const gw_technique *const *at = gw_techniques((gw_axis)axis); *at; at++) {
            const gw_technique *technique = *at;
            techniques++;
            for (const gw_technique *const *other = gw_techniques((gw_axis)axis); other < at; other++)
                CHECK(strcmp((*other)->name, technique->name) != 0);
            CHECK(technique->about && technique->about[0]);
            int params = 0;
            for (const gw_param *param = technique->params; param && param->name; param++, params++) {
                CHECK(param->about && param->about[0]);
                if (param->kind == GW_PARAM_FLAG) CHECK(param->preset == 0);
                if (param->kind == GW_PARAM_CHOICE) CHECK(param->choices && param->choices[0]);
                if (param->kind > GW_PARAM_NUMBER) continue;
                CHECK(param->lowest < param->highest && param->highest <= 9007199254740992.0);
                if (param->automatic) CHECK(param->auto_value < param->lowest);
                if (!param->automatic || param->preset != param->auto_value) CHECK(param->preset >= param->lowest);
                CHECK(param->preset <= param->highest);
            }
            CHECK(params <= GW_TECHNIQUE_PARAMS_MAX);
        }
        CHECK(techniques > 0 && techniques <= GW_TECHNIQUES_MAX);
    }
}

/* ---- refusals ---- */

static void refuses_with_a_sentence(void) {
    static const struct {
        const char *line, *sentence;
    } cases[] = {
        {"ring", "\"ring\" is not axis=technique, such as arch=ring; the axes are arch, sync, compress, schedule and "
                 "transport"},
        {"arhc=ring", "unknown axis \"arhc\" (did you mean \"arch\"? allowed: arch, sync, compress, schedule, "
                      "transport, strategy, accuracy)"},
        {"compress=topk ratio=0.1", "ratio is a parameter: it follows compress=topk after a colon or a comma"},
        {"compress=topk,ratio=0.1", "parameters follow compress=topk after a colon, not a comma"},
        {"=ring", "unknown axis \"\" (allowed: arch, sync, compress, schedule, transport, strategy, accuracy)"},
        {"arch=rign", "unknown arch \"rign\" (did you mean \"ring\"? allowed: auto, ring, halving, tree, direct, "
                      "hierarchical, mpi, ps, sfb)"},
        {"arch=butterfly", "unknown arch \"butterfly\" (allowed: auto, ring, halving, tree, direct, hierarchical, "
                           "mpi, ps, sfb)"},
        {"arch=", "arch= names no technique (allowed: auto, ring, halving, tree, direct, hierarchical, mpi, ps, sfb)"},
        {"arch=:chunk=1M", "arch= names no technique (allowed: auto, ring, halving, tree, direct, hierarchical, "
                           "mpi, ps, sfb)"},
        {"arch=ring,tree", "unknown arch \"ring,tree\" (allowed: auto, ring, halving, tree, direct, hierarchical, "
                           "mpi, ps, sfb)"},
        {"arch=ring sync=bsp arch=tree", "arch is given twice; name each axis once"},
        {"arch=ring:", "arch=ring: a parameter without a name (allowed: chunk)"},
        {"arch=ring:chunk=1M,", "arch=ring: a parameter without a name (allowed: chunk)"},
        {"arch=ring:chnk=1M", "arch=ring has no parameter \"chnk\" (did you mean \"chunk\"? allowed: chunk)"},
        {"arch=ring:chunk=1M,chunk=2M", "arch=ring: chunk is given twice; give it once"},
        {"arch=ring:chunk", "arch=ring: chunk needs a value (allowed: 64 to 1G, or auto)"},
        {"arch=ring:chunk=", "arch=ring: chunk needs a value (allowed: 64 to 1G, or auto)"},
        {"arch=ring:chunk=big", "arch=ring: chunk cannot be \"big\" (allowed: 64 to 1G, or auto)"},
        {"arch=ring:chunk=63", "arch=ring: chunk cannot be \"63\" (allowed: 64 to 1G, or auto)"},
        {"arch=ring:chunk=0", "arch=ring: chunk cannot be \"0\" (allowed: 64 to 1G, or auto)"},
        {"arch=ring:chunk=1G1", "arch=ring: chunk cannot be \"1G1\" (allowed: 64 to 1G, or auto)"},
        {"arch=ring:chunk=2G", "arch=ring: chunk cannot be \"2G\" (allowed: 64 to 1G, or auto)"},
        {"arch=ring:chunk=1M=2", "arch=ring: chunk cannot be \"1M=2\" (allowed: 64 to 1G, or auto)"},
        {"sync=bsp:x=1", "sync=bsp takes no parameters, but \"x=1\" is given"},
        {"compress=none:feedback=both", "compress=none takes no parameters, but \"feedback=both\" is given"},
        {"compress=topk:ratio=2", "compress=topk: ratio cannot be \"2\" (allowed: 1e-05 to 1)"},
        {"compress=fp16:limit=1", "compress=fp16 has no parameter \"limit\" (allowed: feedback, form)"},
        {"compress=int8:limit=1001", "compress=int8: limit cannot be \"1001\" (allowed: 0 to 1000)"},
        {"compress=qsgd:elias=on", "compress=qsgd: elias is a flag and takes no value, but \"on\" is given"},
        {"compress=top", "unknown compress \"top\" (did you mean \"topk\"? allowed: none, fp16, bf16, int8, onebit, "
                         "qsgd, terngrad, topk, randomk, threshold, dgc, powersgd, doublesqueeze)"},
        {"transport=tcp:streams=9", "transport=tcp: streams cannot be \"9\" (allowed: 1 to 8)"},
        {"transport=tcp:streams=-1", "transport=tcp: streams cannot be \"-1\" (allowed: 1 to 8)"},
        {"transport=tcp:streams=2.5", "transport=tcp: streams cannot be \"2.5\" (allowed: 1 to 8)"},
        {"transport=tcp:congestion=cubik", "transport=tcp: congestion cannot be \"cubik\" (did you mean \"cubic\"? "
                                           "allowed: auto, cubic, bbr, reno, system)"},
        {"arch=ring#remark", "unknown arch \"ring#remark\" (allowed: auto, ring, halving, tree, direct, "
                             "hierarchical, mpi, ps, sfb)"},
        {"arch=ri\033[31mng", "unknown arch \"ri?[31mng\" (allowed: auto, ring, halving, tree, direct, "
                              "hierarchical, mpi, ps, sfb)"},
        {"# a file\narch=ring\n\ntransport=udp", "line 4: unknown transport \"udp\" (allowed: auto, tcp, rdma, "
                                                 "shm, zmq, mpi, sim)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) CHECK_STR(cases[i].sentence, parsed(cases[i].line));
}

static void refuses_long_input(void) {
    static char line[GW_STRATEGY_INPUT_MAX + 100];
    memset(line, 'x', 600);
    CHECK_STR(
        "the word that begins \"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx...\" has 600 bytes, more "
        "than the 511 allowed",
        parsed(line));
    memset(line, ' ', sizeof line - 1);
    line[0] = '\n';
    CHECK_STR("a strategy of more than 16384 bytes is not read", parsed(line));
    line[GW_STRATEGY_INPUT_MAX] = '\0';
    CHECK_STR(DEFAULTS, parsed(line));
}

static void failure_leaves_the_output_alone(void) {
    gw_strategy strategy, before;
    CHECK_EQ(GW_OK, gw_strategy_parse("arch=tree", &strategy, NULL));
    before = strategy;
    CHECK_EQ(GW_INVALID, gw_strategy_parse("arch=ring sync=never", &strategy, NULL));
    CHECK_EQ(GW_INVALID, gw_strategy_overlay(&strategy, "arch=ring sync=never", NULL, NULL));
    CHECK(gw_strategy_equal(&before, &strategy));
}

/* ---- where it comes from ---- */

static void overlays_axis_by_axis(void) {
    gw_strategy strategy;
    gw_error error = {.status = GW_OK};
    CHECK_EQ(GW_OK, gw_strategy_parse("arch=ring:chunk=1M transport=tcp:streams=2", &strategy, &error));
    CHECK_EQ(GW_OK, gw_strategy_overlay(&strategy, "arch=ring", "test", &error));
    CHECK_STR("arch=ring sync=bsp compress=none schedule=wfbp transport=tcp:streams=2", printed(&strategy));
    CHECK_EQ(GW_INVALID, gw_strategy_overlay(&strategy, "arch=rong", "GRADWIRE_STRATEGY", &error));
    CHECK(strncmp(error.text, "GRADWIRE_STRATEGY: unknown arch \"rong\"", 38) == 0);
}

static const char *resolved(const char *line) {
    gw_strategy strategy;
    static gw_error error;
    error = (gw_error){.status = GW_OK};
    return gw_strategy_resolve(line, &strategy, &error) ? error.text : printed(&strategy);
}

static void write_file(const char *path, const char *text, size_t length) {
    FILE *file = fopen(path, "w");
    CHECK(file != NULL);
    if (!file) return;
    CHECK_EQ(length, fwrite(text, 1, length, file));
    fclose(file);
}

static void flag_before_environment_before_file(void) {
    char path[] = "/tmp/gw-strategy-XXXXXX";
    int fd = mkstemp(path);
    CHECK(fd >= 0);
    close(fd);
    static const char text[] = "# of the cluster\narch=ring:chunk=1M\ntransport=tcp # no shm here\n";
    write_file(path, text, strlen(text));
    unsetenv("GRADWIRE_STRATEGY");
    unsetenv("GRADWIRE_STRATEGY_FILE");
    CHECK_STR(DEFAULTS, resolved(NULL));
    setenv("GRADWIRE_STRATEGY_FILE", path, 1);
    CHECK_STR("arch=ring:chunk=1M sync=bsp compress=none schedule=wfbp transport=tcp", resolved(NULL));
    setenv("GRADWIRE_STRATEGY", "arch=tree", 1);
    CHECK_STR("arch=tree sync=bsp compress=none schedule=wfbp transport=tcp", resolved(NULL));
    CHECK_STR("arch=direct sync=bsp compress=none schedule=wfbp transport=tcp", resolved("arch=direct"));
    setenv("GRADWIRE_STRATEGY", "", 1);
    setenv("GRADWIRE_STRATEGY_FILE", "", 1);
    CHECK_STR(DEFAULTS, resolved(NULL));
    unsetenv("GRADWIRE_STRATEGY");
    unsetenv("GRADWIRE_STRATEGY_FILE");
    unlink(path);
}

static void names_the_origin_of_a_mistake(void) {
    static const char wrong[] = "arch=ring\nsync=bps\n";
    char directory[] = "/tmp/gw-strategy-XXXXXX";
    CHECK(mkdtemp(directory) && chdir(directory) == 0);
    write_file("strategy", wrong, strlen(wrong));
    setenv("GRADWIRE_STRATEGY_FILE", "strategy", 1);
    CHECK_STR("GRADWIRE_STRATEGY_FILE \"strategy\": line 2: unknown sync \"bps\" (did you mean \"bsp\"? allowed: "
              "bsp, asp, ssp, backup, delayed, periodic)",
              resolved(NULL));
    write_file("strategy", "arch\0x", 6);
    CHECK_STR("GRADWIRE_STRATEGY_FILE \"strategy\" is not a text file: byte 5 is zero", resolved(NULL));
    unlink("strategy");
    CHECK_STR("GRADWIRE_STRATEGY_FILE \"strategy\" cannot be read: No such file or directory", resolved(NULL));
    setenv("GRADWIRE_STRATEGY_FILE", "/", 1);
    CHECK_STR("GRADWIRE_STRATEGY_FILE \"/\" cannot be read: Is a directory", resolved(NULL));
    setenv("GRADWIRE_STRATEGY_FILE", "/dev/zero", 1);
    CHECK_STR("GRADWIRE_STRATEGY_FILE \"/dev/zero\" is not a text file: byte 1 is zero", resolved(NULL));
    CHECK_EQ(0, mkfifo("strategy", 0600));
    setenv("GRADWIRE_STRATEGY_FILE", "strategy", 1);
    CHECK_STR(DEFAULTS, resolved(NULL));
    unlink("strategy");
    unsetenv("GRADWIRE_STRATEGY_FILE");
    setenv("GRADWIRE_STRATEGY", "arch", 1);
    CHECK_EQ(0, rmdir(directory));
    CHECK(strncmp("GRADWIRE_STRATEGY: \"arch\" is not axis=technique", resolved(NULL), 47) == 0);
    unsetenv("GRADWIRE_STRATEGY");
}

/* ---- what it holds ---- */

static const char *checked(const char *line, int hosts, bool simulated) {
    static gw_error error;
    gw_strategy strategy;
    gw_strategy_facts facts = {.hosts = hosts, .simulated = simulated};
    error = (gw_error){.status = GW_OK};
    CHECK_EQ(GW_OK, gw_strategy_parse(line, &strategy, &error));
    gw_status status = gw_strategy_check(&strategy, &facts, &error);
    CHECK_EQ(error.text[0] ? GW_UNSUPPORTED : GW_OK, status);
    return error.text;
}

static void refuses_the_impossible(void) {
    CHECK_STR("", checked("", 1, false));
    CHECK_STR("", checked("", 2, false));
    CHECK_STR("", checked("", 2, true));
    CHECK_STR("", checked("transport=tcp", 2, false));
    CHECK_STR("", checked("transport=shm", 1, false));
    CHECK_STR("", checked("transport=sim", 9, true));
    CHECK_STR("", checked("compress=dgc", 2, false));
    CHECK_STR("transport=shm reaches only ranks of one host, and this job has 2 hosts (allowed here: auto, tcp, "
              "rdma, zmq, mpi)",
              checked("transport=shm", 2, false));
    CHECK_STR("transport=sim exists only in the simulator (allowed here: auto, tcp, rdma, shm, zmq, mpi)",
              checked("transport=sim", 1, false));
    CHECK_STR("transport=tcp is not possible in the simulator, whose links are simulated (allowed here: auto, sim)",
              checked("transport=tcp", 1, true));
}

static void answers_by_type(void) {
    gw_strategy strategy;
    CHECK_EQ(GW_OK, gw_strategy_parse("arch=ring:chunk=64K transport=tcp:streams=3,congestion=reno", &strategy, NULL));
    CHECK_STR("ring", gw_strategy_name(&strategy, GW_AXIS_ARCH));
    CHECK(gw_strategy_is(&strategy, GW_AXIS_TRANSPORT, "tcp"));
    CHECK(!gw_strategy_is(&strategy, GW_AXIS_TRANSPORT, "tc"));
    CHECK_EQ(65536, gw_strategy_integer(&strategy, GW_AXIS_ARCH, "chunk"));
    CHECK_EQ(3, gw_strategy_integer(&strategy, GW_AXIS_TRANSPORT, "streams"));
    CHECK_STR("reno", gw_strategy_choice(&strategy, GW_AXIS_TRANSPORT, "congestion"));
    gw_strategy_default(&strategy);
    CHECK_EQ(0, gw_strategy_integer(&strategy, GW_AXIS_ARCH, "chunk"));
    CHECK_STR("auto", gw_strategy_choice(&strategy, GW_AXIS_TRANSPORT, "congestion"));

    CHECK_EQ(GW_OK, gw_strategy_parse("compress=qsgd:limit=0.25,elias", &strategy, NULL));
    CHECK(gw_strategy_number(&strategy, GW_AXIS_COMPRESS, "limit") == 0.25);
    CHECK(gw_strategy_flag(&strategy, GW_AXIS_COMPRESS, "elias"));
    CHECK_STR("4", gw_strategy_choice(&strategy, GW_AXIS_COMPRESS, "bits"));
    CHECK_STR("arch=auto sync=bsp compress=qsgd:elias,limit=0.25 schedule=wfbp transport=auto", printed(&strategy));
}

static void print_cuts_like_snprintf(void) {
    gw_strategy strategy;
    char text[10];
    gw_strategy_default(&strategy);
    CHECK_EQ(strlen(DEFAULTS), gw_strategy_print(&strategy, NULL, 0));
    CHECK_EQ(strlen(DEFAULTS), gw_strategy_print(&strategy, text, sizeof text));
    CHECK_STR("arch=auto", text);
}

/* ---- kinds of parameters ---- */

static const char *param_error(const gw_param *param, const char *text) {
    static gw_error error;
    double value = 7;
    error = (gw_error){.status = GW_OK};
    if (gw_param_parse(param, "it", text, &value, &error)) CHECK(value == 7);
    return error.text;
}

static void numbers_read_back_exactly(void) {
    gw_param ratio = {.name = "ratio", .kind = GW_PARAM_NUMBER, .lowest = 0, .highest = 1};
    static const double values[] = {0, 1, 0.1, 0.001, 1e-9, 1.0 / 3, 0.30000000000000004, 5e-324};
    char text[GW_PARAM_TEXT_BYTES];
    setlocale(LC_ALL, "de_DE.UTF-8"); /* a decimal comma, where the machine has it */
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        double again = -1;
        CHECK_EQ(GW_OK, gw_param_parse(&ratio, "it", gw_param_print(&ratio, values[i], text), &again, NULL));
        CHECK(again == values[i]);
    }
    setlocale(LC_ALL, "C");
    CHECK_STR("0.1", gw_param_print(&ratio, 0.1, text));
    CHECK_STR("1000", gw_param_print(&ratio, 1000, text));
    static const char *const wrong[] = {"nan", "inf", "0x1", "1.5", "-1", "1e", "0,5", " 0", "0 ", "e", ".", "1e999"};
    char sentence[100];
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        snprintf(sentence, sizeof sentence, "it: ratio cannot be \"%s\" (allowed: 0 to 1)", wrong[i]);
        CHECK_STR(sentence, param_error(&ratio, wrong[i]));
    }
    CHECK_STR("it: ratio needs a value (allowed: 0 to 1)", param_error(&ratio, NULL));
}

static void flags_and_bytes(void) {
    gw_param flag = {.name = "feedback", .kind = GW_PARAM_FLAG};
    gw_param bytes = {.name = "size", .kind = GW_PARAM_BYTES, .lowest = 0, .highest = 9007199254740992.0};
    char text[GW_PARAM_TEXT_BYTES];
    double value = 0;
    CHECK_EQ(GW_OK, gw_param_parse(&flag, "it", NULL, &value, NULL));
    CHECK(value == 1);
    CHECK_STR("it: feedback is a flag and takes no value, but \"yes\" is given", param_error(&flag, "yes"));
    CHECK_STR("it: feedback is a flag and takes no value, but \"\" is given", param_error(&flag, ""));
    static const double sizes[] = {
        0, 1, 1023, 1024, 1536, 1048576, 3221225472.0, 9007199254740991.0, 9007199254740992.0};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        CHECK_EQ(GW_OK, gw_param_parse(&bytes, "it", gw_param_print(&bytes, sizes[i], text), &value, NULL));
        CHECK(value == sizes[i]);
    }
    CHECK_STR("3G", gw_param_print(&bytes, 3221225472.0, text));
    CHECK_STR("0", gw_param_print(&bytes, 0, text));
    CHECK_STR("it: size cannot be \"auto\" (allowed: 0 to 8388608G)", param_error(&bytes, "auto"));
}

/* Settings that would do nothing, or harm, in a training step. */
static void refuses_what_has_no_meaning(void) {
    static const struct {
        const char *line, *part; /* of the sentence; NULL: it is possible */
    } lines[] = {
        {"compress=powersgd:feedback=none", "compress=powersgd:feedback=none: it is nothing without the residual"},
        {"compress=dgc:feedback=none", "compress=dgc:feedback=none: it is nothing without the residual"},
        {"compress=topk:feedback=none", "compress=topk:feedback=none: values that are not selected would be lost"},
        {"compress=threshold:feedback=none", "use feedback=worker or feedback=both"},
        {"arch=ps compress=topk:feedback=worker", NULL},
        {"arch=ps compress=randomk:feedback=both", "merged by servers"},
        {"arch=ps sync=asp compress=randomk:feedback=both", NULL},
        {"compress=fp16:feedback=both", "there is no owner that encodes again"},
        {"compress=fp16:feedback=worker", NULL},
        {"compress=topk:feedback=both", NULL},
        {"sync=periodic compress=dgc:momentum=0.9", "use momentum=0"},
        {"sync=periodic compress=dgc", NULL},
        {"sync=periodic:momentum=0.5", "outer=0 makes none"},
        {"sync=periodic:outer=0.7,momentum=0.5", NULL},
        {"arch=ps sync=asp compress=terngrad:shared", "leave shared out"},
        {"arch=ps sync=bsp compress=terngrad:shared", NULL},
        {"arch=ps sync=asp compress=terngrad", NULL},
    };
    gw_reducer_facts facts = {.world = 4, .updates = true};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        gw_strategy strategy;
        gw_error error = {.rank = -1};
        CHECK_EQ(GW_OK, gw_strategy_parse(lines[i].line, &strategy, &error));
        CHECK_EQ(lines[i].part ? GW_UNSUPPORTED : GW_OK, gw_strategy_check_step(&strategy, &facts, &error));
        CHECK(!lines[i].part || strstr(error.text, lines[i].part));
        if (lines[i].part && !strstr(error.text, lines[i].part)) printf("    %s: %s\n", lines[i].line, error.text);
    }
}

static void reads_the_words_beside_the_axes(void) {
    static const struct {
        const char *line;
        bool arch_open, schedule_open;
        gw_accuracy accuracy;
    } lines[] = {
        {"", true, true, GW_ACCURACY_EXACT},
        {"strategy=auto schedule=dear", true, false, GW_ACCURACY_EXACT},
        {"auto accuracy=safe arch=auto", false, true, GW_ACCURACY_SAFE},
        {"fixed", false, false, GW_ACCURACY_EXACT},
        {"schedule=p3 strategy=fixed accuracy=safe", false, false, GW_ACCURACY_SAFE},
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        gw_strategy strategy;
        gw_error error = {.rank = -1};
        CHECK_EQ(GW_OK, gw_strategy_parse(lines[i].line, &strategy, &error));
        CHECK_EQ(lines[i].arch_open, gw_strategy_is_open(&strategy, GW_AXIS_ARCH));
        CHECK_EQ(lines[i].schedule_open, gw_strategy_is_open(&strategy, GW_AXIS_SCHEDULE));
        CHECK_EQ(lines[i].accuracy, strategy.accuracy);
    }
    CHECK_STR(DEFAULTS, parsed("fixed"));
    CHECK_STR(DEFAULTS " accuracy=safe", parsed("accuracy=safe"));
    CHECK_STR("strategy is given twice; name each axis once", parsed("fixed strategy=auto"));
    CHECK_STR("strategy cannot be \"fxed\" (did you mean \"fixed\"? allowed: auto, fixed)", parsed("strategy=fxed"));
    CHECK_STR("accuracy cannot be \"high\" (allowed: exact, safe)", parsed("accuracy=high"));
    CHECK_STR(
        "unknown axis \"acuracy\" (did you mean \"accuracy\"? allowed: arch, sync, compress, schedule, transport, "
        "strategy, accuracy)",
        parsed("acuracy=safe"));
}

TEST_MAIN(CASE(refuses_what_has_no_meaning), CASE(reads_the_words_beside_the_axes), CASE(reads_lines),
          CASE(all_combinations_round_trip), CASE(registries_are_sound), CASE(refuses_with_a_sentence),
          CASE(refuses_long_input), CASE(failure_leaves_the_output_alone), CASE(overlays_axis_by_axis),
          CASE(flag_before_environment_before_file), CASE(names_the_origin_of_a_mistake), CASE(refuses_the_impossible),
          CASE(answers_by_type), CASE(print_cuts_like_snprintf), CASE(numbers_read_back_exactly), CASE(flags_and_bytes))
