#include "orthant/parallel/data/value_gathers.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>

#include "orthant/base/error.h"
#include "orthant/base/index.h"

namespace orthant {
ValueGathers::ValueGathers(const std::vector<std::unique_ptr<FlatParameters>>& buffers, const UnitBuffers& units,
                           const DataPolicy& policy, comm::Group group)
    : buffers_(buffers),
      units_(units),
      policy_(policy),
      group_(std::move(group)),
      holders_(buffers.size()),
      flights_(buffers.size()) {
  for (std::size_t u = 0; u < units.unit_groups.size(); ++u) {
    const auto id = to_index(units.unit_groups[u]);
    if (id >= last_member_.size()) last_member_.resize(id + 1, -1);
    if (!units.used[u].empty()) last_member_[id] = static_cast<int>(u);
  }
}

void ValueGathers::start(const std::vector<int>& buffers) {
  if (buffers.empty()) return;
  std::vector<at::Tensor> outputs;
  std::vector<at::Tensor> inputs;
  for (const int b : buffers) {
    outputs.push_back(buffers_[to_index(b)]->gather_output());
    inputs.push_back(buffers_[to_index(b)]->gather_input());
  }
  const auto flight = std::make_shared<Flight>(Flight{group_.all_gather(outputs, inputs)});
  for (const int b : buffers) flights_[to_index(b)] = flight;
}

void ValueGathers::wait(int buffer) {
  auto& flight = flights_[to_index(buffer)];
  if (!flight) return;
  if (!flight->arrived) flight->work.wait();
  flight->arrived = true;
  flight.reset();
}

void ValueGathers::gather(int unit) {
  if (!policy_.shards_parameters() || units_.used[to_index(unit)].empty()) return;
  waiting_.push_back(unit);
  if (unit != last_member_[to_index(units_.unit_groups[to_index(unit)])]) return;
  std::vector<int> needed;
  for (const int member : waiting_) {
    for (const int b : units_.used[to_index(member)]) {
      if (holders_[to_index(b)]++ > 0) continue;
      buffers_[to_index(b)]->attach_values();
      needed.push_back(b);
    }
  }
  waiting_.clear();
  start(needed);
}

void ValueGathers::free(int unit) {
  if (!policy_.shards_parameters()) return;
  for (const int b : units_.used[to_index(unit)]) {
    if (--holders_[to_index(b)] > 0) continue;
    wait(b);
    buffers_[to_index(b)]->release_values();
  }
}

void ValueGathers::need(int unit) {
  for (const int b : units_.used[to_index(unit)]) {
    if (!buffers_[to_index(b)]->has_values()) {
      throw InternalError(
          fmt::format("unit {} runs while buffer {} is a shard", unit, buffers_[to_index(b)]->layout().name));
    }
    wait(b);
  }
}

void ValueGathers::publish(Changed changed) {
  const auto is_meant = [&](const FlatParameters& buffer) {
    return changed == Changed::all || buffer.trainable() != (changed == Changed::frozen);
  };
  finish();
  const bool gathers = policy_.shards_state() && !policy_.shards_parameters();
  std::vector<std::vector<int>> calls(last_member_.size());
  for (std::size_t u = 0; u < units_.used.size(); ++u) {
    for (const int b : units_.used[u]) {
      auto& buffer = *buffers_[to_index(b)];
      const bool first_user = to_index(buffer.layout().users.front()) == u;
      if (!first_user || !is_meant(buffer)) continue;
      if (changed != Changed::trainable_copied) buffer.publish_owned();
      if (gathers) calls[to_index(units_.unit_groups[u])].push_back(b);
    }
  }
  for (const auto& call : calls) start(call);
}

void ValueGathers::finish() {
  for (std::size_t b = 0; b < flights_.size(); ++b) wait(static_cast<int>(b));
}

}  // namespace orthant
