#include "orthant/comm/cut_calls.h"

#include <ATen/ops/from_blob.h>
#include <fmt/format.h>

#include <utility>
#include <vector>

#include "orthant/base/error.h"

namespace orthant::comm {
namespace {

// The same memory, whoever owns it.
std::vector<at::Tensor> places_of(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> places;
  for (const at::Tensor& tensor : tensors) {
    places.push_back(at::for_blob(tensor.data_ptr(), tensor.sizes())
                         .strides(tensor.strides())
                         .options(tensor.options().requires_grad(false))
                         .target_device(tensor.device())
                         .make_tensor());
  }
  return places;
}

void check_device(const Call& call, at::Device device) {
  for (const auto* tensors : {&call.inputs, &call.outputs}) {
    for (const at::Tensor& tensor : *tensors) {
      if (tensor.device() == device) continue;
      throw ConfigError(
          fmt::format("{} while a step is recorded as CUDA graphs: its tensors lie on the host", describe(call)),
          {.remedy = "use train.cuda_graph=off"}, call.site);
    }
  }
}

// What every play does with a call.
struct CutCall {
  Group group;
  Call call;
  Work work;
};

class CutPending : public Pending {
 public:
  CutPending(Cut cut, std::shared_ptr<CutCall> call) : cut_(std::move(cut)), call_(std::move(call)) {}

  // While a step is recorded nothing travels, so no call is over: the program keeps its tensors until wait().
  bool done() override { return false; }

  void wait() override {
    cut_([call = call_] { call->work.wait(); });
  }

 private:
  Cut cut_;
  std::shared_ptr<CutCall> call_;
};

}  // namespace

std::unique_ptr<Pending> cut_at_call(const Cuts& cuts, const Group& group, const Call& call) {
  check_device(call, cuts.device);
  auto made = std::make_shared<CutCall>(CutCall{group, call, {}});
  made->call.inputs = places_of(call.inputs);
  made->call.outputs = places_of(call.outputs);
  cuts.cut([made] { made->work = made->group.start(made->call); });
  return std::make_unique<CutPending>(cuts.cut, std::move(made));
}

}  // namespace orthant::comm
