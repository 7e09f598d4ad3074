/* coded_model.c - the coded hop of a route (reducer/coded_exchange.c): what its members encode, send, add and decode. A
 * bucket's lanes, and the shares of their owners, are taken to be equal. */
#include <math.h>

#include "arch/choose_plan.h"
#include "predict/dispatch_model.h"

/* What a lane has of a bucket. */
typedef struct contents {
    double bytes;                        /* of values */
    double exact;                        /* elements that are not encoded */
    double first, second;                /* bytes of the payloads of each pass; exact tensors included */
    double merged[GW_CODING_ROUNDS_MAX]; /* in flight: bytes of the payload of each round */
    size_t room;                         /* bytes of the largest piece of a message */
} contents;

/* Which bucket. */
typedef struct walk {
    const gw_dispatch_model *model;
    const gw_dispatch_tensors *tensors;
    const gw_schedule *schedule;
    int bucket;
} walk;

/* Payloads of one piece: what one owner has of a lane, or (-1) the whole lane. */
static void add_piece(const walk *w, int lane, int owner, contents *in) {
    const gw_dispatch_model *m = w->model;
    const gw_tensor_range *ranges = gw_schedule_ranges(w->schedule, w->bucket);
    size_t first = 0, second = 0;
    for (int i = 0; i < gw_schedule_bucket(w->schedule, w->bucket)->ranges; i++) {
        const gw_coded_tensor *t = &w->tensors->coded[ranges[i].tensor];
        gw_stripes has = owner < 0 ? gw_owners_in_lanes(&t->owners, lane, lane + 1)
                                   : gw_owners_at_host(&t->owners, lane, lane + 1, owner);
        uint64_t at = ranges[i].first, to = at + ranges[i].count, run;
        for (; gw_stripes_next(&has, &at, to, &run); at += run) {
            gw_codec_range range = {&t->what, at, run};
            gw_codec_call call = m->coding.call;
            in->bytes += (double)run * sizeof(float);
            in->exact += t->exact ? (double)run : 0;
            in->first += gw_dispatch_payload(m, t, range, false);
            in->second += gw_dispatch_payload(m, t, range, true);
            first += gw_coding_bound(&m->coding, t, &m->coding.setup, range);
            second += gw_coding_bound(&m->coding, t, &m->coding.second, range);
            for (; !t->exact && call.round < gw_codec_rounds(&m->coding.setup); call.round++)
                in->merged[call.round] += (double)gw_codec_bound(&m->coding.setup, &call, range);
        }
    }
    if (first > in->room) in->room = first;
    if (owner >= 0 && second > in->room) in->room = second;
}

/* Of all lanes, then divided by their number. */
static contents look_into(const walk *w, gw_coded_form form) {
    const gw_lanes *lanes = &w->model->lanes;
    contents in = {.bytes = 0};
    for (int lane = 0; lane < lanes->lanes; lane++)
        for (int owner = form == GW_FORM_TWO_PASS ? 0 : -1; owner < (form == GW_FORM_TWO_PASS ? lanes->hosts : 0);
             owner++)
            add_piece(w, lane, owner, &in);
    double share = 1.0 / lanes->lanes;
    return (contents){.bytes = in.bytes * share, .exact = in.exact * share, .first = in.first * share,
                      .second = in.second * share, .merged = {in.merged[0] * share, in.merged[1] * share},
                      .room = in.room};
}

size_t gw_coded_model_lane(const gw_dispatch_model *m, const gw_dispatch_tensors *tensors, const gw_schedule *schedule,
                           int bucket) {
    const gw_tensor_range *ranges = gw_schedule_ranges(schedule, bucket);
    uint64_t largest = 0;
    for (int lane = 0; lane < m->lanes.lanes; lane++) {
        uint64_t count = 0;
        for (int i = 0; i < gw_schedule_bucket(schedule, bucket)->ranges; i++) {
            gw_stripes has = gw_owners_in_lanes(&tensors->coded[ranges[i].tensor].owners, lane, lane + 1);
            count +=
                gw_stripes_place(&has, ranges[i].first + ranges[i].count) - gw_stripes_place(&has, ranges[i].first);
        }
        if (count > largest) largest = count;
    }
    return (size_t)largest;
}

/* One hop under construction. */
typedef struct hop {
    const gw_dispatch_model *model;
    gw_dispatch *dispatch;
    contents in;
    gw_codec_speed speed;
    gw_team_kind team;
    const char *arch;
    bool halves;
} hop;

static size_t divided(double amount, int parts) { return (size_t)ceil(amount / parts); }

static void add_gather(const hop *h, double seconds, double bytes) {
    gw_dispatch_add_spec(h->model, gw_dispatch_add_stage(h->dispatch, h->team, seconds), GW_COLL_ALLGATHER, NULL,
                         gw_arch_choose_varying(h->arch, h->in.room), divided(bytes, 1), 1);
}

/* In flight. */

static void reduce_in_flight(const hop *h) {
    const gw_dispatch_model *m = h->model;
    uint32_t rounds = gw_codec_rounds(&m->coding.setup);
    size_t unit = m->coding.setup.codec->merge_unit;
    double coded = h->in.bytes - h->in.exact * sizeof(float);
    for (uint32_t r = 0; r < rounds; r++) {
        gw_dispatch_stage *stage = gw_dispatch_add_stage(h->dispatch, h->team, coded / h->speed.encode / rounds);
        bool half = h->halves && r + 1 == rounds;
        size_t units = divided(h->in.merged[r] / (double)unit, half ? m->members : 1);
        if (units)
            gw_dispatch_add_spec(m, stage, half ? GW_COLL_REDUCE_SCATTER : GW_COLL_ALLREDUCE, h->arch, NULL, units,
                                 unit);
        if (r == 0 && h->in.exact > 0)
            gw_dispatch_add_spec(m, stage, GW_COLL_ALLREDUCE, h->arch, NULL, divided(h->in.exact, 1), sizeof(float));
    }
}

static void spread_in_flight(const hop *h) {
    const gw_dispatch_model *m = h->model;
    size_t unit = m->coding.setup.codec->merge_unit;
    size_t units = divided(h->in.merged[gw_codec_rounds(&m->coding.setup) - 1] / (double)unit, m->members);
    if (h->halves && units)
        gw_dispatch_add_spec(m, gw_dispatch_add_stage(h->dispatch, h->team, 0), GW_COLL_ALLGATHER, h->arch, NULL, units,
                             unit);
    gw_dispatch_add_stage(h->dispatch, h->team, (h->in.bytes - h->in.exact * sizeof(float)) / h->speed.decode);
}

/* Two passes. An owner adds the shares of all, and encodes the sum again. */

static void send_to_owners(const hop *h) {
    int p = h->model->members;
    gw_dispatch_stage *stage = gw_dispatch_add_stage(h->dispatch, h->team, h->in.bytes / h->speed.encode);
    gw_dispatch_add_spec(h->model, stage, GW_COLL_ALLTOALL, NULL, &gw_plan_pairwise, divided(h->in.first, p), 1);
    gw_dispatch_add_stage(h->dispatch, h->team, h->in.bytes / h->speed.decode + h->in.bytes / p / h->speed.encode);
}

static void send_from_owners(const hop *h) {
    add_gather(h, 0, h->in.second / h->model->members);
    gw_dispatch_add_stage(h->dispatch, h->team, h->in.bytes / h->speed.decode);
}

void gw_coded_model_add(const gw_dispatch_model *m, const gw_dispatch_tensors *tensors, const gw_schedule *schedule,
                        int bucket, gw_hop_kind kind, gw_dispatch *dispatch) {
    gw_coded_form form = gw_coded_form_of(&m->coding.setup, m->members, m->splits);
    const walk w = {m, tensors, schedule, bucket};
    hop h = {.model = m, .dispatch = dispatch, .in = look_into(&w, form), .halves = m->splits,
             .speed = gw_machine_codec(m->machine, m->coding.setup.codec->technique.name),
             .team = m->lanes.lanes == 1 && m->lanes.hosts == m->teams->hosts * m->teams->locals ? GW_TEAM_APART
                                                                                                 : GW_TEAM_LANE,
             .arch = gw_strategy_name(m->strategy, GW_AXIS_ARCH)};
    bool first = kind != GW_HOP_CODED_SECOND, second = kind != GW_HOP_CODED_FIRST;
    switch (form) {
    case GW_FORM_IN_FLIGHT:
        if (first) reduce_in_flight(&h);
        if (second) spread_in_flight(&h);
        return;
    case GW_FORM_TWO_PASS:
        if (first) send_to_owners(&h);
        if (second) send_from_owners(&h);
        return;
    case GW_FORM_ONE_PASS:
        if (first) add_gather(&h, h.in.bytes / h.speed.encode, h.in.first);
        if (second) gw_dispatch_add_stage(dispatch, h.team, m->members * h.in.bytes / h.speed.decode);
        return;
    case GW_FORM_AUTO: return; /* gw_coded_form_of decides */
    }
}
