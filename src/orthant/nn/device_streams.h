// The random streams of a step's dropout sites on a device. A stream is a function of (seed, site, step): kernels read
// it at its site's place there, so that a step may be recorded once and played back for another step. Local.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "orthant/nn/staged_copy.h"

namespace orthant::nn {

class DeviceStreams {
 public:
  DeviceStreams(std::uint64_t seed, at::Device device);

  // From now on every place holds its site's stream of that step. Sites get their places when of() first asks.
  void begin_step(std::int64_t step);

  // An int64 scalar on the device. InternalError for more sites than there are places.
  at::Tensor of(std::string_view site);

 private:
  std::int64_t stream(std::string_view site) const;

  std::uint64_t seed_;
  std::int64_t step_ = 0;
  at::Tensor places_;                                       // int64 [kMostSites] on the device; never moves
  std::map<std::string, std::int64_t, std::less<>> sites_;  // by name: its place
  StagedCopy copies_;
};

}  // namespace orthant::nn
