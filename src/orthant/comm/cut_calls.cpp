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
struct Played {
  Group group;
  Call call;
  Work work;
};

class CutPending : public Pending {
 public:
  CutPending(Cut cut, std::shared_ptr<Played> played) : cut_(std::move(cut)), played_(std::move(played)) {}

  // Never known while nothing runs: then a program keeps what travels until it waits.
  bool done() override { return false; }

  void wait() override {
    cut_([played = played_] { played->work.wait(); });
  }

 private:
  Cut cut_;
  std::shared_ptr<Played> played_;
};

}  // namespace

std::unique_ptr<Pending> cut_at_call(const Cuts& cuts, const Group& group, const Call& call) {
  check_device(call, cuts.device);
  auto played = std::make_shared<Played>(Played{group, call, {}});
  played->call.inputs = places_of(call.inputs);
  played->call.outputs = places_of(call.outputs);
  cuts.cut([played] { played->work = played->group.start(played->call); });
  return std::make_unique<CutPending>(cuts.cut, std::move(played));
}

}  // namespace orthant::comm
