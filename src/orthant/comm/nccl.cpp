#include "orthant/comm/nccl.h"

#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "orthant/comm/store_impl.h"

namespace orthant::comm {
namespace {

class NcclPending : public Pending {
 public:
  void add(c10::intrusive_ptr<c10d::Work> work) { works_.push_back(std::move(work)); }

  bool done() override {
    return std::ranges::all_of(works_, [](const auto& work) { return work->isCompleted(); });
  }

  // Orders the current stream after the call; the host does not wait.
  void wait() override {
    for (auto& work : works_) work->wait();
  }

 private:
  std::vector<c10::intrusive_ptr<c10d::Work>> works_;
};

class NcclTransport : public Transport {
 public:
  NcclTransport(c10::intrusive_ptr<c10d::ProcessGroupNCCL> backend, int index, int size)
      : backend_(std::move(backend)), index_(index), size_(size) {}

  std::unique_ptr<Pending> start(const Call& call) override {
    auto pending = std::make_unique<NcclPending>();
    const bool several = call.outputs.size() > 1;
    if (several) backend_->startCoalescing();
    for (size_t i = 0; i < std::max(call.outputs.size(), call.inputs.size()); ++i)
      start_one(call, i, *pending, several);
    if (several) pending->add(backend_->endCoalescing());
    if (call.op == Op::barrier) pending->add(backend_->barrier());
    return pending;
  }

  void set_timeout(double timeout_seconds) override { backend_->setTimeout(to_milliseconds(timeout_seconds)); }

 private:
  void start_one(const Call& call, size_t i, NcclPending& pending, bool several) {
    auto work = start_tensor(call, i, pending);
    if (work && !several) pending.add(std::move(work));
  }

  c10::intrusive_ptr<c10d::Work> start_tensor(const Call& call, size_t i, NcclPending& pending) {
    const auto operation = call.reduction == Reduction::sum ? c10d::ReduceOp::SUM : c10d::ReduceOp::MAX;
    std::vector<at::Tensor> tensors{call.outputs.empty() ? call.inputs[i] : call.outputs[i]};
    switch (call.op) {
      case Op::all_reduce: {
        c10d::AllreduceOptions options;
        options.reduceOp = operation;
        return backend_->allreduce(tensors, options);
      }
      case Op::broadcast: {
        c10d::BroadcastOptions options;
        options.rootRank = call.peer;
        return backend_->broadcast(tensors, options);
      }
      case Op::all_gather: {
        if (!call.output_counts.empty()) return gather_uneven(call, pending);
        auto output = call.outputs[i];
        auto input = call.inputs[i];
        return backend_->_allgather_base(output, input);
      }
      case Op::reduce_scatter: {
        if (!call.input_counts.empty()) return scatter_uneven(call, operation, pending);
        c10d::ReduceScatterOptions options;
        options.reduceOp = operation;
        auto output = call.outputs[i];
        auto input = call.inputs[i];
        return backend_->_reduce_scatter_base(output, input, options);
      }
      case Op::all_to_all: {
        auto output = call.outputs[i].flatten();
        auto input = call.inputs[i].flatten();
        auto output_counts = call.output_counts;
        auto input_counts = call.input_counts;
        return backend_->alltoall_base(output, input, output_counts, input_counts);
      }
      case Op::send:
        return backend_->send(tensors, call.peer, call.tag);
      case Op::receive:
        return backend_->recv(tensors, call.peer, call.tag);
      case Op::barrier:
        return {};
    }
    return {};
  }

  // One broadcast per member, into its part of the output.
  c10::intrusive_ptr<c10d::Work> gather_uneven(const Call& call, NcclPending& pending) {
    const auto output = call.outputs.front().flatten();
    int64_t begin = 0;
    for (int root = 0; root < size_; ++root) {
      const int64_t count = call.output_counts[static_cast<size_t>(root)];
      std::vector<at::Tensor> part{output.narrow(0, begin, count)};
      begin += count;
      if (count == 0) continue;
      if (root == index_ && part[0].data_ptr() != call.inputs.front().data_ptr())
        part[0].copy_(call.inputs.front().flatten());
      c10d::BroadcastOptions options;
      options.rootRank = root;
      pending.add(backend_->broadcast(part, options));
    }
    return {};
  }

  // One reduce per member, of a copy: NCCL reduces in place and the input belongs to the caller.
  c10::intrusive_ptr<c10d::Work> scatter_uneven(const Call& call, const c10d::ReduceOp& operation,
                                                NcclPending& pending) {
    const auto input = call.inputs.front().flatten().clone();
    int64_t begin = 0;
    for (int root = 0; root < size_; ++root) {
      const int64_t count = call.input_counts[static_cast<size_t>(root)];
      std::vector<at::Tensor> part{input.narrow(0, begin, count)};
      begin += count;
      if (count == 0) continue;
      c10d::ReduceOptions options;
      options.reduceOp = operation;
      options.rootRank = root;
      auto work = backend_->reduce(part, options);
      if (root == index_) {
        work->wait();
        call.outputs.front().flatten().copy_(part[0]);
      }
      pending.add(std::move(work));
    }
    return {};
  }

  c10::intrusive_ptr<c10d::ProcessGroupNCCL> backend_;
  int index_;
  int size_;
};

}  // namespace

bool nccl_available() {
  return true;
}

std::unique_ptr<Transport> make_nccl_transport(Store store, int index, int size, double timeout_seconds) {
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = to_milliseconds(timeout_seconds);
  auto backend = c10::make_intrusive<c10d::ProcessGroupNCCL>(store.impl().store, index, size, options);
  return std::make_unique<NcclTransport>(std::move(backend), index, size);
}

}  // namespace orthant::comm
