// What the search chooses among: plain lists in a fixed order, without a price. Whatever they hold, `train` accepts;
// the rules are those of its own refusals (docs/refusals.md).
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "orthant/graph/context.h"

namespace orthant {

// How a layer lies over tp. Sequence parallelism goes with loss parallelism here: what makes activations small leaves
// whole logits the largest of them.
struct TensorChoice {
  int tp = 1;
  bool sequence_parallel = false;
  bool regather = false;  // with sequence parallelism
  friend auto operator<=>(const TensorChoice&, const TensorChoice&) = default;
};

// How rows lie over cp; on one rank the way says nothing.
struct ContextChoice {
  int cp = 1;
  ContextWay way = ContextWay::ring;
  friend auto operator<=>(const ContextChoice&, const ContextChoice&) = default;
};

// How experts lie on the ranks of a stage; `expert_tp` as in TensorPolicy.
struct ExpertChoice {
  int ep = 1;
  std::optional<bool> expert_tp = {};
  friend auto operator<=>(const ExpertChoice&, const ExpertChoice&) = default;
};

// How a unit lies on ranks: all that its work for one microbatch depends on, besides rows and recomputation.
struct UnitChoice {
  TensorChoice tensor = {};
  ContextChoice context = {};
  ExpertChoice experts = {};
  friend auto operator<=>(const UnitChoice&, const UnitChoice&) = default;
};

struct ScheduleChoice {
  std::string_view name;  // one of schedule_names()
  int virtual_stages = 1;
  friend bool operator==(const ScheduleChoice&, const ScheduleChoice&) = default;
};

// How replicas share the state. zero 0 has no fsdp axis: its ranks would be replicas like those of dp.
struct DataChoice {
  int dp = 1;
  int fsdp = 1;
  int zero = 0;
  bool shard_over_context = true;   // with cp: shards span it, too
  bool accumulate_sharded = false;  // with zero 2 and 3 and several microbatches
  friend bool operator==(const DataChoice&, const DataChoice&) = default;
};

// Ascending.
std::vector<std::int64_t> divisors(std::int64_t number);

// For one degree: plain, and on several ranks with sequence parallelism, without and with regather.
std::vector<TensorChoice> tensor_choices(int tp);

// On `pp` pp coordinates, at most so many stages in all. One pp coordinate has no schedule to choose: 1f1b stands for
// all.
std::vector<ScheduleChoice> schedule_choices(int pp, int most_stages);

// Degrees of cp that divide `ranks` and leave each rank kLeastContextTokens of a row, 1 first. Fewer tokens win
// nothing: what attention exchanges is no longer hidden, and rows can be dealt to replicas instead.
inline constexpr std::int64_t kLeastContextTokens = 4096;
std::vector<int> context_degrees(int ranks, std::int64_t sequence);

// For one degree: every way.
std::vector<ContextChoice> context_choices(int cp);

// For `stage_ranks` ranks of a stage, of which tp share a layer: without ep first; degrees of ep up to the experts of a
// layer. Of models without experts, that alone.
std::vector<ExpertChoice> expert_choices(int stage_ranks, int tp, std::int64_t experts);

// For several microbatches; with one microbatch, choices that differ in accumulation alone are the same.
std::vector<DataChoice> data_choices(int replicas, int cp = 1);

// Tables beyond this are refused by make_schedule(), and microbatches by a run's configuration.
bool is_table_small(int pp, int virtual_stages, std::int64_t microbatches);

}  // namespace orthant
