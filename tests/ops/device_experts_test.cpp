// Products of experts in one start, and gradients of their weights, against each expert's own product in float64: loads
// at random, experts without rows, one with all of them, rows behind the last expert's. See device_case.h.
#include "ops/device_case.h"
#include "orthant/ops/experts/expert_products.h"

namespace orthant::nn::device_experts_test {

using namespace device_case;
using device::GroupedBy;

struct Shape {
  std::int64_t experts, out, in, rows;
  int senders;
  std::vector<std::int64_t> counts;  // of each expert
  GroupedBy by;

  std::string text() const {
    return fmt::format("experts of {} x {}, rows {} of {}, {} senders, way {}", out, in, fmt::join(counts, " "), rows,
                       senders, static_cast<int>(by));
  }
  // Spread over senders in some way.
  HeldRows held(Random& random) const {
    at::Tensor by_sender = at::zeros({senders, experts}, at::kLong);
    auto* const at = by_sender.mutable_data_ptr<std::int64_t>();
    for (std::int64_t e = 0; e < experts; ++e) {
      std::int64_t left = counts[static_cast<std::size_t>(e)];
      for (int s = 0; s + 1 < senders; ++s) {
        const std::int64_t part = random.between(0, left);
        at[s * experts + e] = part;
        left -= part;
      }
      at[(senders - 1) * experts + e] = left;
    }
    return {by_sender.view({-1}).to(test::card()), senders};
  }
};

// ATen's grouped product is a device's alone.
const std::vector<GroupedBy>& ways() {
  static const auto all = test::card().is_cpu()
                              ? std::vector{GroupedBy::kernel, GroupedBy::single_warps}
                              : std::vector{GroupedBy::kernel, GroupedBy::single_warps, GroupedBy::library};
  return all;
}

std::vector<std::int64_t> random_counts(Random& random, std::int64_t experts, std::int64_t most) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(experts), 0);
  const std::int64_t kind = random.between(0, 4);
  if (kind == 0) {  // one has all
    counts[static_cast<std::size_t>(random.between(0, experts - 1))] = random.between(1, most);
    return counts;
  }
  for (auto& count : counts) count = random.between(0, 2) == 0 ? 0 : random.between(1, most / experts + 1);
  return counts;
}

// Way by way, so that each has some of few shapes.
Shape random_shape(Random& random, int number) {
  Shape shape{.experts = random.between(1, 6),
              .out = 8 * random.between(1, 40),
              .in = 8 * random.between(1, 40),
              .rows = 0,
              .senders = static_cast<int>(random.between(1, 3)),
              .counts = {},
              .by = ways()[static_cast<std::size_t>(number) % ways().size()]};
  shape.counts = random_counts(random, shape.experts, random.between(0, 2) == 0 ? 20 : 400);
  for (const auto count : shape.counts) shape.rows += count;
  shape.rows += random.between(0, 1) * random.between(0, 100);
  return shape;
}

// The library has a grouped product of bfloat16 alone.
at::ScalarType narrow_type(Random& random, GroupedBy by) {
  return by == GroupedBy::library || random.between(0, 1) == 0 ? at::kBFloat16 : at::kHalf;
}

// Behind the last expert's rows lies what is not a number.
at::Tensor rows_of(const Shape& shape, std::int64_t width, at::ScalarType type) {
  at::Tensor rows = values({shape.rows, width}, type);
  std::int64_t held = 0;
  for (const auto count : shape.counts) held += count;
  rows.narrow(0, held, shape.rows - held).fill_(std::numeric_limits<double>::quiet_NaN());
  return rows;
}

template <class Body>
void for_experts(const Shape& shape, const Body& body) {
  std::int64_t begin = 0;
  for (std::int64_t e = 0; e < shape.experts; ++e) {
    const std::int64_t count = shape.counts[static_cast<std::size_t>(e)];
    body(e, begin, count);
    begin += count;
  }
}

// Rows of experts alone.
void expect_rows(const Shape& shape, const at::Tensor& found, const at::Tensor& rows, const at::Tensor& weights,
                 const std::string& what) {
  for_experts(shape, [&](std::int64_t e, std::int64_t begin, std::int64_t count) {
    const at::Tensor wanted = at::matmul(wide(rows.narrow(0, begin, count)), wide(weights[e]));
    expect_near(found.narrow(0, begin, count), wanted, bound(rows.scalar_type()), what);
  });
}

at::Tensor held_part(const Shape& shape, const at::Tensor& rows) {
  std::int64_t held = 0;
  for (const auto count : shape.counts) held += count;
  return rows.narrow(0, 0, held);
}

TEST(DeviceExperts, MultiplyRowsByTheirWeights) {
  Random random(41);
  for (int number = 0; number < kShapes; ++number) {
    const Shape shape = random_shape(random, number);
    const auto type = narrow_type(random, shape.by);
    const auto held = shape.held(random);
    const auto weight = values({shape.experts * shape.out, shape.in}, type);
    const auto weights = weight.view({shape.experts, shape.out, shape.in});
    const auto x = rows_of(shape, shape.in, type), gy = rows_of(shape, shape.out, type);
    ASSERT_TRUE(device::serves_experts(x, held, weight)) << shape.text();
    const auto made = twice(
        [&] {
          return std::vector<at::Tensor>{
              held_part(shape, device::expert_products(x, held, weight, shape.by)),
              held_part(shape, device::expert_products_back(gy, held, weight, shape.by)),
          };
        },
        shape.text());
    expect_rows(shape, made[0], x, weights.transpose(1, 2), shape.text() + ", forward");
    expect_rows(shape, made[1], gy, weights, shape.text() + ", back");
  }
}

TEST(DeviceExperts, AddGradientsOfTheirWeights) {
  Random random(42);
  for (int number = 0; number < kShapes; ++number) {
    const Shape shape = random_shape(random, number);
    const auto type = narrow_type(random, shape.by);
    const auto held = shape.held(random);
    const auto x = rows_of(shape, shape.in, type), gy = rows_of(shape, shape.out, type);
    const bool fresh = random.between(0, 1) == 0;
    const at::Tensor before = values({shape.experts * shape.out, shape.in}, at::kFloat);
    const auto made = twice(
        [&] {
          Parameter weight;
          weight.gradient = fresh ? at::full_like(before, std::numeric_limits<float>::quiet_NaN()) : before.clone();
          weight.fresh = fresh;
          EXPECT_TRUE(device::serves_expert_gradients(weight, gy, x, held)) << shape.text();
          device::add_expert_gradients(weight, gy, x, held, shape.by == GroupedBy::single_warps);
          EXPECT_FALSE(weight.fresh);
          return std::vector<at::Tensor>{weight.gradient};
        },
        shape.text());
    const at::Tensor found = made[0].view({shape.experts, shape.out, shape.in});
    for_experts(shape, [&](std::int64_t e, std::int64_t begin, std::int64_t count) {
      at::Tensor wanted = at::matmul(wide(gy.narrow(0, begin, count)).t(), wide(x.narrow(0, begin, count)));
      if (!fresh) wanted = wanted + wide(before.view_as(found)[e]);
      expect_near(found[e], wanted, 2e-5, shape.text());
    });
  }
}

// More columns than eight blocks make side by side.
TEST(DeviceExperts, MultiplyWideWeights) {
  Random random(43);
  for (const auto by : ways()) {
    const Shape shape{.experts = 2, .out = 2400, .in = 64, .rows = 140, .senders = 1, .counts = {9, 131}, .by = by};
    const auto held = shape.held(random);
    const auto weight = values({2 * shape.out, shape.in}, at::kBFloat16);
    const auto x = rows_of(shape, shape.in, at::kBFloat16);
    const auto found = device::expert_products(x, held, weight, by);
    expect_rows(shape, found, x, weight.view({2, shape.out, shape.in}).transpose(1, 2), shape.text());
  }
}

TEST(DeviceExperts, LeaveOthersToTheLibrary) {
  EXPECT_TRUE(device::serves_experts(at::kBFloat16, 8, 64, 32));
  EXPECT_FALSE(device::serves_experts(at::kFloat, 8, 64, 32));
  EXPECT_FALSE(device::serves_experts(at::kBFloat16, 8, 60, 32));
  EXPECT_FALSE(device::serves_experts(at::kBFloat16, 8, 64, 36));
  EXPECT_FALSE(device::serves_experts(at::kBFloat16, 2000, 64, 32));
}

// What the library makes of experts that no kernel serves has the same numbers.
TEST(DeviceExperts, PlainProductsAreTheSame) {
  Random random(44);
  const Shape shape{.experts = 3, .out = 48, .in = 24, .rows = 40, .senders = 2, .counts = {7, 0, 30}, .by = {}};
  const auto held = shape.held(random);
  const auto weight = values({3 * shape.out, shape.in}, at::kFloat);
  const auto x = rows_of(shape, shape.in, at::kFloat);
  const auto found = plain::expert_products(x, held, weight);
  expect_rows(shape, found, x, weight.view({3, shape.out, shape.in}).transpose(1, 2), shape.text());
}

}  // namespace orthant::nn::device_experts_test
