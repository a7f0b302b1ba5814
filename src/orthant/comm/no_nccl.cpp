#include "orthant/base/error.h"
#include "orthant/comm/nccl.h"

namespace orthant::comm {

bool nccl_available() {
  return false;
}

std::unique_ptr<Transport> make_nccl_transport(std::shared_ptr<CallWatch>, Store, ChannelMembers, at::Device, double) {
  throw ConfigError("backend nccl was asked for, but this program was built against a libtorch without CUDA",
                    {.remedy = "build with make program PRESET=cuda, or use --backend gloo"});
}

}  // namespace orthant::comm
