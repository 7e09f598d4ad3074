/* host_options.h - what several commands ask about hosts, in the same words. */
#ifndef GW_CLI_HOST_OPTIONS_H
#define GW_CLI_HOST_OPTIONS_H

#include "cli/args.h"

/* A password cannot be typed into a job's start; a host that is down is found out soon. */
#define GW_RSH_PRESET "ssh -T -x -o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=15"

/* Rows of a table of options; each takes where the text goes. */
#define GW_OPTION_LAB(text)                                                                                           \
    {.name = "lab", .kind = GW_OPTION_STRING, .value = "hosts=4,rate=1gbit", .string = (text),                        \
     .about = "hosts made of network namespaces with shaped links (root)"}
#define GW_OPTION_RSH(text)                                                                                           \
    {.name = "rsh", .kind = GW_OPTION_STRING, .value = "COMMAND", .string = (text),                                   \
     .about = "the remote shell, to which host and command line are added (default: ssh)"}
#define GW_OPTION_REMOTE_PATH(text)                                                                                   \
    {.name = "remote-path", .kind = GW_OPTION_STRING, .value = "FILE", .string = (text),                              \
     .about = "this program on the other hosts (default: where it is here)"}

#endif
