/* tcp_congestion.c - see tcp_congestion.h. */
#include "transport/tcp/tcp_congestion.h"

#include <errno.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/log.h"

#define WINDOW (200 * GW_MILLISECOND) /* the shortest time over which losses are counted, */
#define WINDOW_SEGMENTS 400           /* and the fewest segments */
#define FIRST_SEGMENTS 16             /* before that a round trip may be that of a busy machine */
#define LONG_RTT (2 * GW_MILLISECOND) /* a path with delay */
#define SHORT_RTT (GW_MILLISECOND)    /* a path without */
#define LOSS 0.005                    /* share of segments sent again: more than a full queue makes of cubic */
#define LITTLE_LOSS 0.0005
#define LOSSY_WINDOWS 3         /* one may be the end of slow start */
#define TRIAL (2 * GW_SECOND)   /* how long bbr has to show that it brings more, at least; */
#define TRIAL_ROUND_TRIPS 20    /* in round trips */
#define BARRED (60 * GW_SECOND) /* before bbr is tried again */

static double rate_since(const gw_tcp_measured *then, const gw_tcp_measured *m) {
    return m->busy > then->busy ? (double)(m->acked - then->acked) * 1e9 / (double)(m->busy - then->busy) : 0;
}

static void begin_window(gw_tcp_congestion *c, const gw_tcp_measured *m, gw_time now) {
    c->last = *m;
    c->window = now;
}

static bool change(gw_tcp_congestion *c, const gw_tcp_measured *m, gw_time now) {
    c->bbr = !c->bbr;
    c->lossy = 0;
    c->changed = now;
    begin_window(c, m, now);
    return true;
}

/* The window ends: the share of its segments that was lost. Negative: it goes on. */
static double loss_of_window(gw_tcp_congestion *c, const gw_tcp_measured *m, gw_time now) {
    uint64_t sent = m->segments - c->last.segments;
    if (now - c->window < WINDOW || sent < WINDOW_SEGMENTS) return -1;
    return (double)(m->retransmitted - c->last.retransmitted) / (double)sent;
}

static bool needs_bbr(gw_tcp_congestion *c, const gw_tcp_measured *m, gw_time now) {
    if (now < c->barred || m->segments < FIRST_SEGMENTS) return false;
    if (m->min_rtt >= LONG_RTT) {
        c->usual_rate = 0; /* it was not measured long enough */
        return change(c, m, now);
    }
    double loss = loss_of_window(c, m, now);
    if (loss < 0) return false;
    c->lossy = loss >= LOSS ? c->lossy + 1 : 0;
    if (c->lossy == LOSSY_WINDOWS) {
        c->usual_rate = rate_since(&c->last, m);
        return change(c, m, now);
    }
    begin_window(c, m, now);
    return false;
}

/* The first window of bbr is the whole trial. */
static bool needs_usual(gw_tcp_congestion *c, const gw_tcp_measured *m, gw_time now) {
    gw_time trial = TRIAL_ROUND_TRIPS * m->rtt > TRIAL ? TRIAL_ROUND_TRIPS * m->rtt : TRIAL;
    if (now - c->changed < trial) return false;
    double loss = loss_of_window(c, m, now);
    if (loss < 0) return false;
    if (c->usual_rate > 0 && rate_since(&c->last, m) < c->usual_rate) {
        c->barred = now + BARRED;
        return change(c, m, now);
    }
    if (m->min_rtt < SHORT_RTT && loss < LITTLE_LOSS) return change(c, m, now);
    c->usual_rate = 0; /* bbr has passed its trial */
    begin_window(c, m, now);
    return false;
}

bool gw_tcp_congestion_judge(gw_tcp_congestion *c, const gw_tcp_measured *m, gw_time now) {
    return c->bbr ? needs_usual(c, m, now) : needs_bbr(c, m, now);
}

void gw_tcp_congestion_begin(gw_tcp_congestion *c, int fd) {
    gw_congestion_of(fd, c->usual);
    /* Where bbr could not be left, there is nothing to choose; what is no TCP socket has none at all. */
    c->automatic = c->usual[0] && strcmp(c->usual, "bbr") != 0;
}

static bool measure(int fd, gw_tcp_measured *m) {
    struct tcp_info info = {0};
    socklen_t bytes = sizeof info;
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) return false;
    *m = (gw_tcp_measured){.rtt = info.tcpi_rtt * UINT64_C(1000),
                           .min_rtt = info.tcpi_min_rtt * UINT64_C(1000),
                           .segments = info.tcpi_data_segs_out,
                           .retransmitted = info.tcpi_total_retrans,
                           .acked = info.tcpi_bytes_acked,
                           .busy = info.tcpi_busy_time * UINT64_C(1000)};
    return true;
}

void gw_tcp_congestion_look(gw_tcp_congestion *c, int fd, gw_time now, int rank, int peer) {
    gw_tcp_measured m;
    if (!c->automatic || !measure(fd, &m) || !gw_tcp_congestion_judge(c, &m, now)) return;
    const char *name = c->bbr ? "bbr" : c->usual;
    if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, (socklen_t)strlen(name)) != 0) {
        gw_log(GW_LOG_DEBUG, rank, "the connection to rank %d stays with %s, for there is no %s: %s", peer, c->usual,
               name, strerror(errno));
        c->automatic = false;
        return;
    }
    gw_log(GW_LOG_DEBUG, rank,
           "the connection to rank %d goes on with %s: round trip %.1f ms, %llu of %llu segments sent again", peer,
           name, (double)m.min_rtt / 1e6, (unsigned long long)m.retransmitted, (unsigned long long)m.segments);
}
