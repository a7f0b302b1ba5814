#include "orthant/comm/gloo.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/maximum.h>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <csignal>
#include <functional>
#include <mutex>

#include "orthant/comm/store_impl.h"

// Note [Gloo by messages]
// Gloo's own reduce_scatter is one all-reduce per member and its all-gather copies twice, so both cost more than
// sending the parts directly. all_gather, reduce_scatter and all_to_all are therefore sends and receives into views of
// the caller's tensors, with a tag made of the call's sequence number; reduce_scatter adds what arrived in rank order,
// half types in float32, so its result does not depend on timing. all_reduce, broadcast and barrier are Gloo's: they
// run one after the other on the transport's worker thread. Messages are carried by the device's thread and pass
// collectives freely.

namespace orthant::comm {

struct GlooDevice::Impl {
  std::shared_ptr<gloo::transport::Device> device;
};

GlooDevice::GlooDevice(const std::string& bind_address)
    : impl_(new Impl{c10d::ProcessGroupGloo::createDeviceForHostname(bind_address)}) {
  // Gloo writes to sockets whose other end may be gone; the error must reach the caller, not end the process.
  std::signal(SIGPIPE, SIG_IGN);
}

GlooDevice::~GlooDevice() = default;

namespace {

using BackendWork = c10::intrusive_ptr<c10d::Work>;

// Above every tag a caller may use; the low bits are the sequence number.
constexpr int kPartsTag = 1 << 30;
constexpr int kSequenceMask = (1 << 30) - 1;

class GlooPending : public Pending {
 public:
  void add(BackendWork work) { works_.push_back(std::move(work)); }
  void keep(at::Tensor tensor) { kept_.push_back(std::move(tensor)); }
  void on_arrival(std::function<void()> finish) { finish_ = std::move(finish); }

  void wait() override {
    for (auto& work : works_) work->wait();
    works_.clear();
    if (finish_) finish_();
    finish_ = nullptr;
  }

 private:
  std::vector<BackendWork> works_;
  std::vector<at::Tensor> kept_;  // Gloo writes here until the works are done
  std::function<void()> finish_;
};

// Buffers for parts that arrive before they are added, reused because fresh memory costs more than the addition.
class Scratch {
 public:
  at::Tensor take(const at::Tensor& like, int64_t count) {
    const int64_t bytes = count * static_cast<int64_t>(like.element_size());
    std::lock_guard lock(mutex_);
    for (auto& buffer : free_) {
      if (buffer.numel() >= bytes) {
        std::swap(buffer, free_.back());
        auto taken = std::move(free_.back());
        free_.pop_back();
        return taken;
      }
    }
    return at::empty({bytes}, at::kByte);
  }

  void give_back(at::Tensor buffer) {
    std::lock_guard lock(mutex_);
    free_.push_back(std::move(buffer));
  }

 private:
  std::mutex mutex_;
  std::vector<at::Tensor> free_;
};

at::Tensor view_as(const at::Tensor& buffer, const at::Tensor& like, int64_t count) {
  return buffer.narrow(0, 0, count * static_cast<int64_t>(like.element_size())).view(like.scalar_type());
}

// output = parts[0] op parts[1] op ..., in this order on every rank. Half types are added in float32.
void reduce_in_order(const at::Tensor& output, const std::vector<at::Tensor>& parts, Reduction reduction) {
  if (reduction == Reduction::max) {
    auto result = parts[0].clone();
    for (size_t i = 1; i < parts.size(); ++i) at::maximum_out(result, result, parts[i]);
    output.copy_(result);
    return;
  }
  if (output.scalar_type() == at::kHalf || output.scalar_type() == at::kBFloat16) {
    auto result = parts[0].to(at::kFloat);
    for (size_t i = 1; i < parts.size(); ++i) result.add_(parts[i]);
    output.copy_(result);
    return;
  }
  // The output may be the own part of the input: it is copied before the first term overwrites it.
  std::vector<at::Tensor> terms = parts;
  for (size_t i = 1; i < terms.size(); ++i) {
    if (terms[i].data_ptr() == output.data_ptr()) terms[i] = terms[i].clone();
  }
  if (terms[0].data_ptr() != output.data_ptr()) output.copy_(terms[0]);
  for (size_t i = 1; i < terms.size(); ++i) output.add_(terms[i]);
}

class GlooTransport : public Transport {
 public:
  GlooTransport(c10::intrusive_ptr<c10d::Backend> backend, int index, int size)
      : backend_(std::move(backend)), index_(index), size_(size) {}

  std::unique_ptr<Pending> start(const Call& call) override {
    auto pending = std::make_unique<GlooPending>();
    switch (call.op) {
      case Op::all_reduce:
        start_all_reduce(call, *pending);
        break;
      case Op::all_gather:
        for (size_t i = 0; i < call.inputs.size(); ++i) start_all_gather(call, i, *pending);
        break;
      case Op::reduce_scatter:
        start_reduce_scatter(call, *pending);
        break;
      case Op::all_to_all:
        start_all_to_all(call, *pending);
        break;
      case Op::broadcast:
        start_broadcast(call, *pending);
        break;
      case Op::send:
        send(call.inputs.front(), call.peer, call.tag, *pending);
        break;
      case Op::receive:
        receive(call.outputs.front(), call.peer, call.tag, *pending);
        break;
      case Op::barrier:
        pending->add(backend_->barrier());
        break;
    }
    return pending;
  }

  void set_timeout(double timeout_seconds) override { backend_->setTimeout(to_milliseconds(timeout_seconds)); }

 private:
  // Consecutive tensors of one dtype travel as one Gloo call.
  void start_all_reduce(const Call& call, GlooPending& pending) {
    c10d::AllreduceCoalescedOptions options;
    options.reduceOp = call.reduction == Reduction::sum ? c10d::ReduceOp::SUM : c10d::ReduceOp::MAX;
    std::vector<at::Tensor> run;
    for (size_t i = 0; i < call.outputs.size(); ++i) {
      if (call.outputs[i].numel() > 0) run.push_back(call.outputs[i]);
      const bool last = i + 1 == call.outputs.size();
      if (run.empty() || (!last && call.outputs[i + 1].scalar_type() == run.front().scalar_type())) continue;
      pending.add(run.size() == 1 ? backend_->allreduce(run, options) : backend_->allreduce_coalesced(run, options));
      run.clear();
    }
  }

  void start_broadcast(const Call& call, GlooPending& pending) {
    c10d::BroadcastOptions options;
    options.rootRank = call.peer;
    for (const auto& output : call.outputs) {
      if (output.numel() == 0) continue;
      std::vector<at::Tensor> tensors{output};
      pending.add(backend_->broadcast(tensors, options));
    }
  }

  void start_all_gather(const Call& call, size_t i, GlooPending& pending) {
    const auto input = call.inputs[i].flatten();
    const auto parts = split(call.outputs[i], call.output_counts);
    const int tag = parts_tag(call);
    for (int peer = 0; peer < size_; ++peer) {
      if (peer != index_) receive(parts[static_cast<size_t>(peer)], peer, tag, pending);
    }
    for (int peer = 0; peer < size_; ++peer) {
      if (peer != index_) send(input, peer, tag, pending);
    }
    copy_own(parts[static_cast<size_t>(index_)], input);
  }

  void start_all_to_all(const Call& call, GlooPending& pending) {
    const auto incoming = split(call.outputs.front(), call.output_counts);
    const auto outgoing = split(call.inputs.front(), call.input_counts);
    const int tag = parts_tag(call);
    for (int peer = 0; peer < size_; ++peer) {
      if (peer != index_) receive(incoming[static_cast<size_t>(peer)], peer, tag, pending);
    }
    for (int peer = 0; peer < size_; ++peer) {
      if (peer != index_) send(outgoing[static_cast<size_t>(peer)], peer, tag, pending);
    }
    copy_own(incoming[static_cast<size_t>(index_)], outgoing[static_cast<size_t>(index_)]);
  }

  void start_reduce_scatter(const Call& call, GlooPending& pending) {
    const int tag = parts_tag(call);
    std::vector<at::Tensor> buffers;
    std::vector<std::vector<at::Tensor>> terms(call.inputs.size());
    for (size_t i = 0; i < call.inputs.size(); ++i) {
      const auto outgoing = split(call.inputs[i], call.input_counts);
      const auto& own = outgoing[static_cast<size_t>(index_)];
      for (int peer = 0; peer < size_; ++peer) {
        if (peer == index_ || own.numel() == 0) {
          terms[i].push_back(own);
          continue;
        }
        buffers.push_back(scratch_->take(own, own.numel()));
        terms[i].push_back(view_as(buffers.back(), own, own.numel()));
        receive(terms[i].back(), peer, tag, pending);
      }
      for (int peer = 0; peer < size_; ++peer) {
        if (peer != index_) send(outgoing[static_cast<size_t>(peer)], peer, tag, pending);
      }
    }
    pending.on_arrival([scratch = scratch_, buffers, terms, outputs = call.outputs, reduction = call.reduction] {
      for (size_t i = 0; i < outputs.size(); ++i) {
        if (outputs[i].numel() > 0) reduce_in_order(outputs[i].flatten(), terms[i], reduction);
      }
      for (const auto& buffer : buffers) scratch->give_back(buffer);
    });
  }

  std::vector<at::Tensor> split(const at::Tensor& whole, const std::vector<int64_t>& counts) const {
    const auto flat = whole.flatten();
    std::vector<at::Tensor> parts;
    int64_t begin = 0;
    for (int i = 0; i < size_; ++i) {
      const int64_t count = part_of(counts, flat.numel(), size_, i);
      parts.push_back(flat.narrow(0, begin, count));
      begin += count;
    }
    return parts;
  }

  void send(const at::Tensor& tensor, int peer, int tag, GlooPending& pending) {
    if (tensor.numel() == 0) return;
    std::vector<at::Tensor> tensors{tensor};
    pending.add(backend_->send(tensors, peer, tag));
    pending.keep(tensor);
  }

  void receive(const at::Tensor& tensor, int peer, int tag, GlooPending& pending) {
    if (tensor.numel() == 0) return;
    std::vector<at::Tensor> tensors{tensor};
    pending.add(backend_->recv(tensors, peer, tag));
    pending.keep(tensor);
  }

  static void copy_own(const at::Tensor& output, const at::Tensor& input) {
    if (output.numel() > 0 && output.data_ptr() != input.data_ptr()) output.copy_(input);
  }

  static int parts_tag(const Call& call) { return kPartsTag + static_cast<int>(call.sequence & kSequenceMask); }

  c10::intrusive_ptr<c10d::Backend> backend_;
  int index_;
  int size_;
  std::shared_ptr<Scratch> scratch_ = std::make_shared<Scratch>();
};

}  // namespace

std::unique_ptr<Transport> make_gloo_transport(GlooDevice& device, Store store, int index, int size,
                                               double timeout_seconds) {
  auto options = c10d::ProcessGroupGloo::Options::create(to_milliseconds(timeout_seconds));
  options->threads = 1;
  options->devices.push_back(device.impl().device);
  auto backend = c10::make_intrusive<c10d::ProcessGroupGloo>(store.impl().store, index, size, options);
  return std::make_unique<GlooTransport>(std::move(backend), index, size);
}

}  // namespace orthant::comm
