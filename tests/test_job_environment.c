/* test_job_environment.c - rank, world and rendezvous address from the variables of each launcher. */
#include "bootstrap/job_environment.h"

#include "test.h"

/* Starts from an environment with nothing in it but these: name, value, ..., NULL. */
static gw_status find(const gw_options *options, const char *const *environment, gw_job_env *job_env, gw_error *error) {
    clearenv();
    for (int i = 0; environment[i]; i += 2) setenv(environment[i], environment[i + 1], 1);
    *error = (gw_error){0};
    return gw_job_env_find(options, job_env, error);
}
#define ENV(...) ((const char *const[]){__VA_ARGS__ __VA_OPT__(, ) NULL})

static void alone(void) {
    gw_job_env job_env;
    gw_error error;
    CHECK_EQ(GW_OK, find(NULL, ENV(), &job_env, &error));
    CHECK_EQ(0, job_env.rank);
    CHECK_EQ(1, job_env.world);
    CHECK_STR("127.0.0.1", job_env.master);
    CHECK_EQ(-1, job_env.listen_fd);
    CHECK(job_env.port_low >= 20000 && job_env.port_high == job_env.port_low + 15 && job_env.port_high <= 29999);
    CHECK_EQ(GW_OK, find(NULL, ENV("RANK", "", "WORLD_SIZE", "1"), &job_env, &error));
    CHECK_EQ(0, job_env.rank);
}

static void launchers_are_understood(void) {
    static const char *const rows[][9] = {
        {"RANK", "3", "WORLD_SIZE", "8", "LOCAL_RANK", "1", "LOCAL_WORLD_SIZE", "2"},
        {"OMPI_COMM_WORLD_RANK", "3", "OMPI_COMM_WORLD_SIZE", "8", "OMPI_COMM_WORLD_LOCAL_RANK", "1",
         "OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
        {"PMI_RANK", "3", "PMI_SIZE", "8", "MPI_LOCALRANKID", "1", "MPI_LOCALNRANKS", "2"},
        {"PMIX_RANK", "3", "SLURM_NTASKS", "8", "SLURM_LOCALID", "1", "SLURM_NTASKS_PER_NODE", "2"},
        {"SLURM_PROCID", "3", "SLURM_NTASKS", "8", "SLURM_LOCALID", "1", "SLURM_NTASKS_PER_NODE", "2"},
    };
    gw_job_env pod;
    gw_error ignored;
    CHECK_EQ(GW_OK, find(NULL, ENV("JOB_COMPLETION_INDEX", "3", "WORLD_SIZE", "8", "MASTER_ADDR", "train-0.train"),
                         &pod, &ignored));
    CHECK_EQ(3, pod.rank);
    CHECK_EQ(8, pod.world);
    CHECK_STR("train-0.train", pod.master);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        gw_job_env job_env;
        gw_error error;
        CHECK_EQ(GW_OK, find(NULL, rows[i], &job_env, &error));
        CHECK_EQ(3, job_env.rank);
        CHECK_EQ(8, job_env.world);
        CHECK_EQ(1, job_env.local_rank);
        CHECK_EQ(2, job_env.local_world);
    }
}

static void masters(void) {
    gw_job_env job_env;
    gw_error error;
    CHECK_EQ(GW_OK, find(NULL,
                         ENV("RANK", "0", "WORLD_SIZE", "2", "MASTER_ADDR", "node1", "MASTER_PORT", "29500",
                             "GRADWIRE_LISTEN_FD", "7"),
                         &job_env, &error));
    CHECK_STR("node1", job_env.master);
    CHECK_EQ(29500, job_env.port_low);
    CHECK_EQ(29500, job_env.port_high);
    CHECK_EQ(7, job_env.listen_fd);
    CHECK_EQ(GW_OK, find(NULL, ENV("MASTER_ADDR", "[fd00::1]:29501"), &job_env, &error));
    CHECK_STR("fd00::1", job_env.master);
    CHECK_EQ(29501, job_env.port_high);
    CHECK_EQ(GW_OK, find(NULL, ENV("MASTER_ADDR", "fd00::1", "MASTER_PORT", "1"), &job_env, &error));
    CHECK_STR("fd00::1", job_env.master);
    CHECK_EQ(GW_INVALID, find(NULL, ENV("MASTER_ADDR", "n:5", "MASTER_PORT", "6"), &job_env, &error));
    CHECK_EQ(GW_OK, find(NULL, ENV("MASTER_PORT", "29500", "GRADWIRE_MASTER_PORT", "29502"), &job_env, &error));
    CHECK_EQ(29502, job_env.port_high);
    CHECK_EQ(GW_OK,
             find(NULL, ENV("RANK", "1", "WORLD_SIZE", "2", "MASTER_PORT", "29500", "TORCHELASTIC_RUN_ID", "none"),
                  &job_env, &error));
    CHECK_EQ(29501, job_env.port_low);
    CHECK_EQ(29516, job_env.port_high);
    CHECK_EQ(GW_OK, find(NULL,
                         ENV("SLURM_PROCID", "1", "SLURM_NTASKS", "8", "SLURM_NNODES", "4", "SLURM_STEP_NODELIST",
                             "gpu[03-05,9],login"),
                         &job_env, &error));
    CHECK_STR("gpu03", job_env.master);
    CHECK_EQ(GW_OK, find(NULL,
                         ENV("SLURM_PROCID", "1", "SLURM_NTASKS", "8", "SLURM_NNODES", "2", "SLURM_JOB_NODELIST",
                             "alpha,beta"),
                         &job_env, &error));
    CHECK_STR("alpha", job_env.master);
    static const char *const lists[][2] = {{"n[7]", "n7"},     {"rack[1-2]n[03,5].x.org,z", "rack1n03.x.org"},
                                           {"a", "a"},         {"n[1-2", "127.0.0.1"},
                                           {"[", "127.0.0.1"}, {",", "127.0.0.1"}};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        CHECK_EQ(GW_OK, find(NULL,
                             ENV("SLURM_PROCID", "1", "SLURM_NTASKS", "8", "SLURM_STEP_NUM_NODES", "2",
                                 "SLURM_STEP_NODELIST", lists[i][0]),
                             &job_env, &error));
        CHECK_STR(lists[i][1], job_env.master);
    }
    static const char *const uris[][3] = {{"1.0;tcp://10.0.0.1,10.1.0.1:4000;tcp6://[fd00::2]:1", "2", "10.0.0.1"},
                                          {"1.0;tcp://10.0.0.1:4000", "1", "127.0.0.1"},
                                          {"1.0;usock", "2", "127.0.0.1"}};
    for (size_t i = 0; i < sizeof uris / sizeof uris[0]; i++) {
        CHECK_EQ(GW_OK, find(NULL,
                             ENV("OMPI_COMM_WORLD_RANK", "1", "OMPI_COMM_WORLD_SIZE", "8", "OMPI_MCA_orte_hnp_uri",
                                 uris[i][0], "OMPI_MCA_orte_num_nodes", uris[i][1]),
                             &job_env, &error));
        CHECK_STR(uris[i][2], job_env.master);
    }
}

static void options_come_first(void) {
    gw_job_env job_env;
    gw_error error;
    gw_options options = GW_OPTIONS_DEFAULT;
    options.rank = 1;
    options.world = 4;
    options.master_addr = "::1";
    options.master_port = 4000;
    CHECK_EQ(GW_OK, find(&options, ENV("RANK", "9", "WORLD_SIZE", "10", "MASTER_ADDR", "x", "MASTER_PORT", "1"),
                         &job_env, &error));
    CHECK_EQ(1, job_env.rank);
    CHECK_EQ(4, job_env.world);
    CHECK_STR("::1", job_env.master);
    CHECK_EQ(4000, job_env.port_low);
    options.rank = 4;
    CHECK_EQ(GW_INVALID, find(&options, ENV(), &job_env, &error));
    CHECK(strstr(error.text, "option rank") != NULL);
}

static void malformed_values_are_named(void) {
    static const char *const bad[][5] = {
        {"RANK", "x", "WORLD_SIZE", "2"},
        {"RANK", "-1", "WORLD_SIZE", "2"},
        {"WORLD_SIZE", "0", "RANK", "0"},
        {"WORLD_SIZE", "two", "RANK", "0"},
        {"RANK", "2", "WORLD_SIZE", "2"},
        {"RANK", "1"},
        {"WORLD_SIZE", "2"},
        {"JOB_COMPLETION_INDEX", "2"},
        {"JOB_COMPLETION_INDEX", "2", "WORLD_SIZE", "2"},
        {"MASTER_PORT", "70000"},
        {"MASTER_PORT", "0"},
        {"MASTER_ADDR", "[::1"},
        {"OMPI_COMM_WORLD_RANK", "1x"},
        {"PMIX_RANK", "1"},
        {"GRADWIRE_LISTEN_FD", "-3"},
        {"SLURM_PROCID", "0x1", "SLURM_NTASKS", "3"},
        {"RANK", "99999999999999999999", "WORLD_SIZE", "2"},
        {"LOCAL_RANK", "a", "RANK", "0"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        gw_job_env job_env;
        gw_error error;
        CHECK_EQ(GW_INVALID, find(NULL, bad[i], &job_env, &error));
        CHECK(strstr(error.text, bad[i][0]) != NULL);
    }
}

/* Ranks of one job agree on name and port; other jobs, and earlier lives of the same, have other names. */
static void jobs_have_names(void) {
    gw_job_env a, b, c;
    gw_error error;
    CHECK_EQ(GW_OK, find(NULL, ENV("OMPI_COMM_WORLD_RANK", "0", "OMPI_COMM_WORLD_SIZE", "2", "PMIX_NAMESPACE", "job-7"),
                         &a, &error));
    CHECK_EQ(GW_OK, find(NULL, ENV("OMPI_COMM_WORLD_RANK", "1", "OMPI_COMM_WORLD_SIZE", "2", "PMIX_NAMESPACE", "job-7"),
                         &b, &error));
    CHECK_EQ(GW_OK, find(NULL, ENV("OMPI_COMM_WORLD_RANK", "1", "OMPI_COMM_WORLD_SIZE", "2", "PMIX_NAMESPACE", "job-8"),
                         &c, &error));
    CHECK_STR(a.job, b.job);
    CHECK_EQ(a.port_low, b.port_low);
    CHECK(strcmp(a.job, c.job) != 0 && a.port_low != c.port_low);
    CHECK_EQ(GW_OK, find(NULL, ENV("TORCHELASTIC_RUN_ID", "x", "MASTER_PORT", "9", "TORCHELASTIC_RESTART_COUNT", "1"),
                         &a, &error));
    CHECK_EQ(GW_OK, find(NULL, ENV("TORCHELASTIC_RUN_ID", "x", "MASTER_PORT", "9", "TORCHELASTIC_RESTART_COUNT", "2"),
                         &b, &error));
    CHECK(strcmp(a.job, b.job) != 0);
    /* Started by hand from different shells, one of them inside an allocation. */
    CHECK_EQ(GW_OK,
             find(NULL, ENV("RANK", "0", "WORLD_SIZE", "2", "MASTER_PORT", "9", "SLURM_JOB_ID", "5"), &a, &error));
    CHECK_EQ(GW_OK, find(NULL, ENV("RANK", "1", "WORLD_SIZE", "2", "MASTER_PORT", "9"), &b, &error));
    CHECK_STR(a.job, b.job);
}

TEST_MAIN(CASE(alone), CASE(launchers_are_understood), CASE(masters), CASE(options_come_first),
          CASE(malformed_values_are_named), CASE(jobs_have_names))
