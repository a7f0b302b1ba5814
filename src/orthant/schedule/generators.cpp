#include "orthant/schedule/generators.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "orthant/base/error.h"

namespace orthant {
namespace {

using Actions = std::vector<StageAction>;

// `stages` on each of `pp_degree` pp coordinates.
StageTable empty_table(std::string_view schedule, int pp_degree, int stages, int microbatches) {
  if (pp_degree < 1 || stages < 1 || microbatches < 1) {
    throw ConfigError(
        fmt::format("a {} schedule of {} stages and {} microbatches was asked for", schedule,
                    std::min(pp_degree, stages) < 1 ? std::min(pp_degree, stages) : pp_degree * stages, microbatches),
        {.remedy = "set at least one stage and one microbatch"});
  }
  return {pp_degree * stages, microbatches, std::vector<Actions>(static_cast<std::size_t>(pp_degree))};
}

void add_forwards(Actions& actions, int stage, int begin, int end) {
  for (int m = begin; m < end; ++m) actions.push_back({stage, StageKind::F, m});
}

[[noreturn]] void refuse_blocked(const StageTable& table, const StageProgress& progress,
                                 const std::vector<std::size_t>& next) {
  std::string waiting;
  for (std::size_t pp_coordinate = 0; pp_coordinate < next.size(); ++pp_coordinate) {
    if (next[pp_coordinate] == table.actions[pp_coordinate].size()) continue;
    const StageAction& action = table.actions[pp_coordinate][next[pp_coordinate]];
    waiting += fmt::format("{}pp {} at {} for {}", waiting.empty() ? "" : ", ", pp_coordinate, to_string(action),
                           to_string(progress.awaited(action)));
  }
  throw ConfigError("the pp coordinates of this table wait for each other: " + waiting,
                    {.remedy = "order the actions so that every microbatch passes the stages as a chain"});
}

// The actions of one pp coordinate of zbv: counts how far each of its two stages is, so that phases only say what comes
// next.
class VeeActions {
 public:
  VeeActions(int pp_degree, int pp_coordinate)
      : pp_degree_(pp_degree),
        pp_coordinate_(pp_coordinate),
        stages_{pp_coordinate, 2 * pp_degree - 1 - pp_coordinate} {}

  // For at least 2p - 1 microbatches.
  Actions run(int microbatches) {
    // Forwards until the down-going stage is one ahead of what comes back, then both in turns, then the first
    // backwards of the up-going one.
    for (int i = 0; i < 2 * (pp_degree_ - pp_coordinate_) - 1; ++i) add(kDown, {StageKind::F});
    for (int i = 0; i < pp_coordinate_; ++i) {
      add(kUp, {StageKind::F});
      add(kDown, {StageKind::F});
    }
    for (int i = 0; i < pp_degree_ - pp_coordinate_; ++i) add(kUp, {StageKind::F, StageKind::B, StageKind::W});
    while (count(kUp, StageKind::F) < microbatches) {
      if (count(kDown, StageKind::F) < microbatches) add(kDown, {StageKind::F});
      add(kDown, {StageKind::B, StageKind::W});
      add(kUp, {StageKind::F, StageKind::B, StageKind::W});
    }
    // Input gradients first, since others wait for them; weight gradients fill the rest.
    for (int i = 0; i < pp_coordinate_; ++i) {
      add(kDown, {StageKind::B});
      add(kUp, {StageKind::B});
    }
    for (int i = 0; i < pp_degree_ - pp_coordinate_; ++i) add(kDown, {StageKind::B, StageKind::W});
    while (count(kUp, StageKind::W) < microbatches) add(kUp, {StageKind::W});
    while (count(kDown, StageKind::W) < microbatches) add(kDown, {StageKind::W});
    return std::move(actions_);
  }

 private:
  static constexpr std::size_t kDown = 0;  // the stage that microbatches pass on their way to the last pp coordinate
  static constexpr std::size_t kUp = 1;    // and on their way back

  int& count(std::size_t side, StageKind kind) { return counts_[side][static_cast<std::size_t>(kind)]; }

  void add(std::size_t side, std::initializer_list<StageKind> kinds) {
    for (const StageKind kind : kinds) actions_.push_back({stages_[side], kind, count(side, kind)++});
  }

  int pp_degree_;
  int pp_coordinate_;
  std::array<int, 2> stages_;
  std::array<std::array<int, 4>, 2> counts_ = {};  // per side and kind
  Actions actions_;
};

}  // namespace

StageTable one_stage(int microbatches) {
  return one_forward_one_backward(1, microbatches);
}

StageTable gpipe(int stages, int microbatches) {
  StageTable table = empty_table("gpipe", stages, 1, microbatches);
  for (int s = 0; s < stages; ++s) {
    auto& actions = table.actions[static_cast<std::size_t>(s)];
    add_forwards(actions, s, 0, microbatches);
    for (int m = 0; m < microbatches; ++m) actions.push_back({s, StageKind::BW, m});
  }
  return table;
}

StageTable one_forward_one_backward(int stages, int microbatches) {
  return one_forward_one_backward(chain_edges(stages), microbatches);
}

StageTable one_forward_one_backward(const StageEdges& edges, int microbatches) {
  StageTable table = empty_table("1f1b", edges.num_stages(), 1, microbatches);
  const std::vector<int> depths = edges.depths();
  for (int s = 0; s < edges.num_stages(); ++s) {
    auto& actions = table.actions[static_cast<std::size_t>(s)];
    int forwards = 0;
    for (int m = 0; m < microbatches; ++m) {
      const int ahead = std::min(microbatches, m + depths[static_cast<std::size_t>(s)] + 1);
      add_forwards(actions, s, forwards, ahead);
      forwards = ahead;
      actions.push_back({s, StageKind::BW, m});
    }
  }
  return table;
}

StageTable zbh1(int stages, int microbatches) {
  return zbh1(chain_edges(stages), microbatches);
}

StageTable zbh1(const StageEdges& edges, int microbatches) {
  StageTable table = empty_table("zbh1", edges.num_stages(), 1, microbatches);
  const StageTable joined = one_forward_one_backward(edges, microbatches);
  const std::vector<int> depths = edges.depths();
  const int deepest = *std::ranges::max_element(depths);
  for (int s = 0; s < table.num_stages; ++s) {
    const int delay = deepest - depths[static_cast<std::size_t>(s)];
    auto& actions = table.actions[static_cast<std::size_t>(s)];
    for (const StageAction& action : joined.actions[static_cast<std::size_t>(s)]) {
      if (action.kind == StageKind::F) {
        actions.push_back(action);
        continue;
      }
      actions.push_back({s, StageKind::B, action.microbatch});
      if (action.microbatch >= delay) actions.push_back({s, StageKind::W, action.microbatch - delay});
    }
    for (int m = std::max(0, microbatches - delay); m < microbatches; ++m) actions.push_back({s, StageKind::W, m});
  }
  return table;
}

StageTable interleaved(int pp_degree, int virtual_stages, int microbatches) {
  StageTable table = empty_table("interleaved", pp_degree, virtual_stages, microbatches);
  const int groups = (microbatches + pp_degree - 1) / pp_degree;
  const int passes = groups * pp_degree * virtual_stages;  // through the pp coordinate, of full groups
  // The n-th pass of every pp coordinate: which of its stages, and which microbatch.
  const auto microbatch = [&](int n) { return n / (pp_degree * virtual_stages) * pp_degree + n % pp_degree; };
  const auto turn = [&](int n) { return n / pp_degree % virtual_stages; };
  for (int i = 0; i < pp_degree; ++i) {
    auto& actions = table.actions[static_cast<std::size_t>(i)];
    // What lies past the last microbatch only fills its group and is left out.
    const auto add = [&](int stage, StageKind kind, int m) {
      if (m < microbatches) actions.push_back({stage, kind, m});
    };
    int forwards = 0;
    for (int backwards = 0; backwards < passes; ++backwards) {
      const int ahead = std::min(passes, backwards + (virtual_stages - 1) * pp_degree + 2 * (pp_degree - 1 - i) + 1);
      for (; forwards < ahead; ++forwards) add(turn(forwards) * pp_degree + i, StageKind::F, microbatch(forwards));
      add((virtual_stages - 1 - turn(backwards)) * pp_degree + i, StageKind::BW, microbatch(backwards));
    }
  }
  return table;
}

StageTable zbv(int pp_degree, int microbatches) {
  StageTable table = empty_table("zbv", pp_degree, 2, microbatches);
  for (int i = 0; i < pp_degree; ++i) {
    auto& actions = table.actions[static_cast<std::size_t>(i)];
    actions = VeeActions(pp_degree, i).run(std::max(microbatches, 2 * pp_degree - 1));
    std::erase_if(actions, [&](const StageAction& action) { return action.microbatch >= microbatches; });
  }
  return table;
}

StageTable forward_only(int stages, int microbatches) {
  StageTable table = empty_table("forward-only", stages, 1, microbatches);
  for (int s = 0; s < stages; ++s) add_forwards(table.actions[static_cast<std::size_t>(s)], s, 0, microbatches);
  return table;
}

StageTable on_one_pp_coordinate(const StageTable& table) {
  return on_one_pp_coordinate(table, chain_edges(table.num_stages));
}

StageTable on_one_pp_coordinate(const StageTable& table, const StageEdges& edges) {
  StageTable merged{table.num_stages, table.num_microbatches, {{}}};
  StageProgress progress(edges);
  std::vector<std::size_t> next(table.actions.size(), 0);
  std::size_t left = 0;
  for (const auto& actions : table.actions) left += actions.size();
  while (left > 0) {
    const std::size_t left_before = left;
    for (std::size_t pp_coordinate = 0; pp_coordinate < next.size(); ++pp_coordinate) {
      if (next[pp_coordinate] == table.actions[pp_coordinate].size()) continue;
      const StageAction& action = table.actions[pp_coordinate][next[pp_coordinate]];
      if (!progress.ready(action)) continue;
      progress.finish(action);
      merged.actions[0].push_back(action);
      ++next[pp_coordinate];
      --left;
    }
    if (left == left_before) refuse_blocked(table, progress, next);
  }
  return merged;
}

}  // namespace orthant
