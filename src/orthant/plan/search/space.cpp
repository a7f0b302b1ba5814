#include "orthant/plan/search/space.h"

#include <array>

#include "orthant/schedule/named_schedules.h"

namespace orthant {
namespace {

constexpr std::int64_t kMostPasses = 1'000'000;
constexpr std::int64_t kMostMicrobatches = 1 << 20;

struct Sharding {
  int zero = 0;
  bool accumulate_sharded = false;
};

// Of an fsdp axis.
constexpr std::array<Sharding, 5> kShardings = {{{1, false}, {2, false}, {2, true}, {3, false}, {3, true}}};

}  // namespace

std::vector<std::int64_t> divisors(std::int64_t number) {
  std::vector<std::int64_t> small;
  std::vector<std::int64_t> large;
  for (std::int64_t d = 1; d * d <= number; ++d) {
    if (number % d != 0) continue;
    small.push_back(d);
    if (d * d != number) large.push_back(number / d);
  }
  small.insert(small.end(), large.rbegin(), large.rend());
  return small;
}

std::vector<TensorChoice> tensor_choices(int tp) {
  if (tp == 1) return {{}};
  return {{tp, false, false}, {tp, true, false}, {tp, true, true}};
}

std::vector<ScheduleChoice> schedule_choices(int pp, int most_stages) {
  if (pp == 1) return {{"1f1b", 1}};
  std::vector<ScheduleChoice> choices;
  for (const std::string& name : schedule_names()) {
    const int least = virtual_stages(name);
    const int most = name == "interleaved" ? most_stages / pp : least;
    for (int v = least; v <= most && v * pp <= most_stages; ++v) choices.push_back({name, v});
  }
  return choices;
}

std::vector<int> context_degrees(int ranks, std::int64_t sequence) {
  std::vector<int> degrees;
  for (const std::int64_t cp : divisors(ranks)) {
    if (cp == 1 || sequence / cp >= kLeastContextTokens) degrees.push_back(static_cast<int>(cp));
  }
  return degrees;
}

std::vector<ContextChoice> context_choices(int cp) {
  if (cp == 1) return {{}};
  return {{cp, ContextWay::ring}, {cp, ContextWay::all_to_all}, {cp, ContextWay::gather}};
}

std::vector<ExpertChoice> expert_choices(int stage_ranks, int tp, std::int64_t experts) {
  std::vector<ExpertChoice> choices = {{}};
  if (experts == 0) return choices;
  for (const std::int64_t ep : divisors(stage_ranks)) {
    if (ep > experts) break;
    for (const bool shared : {false, true}) {
      const bool is_first = ep == 1 && (shared || tp == 1);
      const bool is_same = shared && tp == 1;
      if (is_first || is_same || stage_ranks % (ep * (shared ? tp : 1)) != 0) continue;
      choices.push_back({static_cast<int>(ep), shared});
    }
  }
  return choices;
}

std::vector<DataChoice> data_choices(int replicas, int cp) {
  std::vector<DataChoice> choices = {{.dp = replicas}};
  for (const std::int64_t fsdp : divisors(replicas)) {
    if (fsdp == 1) continue;
    for (const bool over_context : {true, false}) {
      if (cp == 1 && !over_context) continue;
      for (const auto& [zero, sharded] : kShardings) {
        choices.push_back({.dp = static_cast<int>(replicas / fsdp),
                           .fsdp = static_cast<int>(fsdp),
                           .zero = zero,
                           .shard_over_context = over_context,
                           .accumulate_sharded = sharded});
      }
    }
  }
  return choices;
}

bool is_table_small(int pp, int virtual_stages, std::int64_t microbatches) {
  return microbatches <= kMostMicrobatches &&
         (pp == 1 || std::int64_t{pp} * virtual_stages * microbatches <= kMostPasses);
}

}  // namespace orthant
