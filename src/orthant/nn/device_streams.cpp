#include "orthant/nn/device_streams.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <bit>

#include "orthant/base/error.h"
#include "orthant/base/random.h"

namespace orthant::nn {
namespace {

constexpr std::int64_t kMostSites = std::int64_t{1} << 16;

}  // namespace

DeviceStreams::DeviceStreams(std::uint64_t seed, at::Device device)
    : seed_(seed),
      places_(at::zeros({kMostSites}, at::TensorOptions().dtype(at::kLong).device(device))),
      copies_(device) {}

std::int64_t DeviceStreams::stream(std::string_view site) const {
  return std::bit_cast<std::int64_t>(RandomStream(seed_, site, {static_cast<std::uint64_t>(step_)}).stream());
}

void DeviceStreams::begin_step(std::int64_t step) {
  step_ = step;
  if (sites_.empty()) return;
  const auto count = static_cast<std::int64_t>(sites_.size());
  const auto on_host = at::empty({count}, at::TensorOptions(at::kLong).pinned_memory(places_.is_cuda()));
  auto* streams = on_host.mutable_data_ptr<std::int64_t>();
  for (const auto& [site, place] : sites_) streams[place] = stream(site);
  copies_.bring(on_host, places_.narrow(0, 0, count));
}

at::Tensor DeviceStreams::of(std::string_view site) {
  const auto known = sites_.find(site);
  if (known != sites_.end()) return places_.select(0, known->second);
  const auto place = static_cast<std::int64_t>(sites_.size());
  if (place == kMostSites) throw InternalError(fmt::format("a step draws at more than {} dropout sites", kMostSites));
  sites_.emplace(site, place);
  auto at_place = places_.select(0, place);
  at_place.fill_(stream(site));
  return at_place;
}

}  // namespace orthant::nn
