// Rows of experts beside their products, against plain formulas in float64. See device_case.h.
#include "ops/device_case.h"
#include "orthant/ops/activation/activation.h"
#include "orthant/ops/experts/expert_rows.h"

namespace orthant::nn::device_expert_rows_test {

using namespace device_case;

// Slots of tokens in some order, of which the last are dropped.
struct Routed {
  at::Tensor slots;   // [tokens x per_token]
  at::Tensor places;  // [tokens, per_token]
  std::int64_t held;
};

Routed random_routes(Random& random, std::int64_t tokens, std::int64_t per_token) {
  Routed routed;
  const std::int64_t all = tokens * per_token;
  routed.slots = at::randperm(all, on_card(at::kLong));
  routed.held = random.between(0, 1) == 0 ? all : random.between(0, all);
  routed.places = at::full({all}, -1, on_card(at::kLong));
  routed.places.index_copy_(0, routed.slots.narrow(0, 0, routed.held), at::arange(routed.held, on_card(at::kLong)));
  routed.places = routed.places.view({tokens, per_token});
  return routed;
}

TEST(DeviceExpertRows, AreLaidAndAddedUp) {
  Random random(51);
  for (int shape = 0; shape < kShapes; ++shape) {
    const auto type = random.dtype();
    const std::int64_t tokens = random.rows(), per_token = random.between(1, 5), width = 8 * random.between(1, 120);
    const auto what = fmt::format("{} tokens, {} each, {} channels, {}", tokens, per_token, width, c10::toString(type));
    const auto routed = random_routes(random, tokens, per_token);
    const auto x = values({tokens, width}, type);
    auto rows = values({tokens * per_token, width}, type);
    rows.narrow(0, routed.held, rows.size(0) - routed.held).fill_(std::numeric_limits<double>::quiet_NaN());
    ASSERT_TRUE(device::serves_expert_rows(x) && device::serves_expert_rows(rows)) << what;
    const auto made = twice(
        [&] {
          return std::vector<at::Tensor>{device::rows_of_tokens(x, routed.slots, per_token),
                                         device::sums_of_rows(rows, routed.places)};
        },
        what);
    EXPECT_TRUE(at::equal(made[0], x.index_select(0, at::div(routed.slots, per_token, "floor")))) << what;
    at::Tensor sums = at::zeros({tokens * per_token, width}, on_card(at::kDouble));
    const auto held_slots = routed.slots.narrow(0, 0, routed.held);
    sums.index_copy_(0, held_slots, wide(rows.narrow(0, 0, routed.held)));
    expect_near(made[1], sums.view({tokens, per_token, width}).sum(1), bound(type), what);
  }
}

TEST(DeviceExpertRows, AreActivatedAndWeighed) {
  Random random(52);
  for (int shape = 0; shape < kShapes; ++shape) {
    const auto type = random.dtype();
    const std::int64_t rows = random.rows(), width = 8 * random.between(1, 150);
    const auto what = fmt::format("{} rows of {}, {}", rows, width, c10::toString(type));
    const auto gates = values({rows, 2 * width}, type), gy = values({rows, width}, type);
    const auto weights = at::rand({rows, 1}, on_card(at::kFloat));
    const bool over = random.between(0, 1) == 0;
    ASSERT_TRUE(device::serves_expert_activation(gates, weights)) << what;
    const auto made = twice(
        [&] {
          const auto given = gy.clone();
          const auto again = over ? given : at::empty_like(given);
          const auto back = device::expert_activation_gradient(given, gates, weights, true, again);
          return std::vector<at::Tensor>{device::expert_activation(gates, weights), back.gates, back.weights, again};
        },
        what);
    EXPECT_TRUE(at::equal(made[0], made[3])) << what;
    const auto wide_gates = wide(gates), wide_weights = wide(weights), wide_gy = wide(gy);
    const auto active = plain_activate(ActivationKind::swiglu, wide_gates);
    const auto d_gates =
        plain_activation_gradient(ActivationKind::swiglu, wide_gates, wide_gy * wide_weights, false).d_x;
    expect_near(made[0], active * wide_weights, bound(type), what + ", forward");
    expect_near(made[1], d_gates, bound(type), what + ", gates");
    expect_near(made[2], (wide_gy * active).sum(1, /*keepdim=*/true), bound(type), what + ", weights");
    const auto alone = device::expert_activation_gradient(gy, gates, weights, false, {});
    EXPECT_TRUE(at::equal(alone.gates, made[1]) && !alone.weights.defined()) << what;
  }
}

TEST(DeviceExpertRows, LeaveOthersToTheFormulas) {
  EXPECT_FALSE(device::serves_expert_rows(values({4, 12}, at::kBFloat16)));
  EXPECT_FALSE(device::serves_expert_rows(values({4, 16}, at::kDouble)));
  EXPECT_FALSE(device::serves_expert_activation(values({4, 24}, at::kBFloat16), values({4, 1}, at::kFloat)));
  EXPECT_FALSE(device::serves_expert_activation(values({4, 32}, at::kBFloat16), values({4, 1}, at::kDouble)));
}

}  // namespace orthant::nn::device_expert_rows_test
