// What the search chooses among: plain lists in a fixed order, without a price. Whatever they hold, `train` accepts;
// the rules are those of its own refusals (docs/refusals.md).
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace orthant {

// How a layer lies over tp. Sequence parallelism goes with loss parallelism here: what makes activations small leaves
// whole logits the largest of them.
struct TensorChoice {
  int tp = 1;
  bool sequence_parallel = false;
  bool regather = false;  // with sequence parallelism
  friend bool operator==(const TensorChoice&, const TensorChoice&) = default;
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

// For several microbatches; with one microbatch, choices that differ in accumulation alone are the same.
std::vector<DataChoice> data_choices(int replicas);

// Tables beyond this are refused by make_schedule(), and microbatches by a run's configuration.
bool is_table_small(int pp, int virtual_stages, std::int64_t microbatches);

}  // namespace orthant
