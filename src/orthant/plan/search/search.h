// The search: every valid way to train a model on so many cards, priced by closed forms; the best are priced again by
// estimate(), which simulates the schedule that would run. Deterministic. See docs/planner.md.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "orthant/plan/estimate/plan.h"

namespace orthant {

// What is best. Among equals fewer bytes are sent, then less memory is taken, then comes first what is enumerated
// first.
enum class Strategy {
  memory,      // least memory of the fullest card, then the shortest step
  throughput,  // most tokens per second, that is, the shortest step
  latency,     // shortest way of one microbatch through all stages, forward and back, then the shortest step
};
std::string_view strategy_name(Strategy strategy);
Strategy parse_strategy(std::string_view text);  // ConfigError with the nearest name

struct SearchRequest {
  PlanModel model;
  Hardware hardware;
  int cards = 1;
  std::int64_t global_batch = 1;
  std::int64_t sequence = 1;
  Strategy strategy = Strategy::throughput;
  int top = 5;
  DType gradients = DType::float32;
  DType params = DType::float32;
  DType compute = DType::bfloat16;
};

// A priced configuration, for pictures of many.
struct PricedPoint {
  int pp = 1, dp = 1, fsdp = 1, cp = 1, tp = 1, ep = 1, virtual_stages = 1, zero = 0;
  std::int64_t micro_batch = 1;
  std::string_view schedule;  // one of schedule_names()
  PlanRecompute recompute = PlanRecompute::none;
  bool sequence_parallel = false;  // with loss parallelism
  bool regather = false;
  bool accumulate_sharded = false;
  ContextWay way = ContextWay::ring;  // with cp
  bool shard_over_context = true;     // likewise
  std::optional<bool> expert_tp = {};
  float memory_bytes = 0;  // of the worst pp coordinate
  float tokens_per_second_per_gpu = 0;
  bool fits = false;
};

struct Advice {
  std::string change;  // "recompute selective", "2 x the global batch"
  std::string effect;  // "+12% tokens/s", "fits"
};

struct SearchResult {
  std::vector<Plan> plans;                       // best first, all fit; none: nothing does
  std::map<std::string, std::int64_t> rejected;  // by reason; see Note [What the search counts] in search_engine.h
  std::int64_t evaluated = 0;                    // configurations whose memory and time were priced
  double seconds = 0;
  std::vector<PricedPoint> points;  // a sample of what was priced, the best and the Pareto front included
  std::vector<Advice> advice;       // what helps most, first; where nothing fits, what would
  std::string simple;               // where plain data parallelism is as good: said here
  RunLine run;                      // for the caller to fill in
};

// ConfigError for a request that no plan can meet by any rule: sizes below 1, a sequence that the model cannot read, a
// batch that no mesh divides, a model that exists on paper only.
SearchResult search(const SearchRequest& request);

std::string to_json(const SearchResult& result);
std::string search_text(const SearchResult& result, const SearchRequest& request);

}  // namespace orthant
