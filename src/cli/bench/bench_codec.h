/* bench_codec.h - `gradwire bench codec`, called by the bench command. */
#ifndef GW_CLI_BENCH_BENCH_CODEC_H
#define GW_CLI_BENCH_BENCH_CODEC_H

/* argv[0] is "codec"; returns the exit code. */
int gw_cmd_bench_codec(int argc, char **argv);

#endif
