/* process_group.cc - torch.distributed's view of a gw_comm: each call starts a request, and one thread waits for the
 * requests in their order and completes the futures. Built by setup.py against torch's headers; gradwire/torch/c10d.py
 * opens the communicator. Tensors are used where they lie; lists of tensors go through one flat tensor. */
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <unistd.h>

#include <gradwire.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/utils/pybind.h>
#include <torch/version.h>

#if TORCH_VERSION_MAJOR >= 2
#include <torch/csrc/distributed/c10d/Backend.hpp>
#endif

namespace gradwire {

#if TORCH_VERSION_MAJOR >= 2
using Base = c10d::Backend;
#else
using Base = c10d::ProcessGroup;
#endif
using Tensors = std::vector<at::Tensor>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

/* A buffer for the library: number of elements, their type, and the reduction. */
struct Elements {
    size_t count;
    gw_dtype dtype;
    gw_redop op;
};

static bool known(at::ScalarType type, gw_dtype *dtype) {
    switch (type) {
    case at::kFloat: *dtype = GW_F32; return true;
    case at::kDouble: *dtype = GW_F64; return true;
    case at::kHalf: *dtype = GW_F16; return true;
    case at::kBFloat16: *dtype = GW_BF16; return true;
    case at::kChar: *dtype = GW_I8; return true;
    case at::kByte: *dtype = GW_U8; return true;
    case at::kInt: *dtype = GW_I32; return true;
    case at::kLong: *dtype = GW_I64; return true;
    case at::kBool: *dtype = GW_BOOL; return true;
    case at::kShort: *dtype = GW_I16; return true;
#if TORCH_VERSION_MAJOR * 100 + TORCH_VERSION_MINOR >= 203
    case at::ScalarType::UInt16: *dtype = GW_U16; return true;
    case at::ScalarType::UInt32: *dtype = GW_U32; return true;
    case at::ScalarType::UInt64: *dtype = GW_U64; return true;
#endif
#if TORCH_VERSION_MAJOR * 100 + TORCH_VERSION_MINOR >= 201
    case at::ScalarType::Float8_e4m3fn: *dtype = GW_F8E4M3; return true;
    case at::ScalarType::Float8_e5m2: *dtype = GW_F8E5M2; return true;
#endif
    default: return false;
    }
}

static const at::Tensor &usable(const at::Tensor &tensor, const char *call) {
    TORCH_CHECK(tensor.layout() == at::kStrided && tensor.device().is_cpu(), "gradwire: ", call,
                ": the process group takes dense tensors in host memory, not ", tensor.toString(), " on ",
                tensor.device());
    TORCH_CHECK(tensor.is_non_overlapping_and_dense(), "gradwire: ", call,
                ": the tensor does not lie in one piece; use contiguous() first");
    return tensor;
}

/* Moved only: types that the library does not know travel as bytes. */
static Elements moved(const at::Tensor &tensor) {
    gw_dtype dtype;
    if (known(tensor.scalar_type(), &dtype)) return {(size_t)tensor.numel(), dtype, GW_SUM};
    return {(size_t)tensor.numel() * tensor.element_size(), GW_U8, GW_SUM};
}

static gw_redop operation(const c10d::ReduceOp &op, const at::Tensor &tensor, const char *call) {
    bool whole = !tensor.is_floating_point();
    if (op == c10d::ReduceOp::SUM) return GW_SUM;
    if (op == c10d::ReduceOp::AVG && tensor.scalar_type() != at::kBool) return GW_AVG;
    if (op == c10d::ReduceOp::MIN) return GW_MIN;
    if (op == c10d::ReduceOp::MAX) return GW_MAX;
    if (op == c10d::ReduceOp::PRODUCT) return GW_PROD;
    if (op == c10d::ReduceOp::BAND && whole) return GW_BAND;
    if (op == c10d::ReduceOp::BOR && whole) return GW_BOR;
    if (op == c10d::ReduceOp::BXOR && whole) return GW_BXOR;
    TORCH_CHECK(false, "gradwire: ", call, ": only sum, average, minimum, maximum and product are reductions here, ",
                "and for integers and bool the operations on bits; a bool has no average");
}

static Elements combined(const at::Tensor &tensor, const char *call, const c10d::ReduceOp &op) {
    gw_dtype dtype = GW_U8;
    TORCH_CHECK(known(tensor.scalar_type(), &dtype), "gradwire: ", call, ": elements of type ", tensor.scalar_type(),
                " cannot be combined");
    return {(size_t)tensor.numel(), dtype, operation(op, tensor, call)};
}

/* One call: its requests, and a function to run when all are complete. */
class Work : public c10d::Work {
  public:
    Work(c10d::OpType type, Tensors results)
        : c10d::Work(-1, type), results_(std::move(results)),
          future_(c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()))) {}

    bool isCompleted() override { return future_->completed(); }
    bool isSuccess() const override { return future_->completed() && !future_->hasError(); }
    bool wait(std::chrono::milliseconds) override {
        future_->wait();
        if (future_->hasError()) std::rethrow_exception(future_->exception_ptr());
        return true;
    }
    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }
    Tensors result() override { return results_; }

    /* The waiting thread calls it. It waits for all requests, also after an error. */
    void finish(gw_comm *comm) {
        std::string sentence;
        for (gw_request *request : requests)
            if (gw_wait(request) != GW_OK && sentence.empty()) sentence = gw_last_error(comm);
        try {
            if (!sentence.empty()) throw std::runtime_error("gradwire: " + sentence);
            at::NoGradGuard no_history;
            if (then) then();
            then = nullptr;
            future_->markCompleted(c10::IValue(results_));
        } catch (...) {
            future_->setError(std::current_exception());
        }
    }

    std::vector<gw_request *> requests;
    std::function<void()> then;
    Tensors kept; /* alive until the requests are complete */

  private:
    Tensors results_;
    c10::intrusive_ptr<c10::ivalue::Future> future_;
};

class ProcessGroupGradwire : public Base {
  public:
    ProcessGroupGradwire(int rank, int size, uintptr_t comm)
        : Base(rank, size), comm_((gw_comm *)comm), pid_(getpid()), calls_(new Calls) {
        calls_->waiter = std::thread([this] { run(); });
    }
    ~ProcessGroupGradwire() override { shutdown(); }

    const std::string getBackendName() const override { return "gradwire"; }

    void abort(const std::string &reason) {
        if (comm_ && !forked()) gw_abort(comm_, reason.c_str());
    }

    /* Completes all calls and leaves the job. The waiting thread may need the interpreter's lock, for callbacks and to
     * release tensors, and the caller (a destructor) may hold it. */
    void shutdown() {
        if (!comm_ || forked()) return;
        if (!PyGILState_Check()) {
            leave();
            return;
        }
        py::gil_scoped_release release;
        leave();
    }

    WorkPtr broadcast(Tensors &tensors, const c10d::BroadcastOptions &options) override {
        return each("broadcast", c10d::OpType::BROADCAST, tensors, [&](const at::Tensor &t, gw_request **request) {
            Elements e = moved(t);
            return gw_broadcast_start(comm_, t.data_ptr(), t.data_ptr(), e.count, e.dtype, (int)options.rootRank,
                                      request);
        });
    }

    WorkPtr allreduce(Tensors &tensors, const c10d::AllreduceOptions &options) override {
        for (const at::Tensor &t : tensors) combined(t, "allreduce", options.reduceOp); /* all, before any begins */
        return each("allreduce", c10d::OpType::ALLREDUCE, tensors, [&](const at::Tensor &t, gw_request **request) {
            Elements e = combined(t, "allreduce", options.reduceOp);
            return gw_allreduce_start(comm_, t.data_ptr(), t.data_ptr(), e.count, e.dtype, e.op, request);
        });
    }

    WorkPtr allreduce_coalesced(Tensors &tensors, const c10d::AllreduceCoalescedOptions &options) override {
        return allreduce(tensors, options);
    }

    WorkPtr reduce(Tensors &tensors, const c10d::ReduceOptions &options) override {
        return each("reduce", c10d::OpType::REDUCE, tensors, [&](const at::Tensor &t, gw_request **request) {
            Elements e = combined(t, "reduce", options.reduceOp);
            return gw_reduce_start(comm_, t.data_ptr(), t.data_ptr(), e.count, e.dtype, e.op, (int)options.rootRank,
                                   request);
        });
    }

    WorkPtr _allgather_base(at::Tensor &whole, at::Tensor &mine, const c10d::AllgatherOptions &) override {
        check_parts("all-gather", whole, mine);
        check_order("all-gather", whole, mine);
        auto work = make(c10d::OpType::_ALLGATHER_BASE, {whole}, {mine});
        return gathered(work, whole, mine);
    }

    WorkPtr allgather(std::vector<Tensors> &outputs, Tensors &inputs, const c10d::AllgatherOptions &) override {
        TORCH_CHECK(inputs.size() == 1 && outputs.size() == 1 && (int)outputs[0].size() == getSize(),
                    "gradwire: allgather: one tensor in and one for each rank out are wanted");
        at::Tensor mine = inputs[0].contiguous(), whole = at::empty({getSize() * mine.numel()}, mine.options());
        auto work = make(c10d::OpType::ALLGATHER, outputs[0], {mine, whole});
        work->then = [whole, out = outputs[0]] { spread(whole, out); };
        return gathered(work, whole, mine);
    }

    WorkPtr gather(std::vector<Tensors> &outputs, Tensors &inputs, const c10d::GatherOptions &options) override {
        bool root = getRank() == options.rootRank;
        TORCH_CHECK(inputs.size() == 1 && (!root || (outputs.size() == 1 && (int)outputs[0].size() == getSize())),
                    "gradwire: gather: one tensor in and, on the root, one for each rank out are wanted");
        at::Tensor mine = inputs[0].contiguous();
        at::Tensor whole = at::empty({root ? getSize() * mine.numel() : 0}, mine.options());
        auto work = make(c10d::OpType::GATHER, root ? outputs[0] : Tensors(), {mine, whole});
        if (root) work->then = [whole, out = outputs[0]] { spread(whole, out); };
        Elements e = moved(usable(mine, "gather"));
        return started(work, [&](gw_request **request) {
            return gw_gather_start(comm_, mine.data_ptr(), whole.data_ptr(), e.count, e.dtype, (int)options.rootRank,
                                   request);
        });
    }

    WorkPtr scatter(Tensors &outputs, std::vector<Tensors> &inputs, const c10d::ScatterOptions &options) override {
        bool root = getRank() == options.rootRank;
        TORCH_CHECK(outputs.size() == 1 && (!root || (inputs.size() == 1 && (int)inputs[0].size() == getSize())),
                    "gradwire: scatter: one tensor out and, on the root, one for each rank in are wanted");
        usable(outputs[0], "scatter");
        at::Tensor whole = root ? flat(inputs[0]) : at::empty({0}, outputs[0].options());
        auto work = make(c10d::OpType::SCATTER, outputs, {whole});
        at::Tensor mine = contiguous_output(work, outputs[0]);
        Elements e = moved(mine);
        return started(work, [&](gw_request **request) {
            return gw_scatter_start(comm_, whole.data_ptr(), mine.data_ptr(), e.count, e.dtype, (int)options.rootRank,
                                    request);
        });
    }

    WorkPtr _reduce_scatter_base(at::Tensor &mine, at::Tensor &whole,
                                 const c10d::ReduceScatterOptions &options) override {
        check_parts("reduce-scatter", whole, mine);
        check_order("reduce-scatter", whole, mine);
        return scattered(make(c10d::OpType::_REDUCE_SCATTER_BASE, {mine}, {whole}), whole, mine, options.reduceOp);
    }

    WorkPtr reduce_scatter(Tensors &outputs, std::vector<Tensors> &inputs,
                           const c10d::ReduceScatterOptions &options) override {
        TORCH_CHECK(outputs.size() == 1 && inputs.size() == 1 && (int)inputs[0].size() == getSize(),
                    "gradwire: reduce_scatter: one tensor for each rank in and one out are wanted");
        at::Tensor whole = flat(inputs[0]);
        check_parts("reduce-scatter", whole, outputs[0]);
        auto work = make(c10d::OpType::REDUCE_SCATTER, outputs, {whole});
        return scattered(work, whole, contiguous_output(work, outputs[0]), options.reduceOp);
    }

    WorkPtr alltoall_base(at::Tensor &output, at::Tensor &input, std::vector<int64_t> &come, std::vector<int64_t> &go,
                          const c10d::AllToAllOptions &) override {
        usable(output, "alltoall"), usable(input, "alltoall");
        auto parts = [this](const at::Tensor &t, std::vector<int64_t> &rows) {
            return rows.empty() ? t.chunk(getSize()) : t.split_with_sizes(rows);
        };
        Tensors out = parts(output, come), in = parts(input, go);
        return exchanged(make(c10d::OpType::ALLTOALL_BASE, {output}, {input}), out, in);
    }

    WorkPtr alltoall(Tensors &outputs, Tensors &inputs, const c10d::AllToAllOptions &) override {
        return exchanged(make(c10d::OpType::ALLTOALL, outputs, inputs), outputs, inputs);
    }

    WorkPtr send(Tensors &tensors, int peer, int tag) override {
        check_tag(tag);
        return each("send", c10d::OpType::SEND, tensors, [&](const at::Tensor &t, gw_request **request) {
            Elements e = moved(t);
            return gw_send_start(comm_, t.data_ptr(), e.count, e.dtype, peer, request);
        });
    }

    WorkPtr recv(Tensors &tensors, int peer, int tag) override {
        check_tag(tag);
        return each("recv", c10d::OpType::RECV, tensors, [&](const at::Tensor &t, gw_request **request) {
            Elements e = moved(t);
            return gw_recv_start(comm_, t.data_ptr(), e.count, e.dtype, peer, request);
        });
    }

    WorkPtr barrier(const c10d::BarrierOptions &) override {
        return started(make(c10d::OpType::BARRIER, {}, {}),
                       [&](gw_request **request) { return gw_barrier_start(comm_, request); });
    }

  private:
    using WorkOfOurs = c10::intrusive_ptr<Work>;

    void leave() {
        {
            std::lock_guard<std::mutex> guard(calls_->lock);
            calls_->queue.emplace_back();
        }
        calls_->ready.notify_one();
        calls_->waiter.join();
        delete calls_;
        gw_finalize(comm_);
        comm_ = nullptr;
    }

    static WorkOfOurs make(c10d::OpType type, Tensors results, Tensors kept) {
        auto work = c10::make_intrusive<Work>(type, std::move(results));
        work->kept = std::move(kept);
        return work;
    }

    static at::Tensor flat(const Tensors &tensors) {
        Tensors lines;
        for (const at::Tensor &tensor : tensors) lines.push_back(tensor.reshape({-1}));
        return at::cat(lines);
    }

    static void spread(const at::Tensor &whole, const Tensors &out) {
        Tensors parts = whole.chunk((int64_t)out.size());
        for (size_t i = 0; i < out.size() && i < parts.size(); i++) out[i].copy_(parts[i].view_as(out[i]));
    }

    /* A contiguous buffer to receive into: the tensor itself, if it is contiguous. */
    static at::Tensor contiguous_output(const WorkOfOurs &work, const at::Tensor &out) {
        if (out.is_contiguous()) return out;
        at::Tensor line = at::empty(out.sizes(), out.options());
        work->then = [line, out] { out.copy_(line); };
        return line;
    }

    static void check_tag(int tag) {
        TORCH_CHECK(tag == 0, "gradwire: messages between two ranks meet in their order; tag ", tag,
                    " is not possible");
    }

    void check_parts(const char *call, const at::Tensor &whole, const at::Tensor &mine) const {
        usable(whole, call), usable(mine, call);
        TORCH_CHECK(whole.scalar_type() == mine.scalar_type() && whole.numel() == mine.numel() * getSize(),
                    "gradwire: ", call, ": the large tensor (", whole.numel(), " elements) has to hold one part (",
                    mine.numel(), ") for each of ", getSize(), " ranks");
    }

    static void check_order(const char *call, const at::Tensor &whole, const at::Tensor &mine) {
        TORCH_CHECK(whole.is_contiguous() && mine.is_contiguous(), "gradwire: ", call,
                    ": memory has to have the order of the elements; use contiguous() first");
    }

    WorkPtr gathered(WorkOfOurs work, const at::Tensor &whole, const at::Tensor &mine) {
        Elements e = moved(usable(mine, "allgather"));
        return started(work, [&](gw_request **request) {
            return gw_allgather_start(comm_, mine.data_ptr(), whole.data_ptr(), e.count, e.dtype, request);
        });
    }

    WorkPtr scattered(WorkOfOurs work, const at::Tensor &whole, const at::Tensor &mine, const c10d::ReduceOp &op) {
        Elements e = combined(mine, "reduce_scatter", op);
        return started(work, [&](gw_request **request) {
            return gw_reduce_scatter_start(comm_, whole.data_ptr(), mine.data_ptr(), e.count, e.dtype, e.op, request);
        });
    }

    WorkPtr exchanged(WorkOfOurs work, Tensors &out, Tensors &in) {
        TORCH_CHECK((int)out.size() == getSize() && (int)in.size() == getSize(),
                    "gradwire: alltoall: one part for each rank is wanted, in and out");
        for (int r = 0; r < getSize(); r++) usable(in[r], "alltoall"), usable(out[r], "alltoall");
        out[getRank()].copy_(in[getRank()].view_as(out[getRank()]));
        check_process();
        std::lock_guard<std::mutex> guard(calls_->lock);
        for (int distance = 1; distance < getSize(); distance++) {
            int to = (getRank() + distance) % getSize(), from = (getRank() - distance + getSize()) % getSize();
            Elements go = moved(in[to]), come = moved(out[from]);
            if (go.count) begin(work, gw_send_start(comm_, in[to].data_ptr(), go.count, go.dtype, to, &request_));
            if (come.count)
                begin(work, gw_recv_start(comm_, out[from].data_ptr(), come.count, come.dtype, from, &request_));
        }
        return await(work);
    }

    /* start(tensor, &request) for each tensor, in place. */
    template <typename Start> WorkPtr each(const char *call, c10d::OpType type, Tensors &tensors, Start start) {
        for (const at::Tensor &tensor : tensors) usable(tensor, call);
        auto work = make(type, tensors, tensors);
        check_process();
        std::lock_guard<std::mutex> guard(calls_->lock);
        for (const at::Tensor &tensor : tensors) begin(work, start(tensor, &request_));
        return await(work);
    }

    template <typename Start> WorkPtr started(WorkOfOurs work, Start start) {
        check_process();
        std::lock_guard<std::mutex> guard(calls_->lock);
        begin(work, start(&request_));
        return await(work);
    }

    /* The lock is held. */
    void begin(const WorkOfOurs &work, gw_status status) {
        if (status == GW_OK) {
            work->requests.push_back(request_);
            return;
        }
        std::string sentence = gw_last_error(comm_);
        if (!work->requests.empty()) await(work); /* wait for the requests that have begun */
        TORCH_CHECK(false, "gradwire: ", sentence);
    }

    /* The lock is held. */
    WorkPtr await(const WorkOfOurs &work) {
        calls_->queue.push_back(work);
        calls_->ready.notify_one();
        return work;
    }

    void run() {
        for (;;) {
            std::unique_lock<std::mutex> guard(calls_->lock);
            calls_->ready.wait(guard, [this] { return !calls_->queue.empty(); });
            WorkOfOurs work = std::move(calls_->queue.front());
            calls_->queue.pop_front();
            guard.unlock();
            if (!work) return;
            work->finish(comm_);
        }
    }

    /* A forked child has a copy of this object, but not the thread, and a lock in an unknown state: it touches nothing.
     */
    bool forked() const { return getpid() != pid_; }

    void check_process() const {
        TORCH_CHECK(!forked(), "gradwire: this process was forked from rank ", getRank(), " (process ", pid_,
                    "), which "
                    "alone can use the process group: a forked child may compute, but not communicate");
    }

    struct Calls {
        std::mutex lock; /* the order of calls, and the queue */
        std::condition_variable ready;
        std::deque<WorkOfOurs> queue; /* in the order of calls; a null pointer ends the thread */
        std::thread waiter;
    };

    gw_comm *comm_;
    pid_t pid_;                     /* of the process that joined */
    gw_request *request_ = nullptr; /* the one just started; under the lock */
    Calls *calls_;                  /* not destroyed in a child, whose thread does not exist */
};

} // namespace gradwire

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
    using Group = gradwire::ProcessGroupGradwire;
    py::module::import("torch.distributed");
    py::class_<Group, gradwire::Base, c10::intrusive_ptr<Group>>(module, "ProcessGroupGradwire")
        .def(py::init<int, int, uintptr_t>())
        .def("abort", &Group::abort, py::call_guard<py::gil_scoped_release>())
        .def("shutdown", &Group::shutdown, py::call_guard<py::gil_scoped_release>());
}
