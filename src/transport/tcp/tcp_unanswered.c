/* tcp_unanswered.c - packets that get no answer, although the connection was made and small messages pass: the sign of
 * a path that drops large packets without a word (an MTU that is smaller than that of the interface). */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "transport/tcp/tcp_connection.h"

#define TIMES_LEAST 3 /* one or two losses in a row are common */

bool gw_tcp_unanswered(int fd, gw_unanswered *packets) {
    struct tcp_info info = {0};
    socklen_t bytes = sizeof info;
    if (fd < 0 || getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) return false;
    unsigned times = info.tcpi_unacked ? info.tcpi_retransmits + 1u : 0;
    if (times < TIMES_LEAST || times <= packets->times) return times >= TIMES_LEAST;
    *packets = (gw_unanswered){.bytes = info.tcpi_snd_mss, .times = times};
    return true;
}
