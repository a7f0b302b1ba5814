#include "orthant/runtime/lanes.h"

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <set>

#include "orthant/base/index.h"
#include "orthant/nn/device_kernels.h"

namespace orthant {
namespace {

constexpr int kMostLanes = nn::device::kMostSideBySide;

}  // namespace

std::vector<int> unit_lanes(const GraphSpec& graph, int most) {
  std::vector<int> lanes;
  std::vector<int> last;                 // per lane: its last unit
  std::vector<std::set<int>> ancestors;  // per unit
  for (int u = 0; u < static_cast<int>(graph.units.size()); ++u) {
    auto& before = ancestors.emplace_back();
    for (const auto& input : graph.units[to_index(u)].inputs) {
      const int producer = graph.producer(input);
      if (producer < 0) continue;
      before.insert(producer);
      before.insert(ancestors[to_index(producer)].begin(), ancestors[to_index(producer)].end());
    }
    const auto chain = std::ranges::find_if(last, [&](int unit) { return before.contains(unit); });
    auto lane = static_cast<int>(chain - last.begin());
    if (chain == last.end() && lane == most) lane = u % most;  // as one chain with what is there
    if (lane == static_cast<int>(last.size())) last.push_back(u);
    last[to_index(lane)] = u;
    lanes.push_back(lane);
  }
  // Gradients of a parameter's uses are added where both are known: that is told to no lane.
  for (int u = 0; u < static_cast<int>(graph.units.size()); ++u) {
    for (const auto& borrowed : graph.units[to_index(u)].borrowed) {
      if (lanes[to_index(graph.owner(borrowed))] != lanes[to_index(u)]) return std::vector<int>(lanes.size(), 0);
    }
  }
  return lanes;
}

Lanes::Lanes(const GraphSpec& graph, at::Device device) : device_(device), lanes_(unit_lanes(graph, kMostLanes)) {
  const c10::impl::VirtualGuardImpl guard(device.type());
  streams_.push_back(guard.getStream(device));
  const int count = lanes_.empty() ? 1 : 1 + *std::ranges::max_element(lanes_);
  for (int lane = 1; lane < count; ++lane) streams_.push_back(guard.getStreamFromGlobalPool(device));
}

void Lanes::wait(const c10::Stream& waiting, const c10::Stream& for_this) {
  c10::Event event(for_this.device_type());
  event.record(for_this);
  event.block(waiting);
}

void Lanes::begin() {
  streams_.front() = c10::impl::VirtualGuardImpl(device_.type()).getStream(device_);
  for (std::size_t lane = 1; lane < streams_.size(); ++lane) wait(streams_[lane], streams_.front());
}

void Lanes::end() const {
  for (std::size_t lane = 1; lane < streams_.size(); ++lane) wait(streams_.front(), streams_[lane]);
}

void Lanes::hand_over(const at::Tensor& tensor, int from, int to) const {
  if (lane(from) == lane(to) || !tensor.defined()) return;
  wait(of(to), of(from));
  tensor.record_stream(of(to));
}

}  // namespace orthant
