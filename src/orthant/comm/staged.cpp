#include "orthant/comm/staged.h"

#include <ATen/ops/empty.h>

namespace orthant::comm {
namespace {

at::Tensor host_like(const at::Tensor& tensor) {
  return at::empty(tensor.sizes(), tensor.options().device(at::kCPU).pinned_memory(true));
}

class StagedPending : public Pending {
 public:
  StagedPending(std::unique_ptr<Pending> inner, std::vector<at::Tensor> outputs, std::vector<at::Tensor> hosts)
      : inner_(std::move(inner)), outputs_(std::move(outputs)), hosts_(std::move(hosts)) {}

  bool done() override { return outputs_.empty() && inner_->done(); }

  void wait() override {
    inner_->wait();
    for (size_t i = 0; i < outputs_.size(); ++i) outputs_[i].copy_(hosts_[i]);
  }

 private:
  std::unique_ptr<Pending> inner_;
  std::vector<at::Tensor> outputs_;
  std::vector<at::Tensor> hosts_;
};

class StagedTransport : public Transport {
 public:
  explicit StagedTransport(std::unique_ptr<Transport> inner) : inner_(std::move(inner)) {}

  std::unique_ptr<Pending> start(const Call& call) override {
    const auto& any = call.outputs.empty() ? call.inputs : call.outputs;
    if (any.empty() || any.front().device().is_cpu()) return inner_->start(call);
    Call host_call = call;
    for (auto& input : host_call.inputs) {
      auto host = host_like(input);
      host.copy_(input);  // returns when the copy is done, so the stream has produced what is sent
      input = host;
    }
    const bool in_place = call.op == Op::all_reduce || call.op == Op::broadcast;
    for (auto& output : host_call.outputs) {
      auto host = host_like(output);
      if (in_place) host.copy_(output);
      output = host;
    }
    auto hosts = host_call.outputs;
    return std::make_unique<StagedPending>(inner_->start(host_call), call.outputs, std::move(hosts));
  }

  void connect(const std::vector<MessagePair>& pairs) override { inner_->connect(pairs); }

  void set_timeout(double timeout_seconds) override { inner_->set_timeout(timeout_seconds); }

 private:
  std::unique_ptr<Transport> inner_;
};

}  // namespace

std::unique_ptr<Transport> make_staged_transport(std::unique_ptr<Transport> inner) {
  return std::make_unique<StagedTransport>(std::move(inner));
}

}  // namespace orthant::comm
