#include "orthant/schedule/generators.h"

#include <fmt/format.h>

#include <algorithm>

#include "orthant/base/error.h"
#include "orthant/schedule/stage_chain.h"

namespace orthant {
namespace {

StageTable empty_table(std::string_view schedule, int stages, int microbatches) {
  if (stages < 1 || microbatches < 1) {
    throw ConfigError(
        fmt::format("a {} schedule of {} stages and {} microbatches was asked for", schedule, stages, microbatches),
        {.remedy = "set at least one stage and one microbatch"});
  }
  return {stages, microbatches, std::vector<std::vector<StageAction>>(static_cast<std::size_t>(stages))};
}

[[noreturn]] void refuse_blocked(const StageTable& table, const StageChain& chain,
                                 const std::vector<std::size_t>& next) {
  std::string waiting;
  for (std::size_t rank = 0; rank < next.size(); ++rank) {
    if (next[rank] == table.ranks[rank].size()) continue;
    const StageAction& action = table.ranks[rank][next[rank]];
    waiting += fmt::format("{}rank {} at {} for {}", waiting.empty() ? "" : ", ", rank, to_string(action),
                           to_string(chain.awaited(action)));
  }
  throw ConfigError("the ranks of this table wait for each other: " + waiting,
                    {.remedy = "order the actions so that every microbatch passes the stages as a chain"});
}

}  // namespace

StageTable one_stage(int microbatches) {
  return one_forward_one_backward(1, microbatches);
}

StageTable gpipe(int stages, int microbatches) {
  StageTable table = empty_table("gpipe", stages, microbatches);
  for (int s = 0; s < stages; ++s) {
    auto& actions = table.ranks[static_cast<std::size_t>(s)];
    for (int m = 0; m < microbatches; ++m) actions.push_back({s, StageKind::F, m});
    for (int m = 0; m < microbatches; ++m) actions.push_back({s, StageKind::BW, m});
  }
  return table;
}

StageTable one_forward_one_backward(int stages, int microbatches) {
  StageTable table = empty_table("1f1b", stages, microbatches);
  for (int s = 0; s < stages; ++s) {
    auto& actions = table.ranks[static_cast<std::size_t>(s)];
    int forwards = 0;
    for (int m = 0; m < microbatches; ++m) {
      for (; forwards < std::min(microbatches, m + stages - s); ++forwards) {
        actions.push_back({s, StageKind::F, forwards});
      }
      actions.push_back({s, StageKind::BW, m});
    }
  }
  return table;
}

StageTable forward_only(int stages, int microbatches) {
  StageTable table = empty_table("forward-only", stages, microbatches);
  for (int s = 0; s < stages; ++s) {
    for (int m = 0; m < microbatches; ++m) {
      table.ranks[static_cast<std::size_t>(s)].push_back({s, StageKind::F, m});
    }
  }
  return table;
}

StageTable on_one_rank(const StageTable& table) {
  StageTable merged{table.num_stages, table.num_microbatches, {{}}};
  StageChain chain(table.num_stages);
  std::vector<std::size_t> next(table.ranks.size(), 0);
  std::size_t left = 0;
  for (const auto& actions : table.ranks) left += actions.size();
  while (left > 0) {
    const std::size_t left_before = left;
    for (std::size_t rank = 0; rank < next.size(); ++rank) {
      if (next[rank] == table.ranks[rank].size()) continue;
      const StageAction& action = table.ranks[rank][next[rank]];
      if (!chain.ready(action)) continue;
      chain.finish(action);
      merged.ranks[0].push_back(action);
      ++next[rank];
      --left;
    }
    if (left == left_before) refuse_blocked(table, chain, next);
  }
  return merged;
}

}  // namespace orthant
