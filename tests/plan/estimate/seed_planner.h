// The planner's side of seed 001's figures: bytes, volumes and times of its examples by our closed forms, and the plans
// we would choose. What the seed leaves open is set once: sequences of 2048 as in its examples, A100s of 80 GiB,
// Megatron's stack with whole messages between stages, a global batch of 512 rows where it searches.
#pragma once

#include <cstdint>
#include <vector>

#include "orthant/plan/estimate/inference_size.h"
#include "orthant/plan/estimate/unit_work.h"
#include "orthant/plan/search/search.h"
#include "plan/estimate/seed_functions.h"

namespace orthant::seed001 {

inline constexpr double kGigabyte = 1e9;
inline constexpr std::int64_t kSequence = 2048;

struct Rows {
  std::int64_t micro_batch = 1;
  std::int64_t microbatches = 1;
};

// Per axis: GB or seconds.
struct Volume {
  double tp = 0;
  double pp = 0;
  double dp = 0;
};

class Planner {
 public:
  Planner();

  const PlanModel& llama() const { return llama_; }  // 70B
  const Hardware& card() const { return card_; }
  const Stack& stack() const { return stack_; }

  // The best plan, or none.
  std::vector<Plan> choose(const PlanModel& model, int cards, Strategy strategy) const;

  // Of parameters, float32 gradients and the optimizer, for one parameter that a rank has; `shards` ranks share what
  // `zero` cuts.
  double state_bytes(int zero, int shards) const;
  double states_gb(double parameters, const Degrees& degrees, int zero) const;

  // The figures of Llama-70B. Parameters of a rank: the mean. Activations: of the stage with most in flight.
  // Worst rank: as `orthant train` would run it.
  UnitWork layer(const Degrees& degrees, const Rows& rows, bool sequence_parallel = false) const;
  double local_parameters(const Degrees& degrees) const;
  double activations_gb(const Degrees& degrees, const Rows& rows) const;
  double worst_rank_gb(const Degrees& degrees, const Rows& rows, int zero) const;

  // What a rank sends in a step, and how long the same takes with float32 gradients.
  Volume sent_gb(const Degrees& degrees, const Rows& rows, DType gradients, bool sequence_parallel = false) const;
  Volume exchange_seconds(const Degrees& degrees, const Rows& rows) const;

  // Of one card that would hold everything, over the cards' seconds together, at the same rows.
  double scaling_efficiency(const Degrees& degrees, int microbatches) const;

  // On pp=2,tp=4.
  InferenceSize serve(const PlanModel& model, std::int64_t batch, std::int64_t context) const;

 private:
  PlanModel llama_;
  Hardware card_;
  Stack stack_;
};

// All exchanges of a unit's forward and backward.
std::vector<PricedExchange> exchanges_of(const UnitWork& work);

}  // namespace orthant::seed001
