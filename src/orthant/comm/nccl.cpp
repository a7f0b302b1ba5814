#include "orthant/comm/nccl.h"

#include <ATen/ops/zeros.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <map>
#include <optional>

#include "orthant/base/error.h"
#include "orthant/comm/store_impl.h"
#include "orthant/launch/device_variables.h"

// Note [NCCL]
// A call is put on a stream of its communicator and the host goes on; the current stream waits where wait() is called.
// Collectives of a group have one communicator. Messages have one for each directed pair that connect() names: what
// travels there runs in its order and holds up nothing else, so that receives may be started early and every schedule
// that runs with buffered sends runs here (Note [Queues of NCCL] in schedule/message_queues.h). All are connected
// before the first call: making a communicator waits for the other end, and may wait for the device, on which an early
// receive may be waiting for that very end. Streams have high priority, so that exchanges start under products.
//
// Note [Starting kernels]: a kernel that a process starts for the first time is loaded, and loading waits for what runs
// on the device; so may memory that is allocated. A receive runs there until its message has come. A host that starts
// kernels behind an early receive may so wait for a peer whose host waits for it in the same way, behind a receive of
// its own. Whoever may start new kernels therefore posts a receive only where the peer, at the same place of its
// program, has put the matching send into its queue without having had to start one: lists of stages post receives
// early from their third run on (parallel/pipeline/stage_links.h), and a ring sends before it receives. Collectives
// come in one order on all ranks, which is enough.
//
// c10d's own watchdog ends the process when a call fails; here it only looks, and CallWatch tells the failure with
// rank, group and operation, ends all communicators and lets the next call throw.

namespace orthant::comm {
namespace {

using Backend = c10::intrusive_ptr<c10d::ProcessGroupNCCL>;
using BackendWork = c10::intrusive_ptr<c10d::Work>;

// c10d would notice late calls itself, with a text of its own.
constexpr auto kNever = std::chrono::hours(24 * 365);

// As far as the process has not used the device yet: a program may be started by whoever knows nothing of it.
void set_variables() {
  setenv(launch::kQueuesVariable, launch::kMostQueues, /*overwrite=*/0);
  // c10d's watchdog would end the process.
  for (const char* name :
       {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "TORCH_NCCL_ENABLE_MONITORING", "TORCH_NCCL_DUMP_ON_TIMEOUT",
        "TORCH_NCCL_PROPAGATE_ERROR", "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC"}) {
    setenv(name, "0", /*overwrite=*/1);
  }
}

Backend connect_backend(const Store& store, int index, int size, at::Device device) {
  set_variables();
  auto options = c10d::ProcessGroupNCCL::Options::create(/*is_high_priority_stream=*/true);
  options->timeout = kNever;
  auto below = store;
  auto backend = c10::make_intrusive<c10d::ProcessGroupNCCL>(below.impl().store, index, size, options);
  backend->setBoundDeviceId(device);
  backend->eagerConnectSingleDevice(device);
  return backend;
}

// Works of one call. A call of several is done when all are.
class NcclPending : public Pending {
 public:
  explicit NcclPending(std::vector<BackendWork> works) : works_(std::move(works)) {}

  bool done() override {
    return std::ranges::all_of(works_, [](const auto& work) { return work->isCompleted(); });
  }

  // Orders the current stream after the call; the host does not wait.
  void wait() override {
    for (auto& work : works_) work->wait();
  }

 private:
  std::vector<BackendWork> works_;
};

// A communicator, and its calls under watch.
class Line {
 public:
  Line(std::shared_ptr<CallWatch> watch, ChannelMembers members, const Store& store, at::Device device, Backend backend)
      : watch_(std::move(watch)), device_(device), backend_(std::move(backend)) {
    queue_ = watch_->add_queue(std::move(members), store, [backend = backend_] { backend->abort(); });
  }
  Line(const Line&) = delete;
  Line& operator=(const Line&) = delete;

  // With calls open, or after a failure, the communicator is given up as it is: its end would wait for peers, for the
  // device or for c10d's watchdog, and this process is about to leave.
  ~Line() {
    if (!watch_->remove_queue(queue_)) {
      backend_.release();
      return;
    }
    try {
      backend_->shutdown();
    } catch (const std::exception&) {
      // A peer was faster, and is gone.
    }
  }

  c10d::ProcessGroupNCCL& backend() { return *backend_; }

  std::unique_ptr<Pending> started(const Call& call, int index, double timeout_seconds,
                                   const std::vector<BackendWork>& works) {
    watch_->add(queue_, words_of(call, index), timeout_seconds, [works, device = device_] {
      const c10::DeviceGuard on_device(device);  // the watching thread has none yet
      for (const auto& work : works) {
        const bool completed = work->isCompleted();
        if (const auto failure = work->exception()) std::rethrow_exception(failure);
        if (!completed) return false;
      }
      return true;
    });
    return std::make_unique<NcclPending>(works);
  }

 private:
  std::shared_ptr<CallWatch> watch_;
  at::Device device_;
  Backend backend_;
  int queue_ = -1;
};

class NcclTransport : public Transport {
 public:
  NcclTransport(std::shared_ptr<CallWatch> watch, Store store, ChannelMembers members, at::Device device,
                double timeout_seconds)
      : watch_(std::move(watch)),
        store_(std::move(store)),
        members_(std::move(members)),
        device_(device),
        timeout_seconds_(timeout_seconds),
        size_(static_cast<int>(members_.ranks.size())),
        collectives_(watch_, members_, store_, device_, connect_backend(store_, members_.index, size_, device_)) {}

  std::unique_ptr<Pending> start(const Call& call) override {
    if (call.is_point_to_point()) return start_message(call);
    std::vector<BackendWork> works;
    if (call.op == Op::barrier) {
      works.push_back(collectives_.backend().barrier());
    } else {
      start_collective(call, works);
    }
    return collectives_.started(call, members_.index, timeout_seconds_, works);
  }

  void connect(const std::vector<MessagePair>& pairs) override {
    for (const auto& pair : pairs) {
      const bool sends = pair.from == members_.index;
      if (!sends && pair.to != members_.index) continue;
      auto& line = messages_[{pair.from, pair.to}];
      if (line) continue;
      const auto store = store_.below(fmt::format("messages/{}-{}", pair.from, pair.to));
      line =
          std::make_unique<Line>(watch_, members_, store_, device_, connect_backend(store, sends ? 0 : 1, 2, device_));
      // The first message makes the way that all others take.
      std::vector<at::Tensor> first{at::zeros({1}, at::TensorOptions().device(device_))};
      message(*line, first, sends)->wait();
      c10::impl::VirtualGuardImpl(device_.type()).synchronizeDevice(device_.index());
    }
  }

  void set_timeout(double timeout_seconds) override { timeout_seconds_ = timeout_seconds; }

 private:
  // As a call of c10d's that is joined with nothing: alone it would make a communicator for the pair when it is first
  // called.
  static BackendWork message(Line& line, std::vector<at::Tensor>& tensors, bool sends) {
    auto& backend = line.backend();
    backend.startCoalescing();
    if (sends) {
      backend.send(tensors, /*dstRank=*/1, /*tag=*/0);
    } else {
      backend.recv(tensors, /*srcRank=*/0, /*tag=*/0);
    }
    return backend.endCoalescing();
  }

  std::unique_ptr<Pending> start_message(const Call& call) {
    const bool sends = call.op == Op::send;
    const int from = sends ? members_.index : call.peer;
    const int to = sends ? call.peer : members_.index;
    const auto line = messages_.find({from, to});
    if (line == messages_.end()) {
      throw ConfigError(
          fmt::format("{} on group {} over NCCL: no messages from rank {} to rank {} were announced", describe(call),
                      members_.name, members_.ranks[static_cast<size_t>(from)],
                      members_.ranks[static_cast<size_t>(to)]),
          {.remedy = "name the pair in Group::connect() before the first message", .rank = members_.own_rank()},
          call.site);
    }
    std::vector<at::Tensor> tensors{sends ? call.inputs.front() : call.outputs.front()};
    std::vector<BackendWork> works;
    if (tensors.front().numel() > 0) works.push_back(message(*line->second, tensors, sends));
    return line->second->started(call, members_.index, timeout_seconds_, works);
  }

  // Several tensors, or several parts of one, are one launch.
  void start_collective(const Call& call, std::vector<BackendWork>& works) {
    const bool uneven = (call.op == Op::all_gather && !call.output_counts.empty()) ||
                        (call.op == Op::reduce_scatter && !call.input_counts.empty());
    if (uneven) return start_uneven(call, works);
    std::vector<size_t> places;
    for (size_t i = 0; i < std::max(call.outputs.size(), call.inputs.size()); ++i) {
      if (call.op == Op::all_to_all || call.outputs[i].numel() > 0) places.push_back(i);
    }
    auto& backend = collectives_.backend();
    if (places.size() > 1) backend.startCoalescing();
    for (const size_t i : places) {
      auto work = start_tensor(call, i);
      if (places.size() == 1) works.push_back(std::move(work));
    }
    if (places.size() > 1) works.push_back(backend.endCoalescing());
  }

  BackendWork start_tensor(const Call& call, size_t i) {
    auto& backend = collectives_.backend();
    switch (call.op) {
      case Op::all_reduce: {
        c10d::AllreduceOptions options;
        options.reduceOp = operation(call);
        std::vector<at::Tensor> tensors{call.outputs[i]};
        return backend.allreduce(tensors, options);
      }
      case Op::broadcast: {
        std::vector<at::Tensor> tensors{call.outputs[i]};
        return backend.broadcast(tensors, from_root(call.peer));
      }
      case Op::all_gather: {
        auto output = call.outputs[i];
        auto input = call.inputs[i];
        return backend._allgather_base(output, input);
      }
      case Op::reduce_scatter: {
        c10d::ReduceScatterOptions options;
        options.reduceOp = operation(call);
        auto output = call.outputs[i];
        auto input = call.inputs[i];
        return backend._reduce_scatter_base(output, input, options);
      }
      default: {
        auto output = call.outputs[i].flatten();
        auto input = call.inputs[i].flatten();
        auto output_counts = call.output_counts;
        auto input_counts = call.input_counts;
        return backend.alltoall_base(output, input, output_counts, input_counts);
      }
    }
  }

  static c10d::ReduceOp operation(const Call& call) {
    return call.reduction == Reduction::sum ? c10d::ReduceOp::SUM : c10d::ReduceOp::MAX;
  }

  static c10d::BroadcastOptions from_root(int root) {
    c10d::BroadcastOptions options;
    options.rootRank = root;
    return options;
  }

  // One broadcast or reduction for each member that has a part. Reductions are of a copy: NCCL reduces in place and the
  // input belongs to the caller.
  void start_uneven(const Call& call, std::vector<BackendWork>& works) {
    const bool gathers = call.op == Op::all_gather;
    const auto& counts = gathers ? call.output_counts : call.input_counts;
    const auto whole = gathers ? call.outputs.front().flatten() : call.inputs.front().flatten().clone();
    std::vector<std::pair<int, at::Tensor>> parts;
    int64_t begin = 0;
    for (int root = 0; root < size_; ++root) {
      const int64_t count = counts[static_cast<size_t>(root)];
      if (count > 0) parts.emplace_back(root, whole.narrow(0, begin, count));
      begin += count;
    }
    if (parts.empty()) return;
    auto& backend = collectives_.backend();
    for (const auto& [root, part] : parts) {
      if (gathers && root == members_.index && part.data_ptr() != call.inputs.front().data_ptr()) {
        part.copy_(call.inputs.front().flatten());
      }
    }
    backend.startCoalescing();
    for (const auto& [root, part] : parts) {
      std::vector<at::Tensor> tensors{part};
      if (gathers) {
        backend.broadcast(tensors, from_root(root));
      } else {
        c10d::ReduceOptions options;
        options.reduceOp = operation(call);
        options.rootRank = root;
        backend.reduce(tensors, options);
      }
    }
    works.push_back(backend.endCoalescing());
    if (gathers) return;
    works.back()->wait();
    for (const auto& [root, part] : parts) {
      if (root == members_.index) call.outputs.front().flatten().copy_(part);
    }
  }

  std::shared_ptr<CallWatch> watch_;
  Store store_;
  ChannelMembers members_;
  at::Device device_;
  std::atomic<double> timeout_seconds_;
  int size_;
  Line collectives_;
  std::map<std::pair<int, int>, std::unique_ptr<Line>> messages_;  // from, to
};

}  // namespace

bool nccl_available() {
  return true;
}

std::unique_ptr<Transport> make_nccl_transport(std::shared_ptr<CallWatch> watch, Store store, ChannelMembers members,
                                               at::Device device, double timeout_seconds) {
  return std::make_unique<NcclTransport>(std::move(watch), std::move(store), std::move(members), device,
                                         timeout_seconds);
}

}  // namespace orthant::comm
