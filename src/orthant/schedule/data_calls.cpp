#include "orthant/schedule/data_calls.h"
#include "orthant/base/index.h"

#include <map>
#include <utility>

namespace orthant {
namespace {

std::vector<DataCall> bucket_calls(const UnitBuffers& buffers, const DataSettings& settings,
                                   const std::vector<Action>& actions) {
  std::vector<DataCall> calls;
  DataCall bucket;
  const auto close = [&](std::size_t position) {
    bucket.position = position;
    if (!bucket.buffers.empty()) calls.push_back(std::exchange(bucket, {}));
  };
  for (std::size_t i = 0; i < actions.size(); ++i) {
    if (actions[i].kind != ActionKind::reduce || actions[i].microbatch >= 0) continue;
    const auto& held = buffers.held[to_index(actions[i].unit)];
    bucket.buffers.insert(bucket.buffers.end(), held.begin(), held.end());
    const auto bytes = buffers.elements(bucket.buffers) * bytes_of(settings.reduce);
    if (bytes >= settings.policy.bucket_bytes) close(i);
  }
  close(actions.size());
  return calls;
}

std::vector<DataCall> group_calls(const UnitBuffers& buffers, const std::vector<Action>& actions) {
  std::map<int, int> holders;  // group -> units that are reduced
  for (std::size_t u = 0; u < buffers.held.size(); ++u) {
    if (!buffers.held[u].empty()) ++holders[buffers.unit_groups[u]];
  }
  struct Waiting {
    int units = 0;
    std::vector<int> buffers = {};
  };
  std::map<std::pair<int, int>, Waiting> waiting;  // by group and microbatch
  std::vector<DataCall> calls;
  for (std::size_t i = 0; i < actions.size(); ++i) {
    const Action& action = actions[i];
    if (action.kind != ActionKind::reduce) continue;
    const auto& held = buffers.held[to_index(action.unit)];
    if (held.empty()) continue;
    const int group = buffers.unit_groups[to_index(action.unit)];
    Waiting& members = waiting[{group, action.microbatch}];
    members.buffers.insert(members.buffers.end(), held.begin(), held.end());
    if (++members.units < holders[group]) continue;
    calls.push_back({.position = i, .microbatch = action.microbatch, .buffers = std::move(members.buffers)});
    waiting.erase({group, action.microbatch});
  }
  return calls;
}

}  // namespace

std::vector<DataCall> gather_calls(const UnitBuffers& buffers, const std::vector<Action>& actions) {
  std::vector<int> holders(buffers.all.size(), 0);
  std::vector<DataCall> calls;
  DataCall call;
  for (std::size_t i = 0; i < actions.size(); ++i) {
    const Action& action = actions[i];
    if (action.kind == ActionKind::free) {
      for (const int b : buffers.used[to_index(action.unit)]) --holders[to_index(b)];
    }
    if (action.kind != ActionKind::gather) continue;
    for (const int b : buffers.used[to_index(action.unit)]) {
      if (holders[to_index(b)]++ == 0) call.buffers.push_back(b);
    }
    const bool goes_on =
        i + 1 < actions.size() && actions[i + 1].kind == ActionKind::gather &&
        buffers.unit_groups[to_index(actions[i + 1].unit)] == buffers.unit_groups[to_index(action.unit)];
    if (goes_on) continue;
    call.position = i;
    if (!call.buffers.empty()) calls.push_back(std::exchange(call, {}));
  }
  return calls;
}

std::vector<DataCall> gradient_calls(const UnitBuffers& buffers, const DataSettings& settings,
                                     const std::vector<Action>& actions) {
  return settings.policy.shards_gradients() ? group_calls(buffers, actions) : bucket_calls(buffers, settings, actions);
}

}  // namespace orthant
