/* host_options.h - options about hosts that several commands share. */
#ifndef GW_CLI_COMMON_HOST_OPTIONS_H
#define GW_CLI_COMMON_HOST_OPTIONS_H

#include "cli/common/args.h"

/* BatchMode: nobody can type a password while a job starts. The timeouts find hosts that are down. */
#define GW_RSH_PRESET "ssh -T -x -o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=15"

/* Rows of an option table; `text` is the const char ** that receives the value. */
#define GW_OPTION_LAB(text)                                                                                           \
    {.name = "lab", .kind = GW_OPTION_STRING, .value = "hosts=4,rate=1gbit", .string = (text),                        \
     .about = "simulate hosts by network namespaces with shaped links (root; all words: docs/reference/launcher.md)"}
#define GW_OPTION_RSH(text)                                                                                           \
    {.name = "rsh", .kind = GW_OPTION_STRING, .value = "COMMAND", .string = (text),                                   \
     .about = "remote shell; host and command line are appended (default: ssh)"}
#define GW_OPTION_REMOTE_PATH(text)                                                                                   \
    {.name = "remote-path", .kind = GW_OPTION_STRING, .value = "FILE", .string = (text),                              \
     .about = "path of gradwire on the other hosts (default: the same as here)"}

#endif
