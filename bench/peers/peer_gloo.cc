// peer_gloo.cc - Gloo over TCP as a baseline: `gradwire bench --against gloo` starts it, with the name of a network
// interface. The ranks find each other through files beside the side channel. Only f32 sums.
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/gather.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/scatter.h>
#include <gloo/transport/tcp/device.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string>
#include <vector>

extern "C" {
#include "bench/side_channel.h"
}

using Context = std::shared_ptr<gloo::rendezvous::Context>;

static void add(void *out, const void *a, const void *b, size_t count) { gloo::sum<float>(out, a, b, count); }

static void carry_out(const Context &context, const gw_bench_case *c, const gw_bench_buffers *b) {
    float *in = static_cast<float *>(const_cast<void *>(b->in)), *out = static_cast<float *>(b->out);
    const size_t total = c->count * static_cast<size_t>(context->size);
    const bool root = context->rank == c->root;
    switch (c->collective) {
    case GW_COLL_ALLREDUCE: {
        gloo::AllreduceOptions options(context);
        options.setOutput(out, c->count);
        options.setReduceFunction(add);
        gloo::allreduce(options);
        return;
    }
    case GW_COLL_REDUCE: {
        gloo::ReduceOptions options(context);
        options.setInput(in, c->count);
        options.setOutput(root ? out : in, c->count);
        options.setReduceFunction(add);
        options.setRoot(c->root);
        gloo::reduce(options);
        return;
    }
    case GW_COLL_BROADCAST: {
        gloo::BroadcastOptions options(context);
        options.setOutput(out, c->count);
        options.setRoot(c->root);
        gloo::broadcast(options);
        return;
    }
    case GW_COLL_ALLGATHER: {
        gloo::AllgatherOptions options(context);
        options.setOutput(out, total);
        gloo::allgather(options);
        return;
    }
    case GW_COLL_GATHER: {
        gloo::GatherOptions options(context);
        options.setInput(in, c->count);
        if (root) options.setOutput(out, total);
        options.setRoot(c->root);
        gloo::gather(options);
        return;
    }
    case GW_COLL_SCATTER: {
        gloo::ScatterOptions options(context);
        std::vector<float *> parts;
        for (int r = 0; r < context->size; r++) parts.push_back(in + static_cast<size_t>(r) * c->count);
        if (root) options.setInputs(parts, c->count);
        options.setOutput(out, c->count);
        options.setRoot(c->root);
        gloo::scatter(options);
        return;
    }
    case GW_COLL_ALLTOALL: {
        gloo::AlltoallOptions options(context);
        options.setInput(in, total);
        options.setOutput(out, total);
        gloo::alltoall(options);
        return;
    }
    case GW_COLL_BARRIER: {
        gloo::BarrierOptions options(context);
        gloo::barrier(options);
        return;
    }
    default: throw std::string("Gloo has no such collective; leave it out of --against");
    }
}

static gw_status call(void *ctx, const gw_bench_case *c, const gw_bench_buffers *buffers, gw_error *error) {
    try {
        carry_out(*static_cast<Context *>(ctx), c, buffers);
        return GW_OK;
    } catch (const std::string &text) {
        return gw_fail(error, GW_UNSUPPORTED, "%s", text.c_str());
    } catch (const std::exception &problem) {
        return gw_fail(error, GW_SYSTEM, "%s", problem.what());
    }
}

static int serve(const std::string &directory, const char *interface, int rank, int world) {
    gw_error error = {};
    gw_bench_library library = {};
    library.call = call;
    gloo::transport::tcp::attr attributes;
    attributes.iface = interface;
    gloo::rendezvous::FileStore store(directory);
    Context context = std::make_shared<gloo::rendezvous::Context>(rank, world);
    std::shared_ptr<gloo::transport::Device> device = gloo::transport::tcp::CreateDevice(attributes);
    context->connectFullMesh(store, device);
    gw_status status = gw_side_channel_run(directory.c_str(), &library, &context, rank, world, &error);
    if (status) fprintf(stderr, "%s\n", error.text);
    return status != GW_OK;
}

int main(int argc, char **argv) {
    const char *directory = getenv("GRADWIRE_BENCH"), *rank = getenv("RANK"), *world = getenv("WORLD_SIZE");
    if (!directory || !rank || !world || argc != 2) {
        fputs("this program is started by gradwire bench --against gloo\n", stderr);
        return 2;
    }
    try {
        return serve(directory, argv[1], atoi(rank), atoi(world));
    } catch (const std::exception &problem) {
        fprintf(stderr, "%s\n", problem.what());
        return 1;
    }
}
