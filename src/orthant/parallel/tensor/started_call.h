// A call of comm under way, as operations wait for it.
#pragma once

#include <memory>
#include <utility>

#include "orthant/comm/group.h"
#include "orthant/nn/tensor_axis.h"

namespace orthant {

class StartedCall : public nn::Exchange {
 public:
  explicit StartedCall(comm::Work work) : work_(std::move(work)) {}
  void wait() override { work_.wait(); }

 private:
  comm::Work work_;
};

inline std::unique_ptr<nn::Exchange> started(comm::Work work) {
  return std::make_unique<StartedCall>(std::move(work));
}

}  // namespace orthant
