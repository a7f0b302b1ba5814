#include "orthant/comm/identity.h"

namespace orthant::comm {
namespace {

class Done : public Pending {
 public:
  void wait() override {}
  bool done() override { return true; }
};

class IdentityTransport : public Transport {
 public:
  explicit IdentityTransport(int size) : size_(size) {}

  std::unique_ptr<Pending> start(const Call& call) override {
    for (size_t i = 0; i < call.outputs.size() && i < call.inputs.size(); ++i) {
      fill(call.outputs[i].flatten(), call.inputs[i].flatten());
    }
    if (call.op == Op::receive) {
      for (const auto& output : call.outputs) output.zero_();
    }
    return std::make_unique<Done>();
  }

  void set_timeout(double /*timeout_seconds*/) override {}

 private:
  // Repeats the input, or its beginning, over the output; nothing to do when both are the same memory.
  void fill(const at::Tensor& output, const at::Tensor& input) const {
    if (size_ == 1 && output.data_ptr() == input.data_ptr()) return;
    const int64_t step = std::max<int64_t>(input.numel(), 1);
    for (int64_t begin = 0; begin < output.numel(); begin += step) {
      const int64_t count = std::min(output.numel() - begin, input.numel());
      if (count == 0) {
        output.zero_();
        return;
      }
      const auto part = output.narrow(0, begin, count);
      if (part.data_ptr() != input.data_ptr()) part.copy_(input.narrow(0, 0, count));
    }
  }

  int size_;
};

}  // namespace

std::unique_ptr<Transport> make_identity_transport(int size) {
  return std::make_unique<IdentityTransport>(size);
}

}  // namespace orthant::comm
