// The optimizer's kernels on a CUDA device against the plain formulas in float64: random numbers of segments, ragged
// and unaligned ones, all dtypes. Copies and norms lie in memory that held NaN before, what lies beside a segment stays
// as it is, and a second run has the same bits.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "ops/card.h"
#include "orthant/train/optimizer.h"
#include "orthant/train/optimizer_kernels.h"
#include "runtime/toy_graph.h"

namespace orthant::optimizer_device_test {

using test::on_card;

const int kDraws = test::num_shapes(200, 12);
constexpr double kRate = 0.05;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

at::Tensor number(double value) {
  return at::full({}, value, on_card(at::kDouble));
}

at::Tensor yes_or_no(bool value) {
  return at::full({}, value, on_card(at::kBool));
}

// A flat range inside of a larger buffer.
struct Placed {
  at::Tensor buffer;
  std::int64_t first = 0;
  std::int64_t count = 0;
  at::Tensor view() const { return buffer.narrow(0, first, count); }
};

struct Drawn {
  std::mt19937_64 engine;
  explicit Drawn(std::uint64_t seed) : engine(seed) { at::manual_seed(seed); }
  std::int64_t between(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(engine);
  }
  bool chance(int percent) { return between(1, 100) <= percent; }
  std::int64_t size() {
    const std::int64_t kinds[] = {1, between(1, 40), between(1, 20000), 8192 * between(1, 3), between(1, 400000)};
    return kinds[between(0, 4)];
  }
};

// One problem: what an update reads and writes, and the same in float64.
struct Case {
  OptimizerOptions options;
  std::vector<UpdatedSegment> segments;
  std::vector<CountedSegment> counted;
  std::vector<Placed> placed;  // all memory
  std::vector<at::Tensor> before;
  double norm = 1;
  double loss_scale = 0;  // 0: none

  explicit Case(int number) {
    Drawn drawn(static_cast<std::uint64_t>(number));
    const at::ScalarType types[] = {at::kFloat, at::kFloat, at::kBFloat16, at::kHalf};
    const auto gradient_type = types[drawn.between(0, 3)];
    const auto kind = drawn.between(0, 3);  // whole, with a bfloat16 copy, with a float16 one, in halves
    options.kind = drawn.chance(60) ? "adamw" : "sgd";
    options.momentum = options.kind == "sgd" && drawn.chance(60) ? 0.9 : 0;
    options.clip = drawn.chance(60) ? 0.7 : 0;
    if (drawn.chance(40)) loss_scale = 64;
    norm = drawn.chance(50) ? 3.5 : 0.2;
    const auto place = [&](std::int64_t count, std::int64_t first, const at::Tensor& values) {
      Placed placed_here{at::full({first + count + 9}, 77, values.options()), first, count};
      placed_here.view().copy_(values);
      placed.push_back(placed_here);
      return placed_here.view();
    };
    const auto num_segments = drawn.between(1, 5);
    for (std::int64_t s = 0; s < num_segments; ++s) {
      const auto count = drawn.size();
      const auto first = drawn.chance(60) ? 32 * drawn.between(0, 2) : drawn.between(1, 7);
      const auto random = [&] { return at::randn({count}, on_card(at::kFloat)); };
      UpdatedSegment segment;
      segment.weight_decay = s % 2 == 0 ? 0.1 : 0;
      segment.gradient = place(count, first, random().to(gradient_type));
      const auto parameters = random();
      if (kind == 3) {
        const auto upper = place(count, first, at::zeros({count}, on_card(at::kBFloat16)));
        segment.parameters = {upper, place(count, first, at::zeros({count}, on_card(at::kShort)))};
        segment.parameters.set_values(parameters);
      } else {
        segment.parameters = MasterValues(place(count, first, parameters));
      }
      if (kind == 1 || kind == 2) {
        segment.copy = place(count, first, at::full({count}, kNan, on_card(kind == 1 ? at::kBFloat16 : at::kHalf)));
      }
      for (int i = 0; i < num_states(options); ++i) {
        segment.states.push_back(place(count, first, i == 0 ? random() : random().square().add(0.1)));
      }
      counted.push_back({segment.gradient, drawn.between(0, 3)});
      segments.push_back(std::move(segment));
    }
    for (const auto& one : placed) before.push_back(one.buffer.clone());
  }

  void restore() const {
    for (std::size_t i = 0; i < placed.size(); ++i) placed[i].buffer.copy_(before[i]);
  }
  std::vector<at::Tensor> contents() const {
    std::vector<at::Tensor> all;
    for (const auto& one : placed) all.push_back(one.buffer.clone());
    return all;
  }
};

// By the formulas as they are printed, in float64.
struct Expected {
  at::Tensor parameters;
  std::vector<at::Tensor> states;
};

Expected by_formula(const Case& one, const UpdatedSegment& segment, double updates) {
  const auto& o = one.options;
  double factor = o.clip > 0 && one.norm > o.clip ? o.clip / one.norm : 1;
  if (one.loss_scale > 0) factor /= one.loss_scale;
  auto g = segment.gradient.to(at::kDouble) * factor;
  auto p = segment.parameters.values().to(at::kDouble);
  if (o.kind == "sgd") {
    g = g + segment.weight_decay * p;
    if (segment.states.empty()) return {p - kRate * g, {}};
    const auto m = o.momentum * segment.states[0].to(at::kDouble) + g;
    return {p - kRate * m, {m}};
  }
  p = p - kRate * segment.weight_decay * p;
  const auto m = o.beta1 * segment.states[0].to(at::kDouble) + (1 - o.beta1) * g;
  const auto v = o.beta2 * segment.states[1].to(at::kDouble) + (1 - o.beta2) * g * g;
  const auto denominator = (v / (1 - std::pow(o.beta2, updates))).sqrt() + o.eps;
  return {p - kRate * m / (1 - std::pow(o.beta1, updates)) / denominator, {m, v}};
}

double worst(const at::Tensor& found, const at::Tensor& expected) {
  const auto difference = (found.to(at::kDouble) - expected).abs() / expected.abs().clamp_min(1);
  return difference.max().item<double>();
}

TEST(OptimizerOnDevice, UpdatesAreThoseOfThePlainFormulas) {
  for (int draw = 0; draw < kDraws; ++draw) {
    const Case one(draw);
    SCOPED_TRACE(fmt::format("draw {}, {}", draw, one.options.kind));
    ASSERT_TRUE(OptimizerKernels::serves(one.segments.front()));
    std::vector<Expected> expected;
    for (const auto& segment : one.segments) expected.push_back(by_formula(one, segment, 5));
    const auto scale = one.loss_scale > 0 ? number(one.loss_scale) : at::Tensor();
    std::vector<at::Tensor> first_run;
    for (int run = 0; run < 2; ++run) {
      one.restore();
      const auto count = at::full({}, 4, on_card(at::kFloat));
      OptimizerKernels kernels(one.options, one.segments, one.counted, 4, count);
      kernels.set_lr(kRate);
      kernels.update(number(one.norm), yes_or_no(true), scale);
      EXPECT_EQ(count.item<float>(), 5);
      EXPECT_EQ(kernels.verdict().item<double>(), 0);
      if (run == 0) first_run = one.contents();
    }
    for (std::size_t s = 0; s < one.segments.size(); ++s) {
      const auto& segment = one.segments[s];
      const auto values = segment.parameters.values();
      ASSERT_LT(worst(values, expected[s].parameters), 2e-6) << "segment " << s;
      for (std::size_t i = 0; i < segment.states.size(); ++i) {
        ASSERT_LT(worst(segment.states[i], expected[s].states[i]), 1e-6) << "segment " << s << " state " << i;
      }
      if (!segment.copy.defined()) continue;
      const auto copy = at::empty_like(segment.copy);
      round_into(copy, values);
      ASSERT_TRUE(at::equal(segment.copy, copy)) << "segment " << s;
    }
    const auto second_run = one.contents();
    for (std::size_t i = 0; i < one.placed.size(); ++i) {
      ASSERT_TRUE(at::equal(first_run[i].view(at::kByte), second_run[i].view(at::kByte))) << "memory " << i;
      const auto& [buffer, first, count] = one.placed[i];
      ASSERT_TRUE(buffer.narrow(0, 0, first).eq(77).all().item<bool>()) << "memory " << i;
      ASSERT_TRUE(buffer.narrow(0, first + count, 9).eq(77).all().item<bool>()) << "memory " << i;
    }
  }
}

TEST(OptimizerOnDevice, AStepThatIsNotFiniteChangesNothing) {
  for (int draw = 0; draw < std::min(kDraws, 20); ++draw) {
    const Case one(draw);
    const auto count = at::full({}, 4, on_card(at::kFloat));
    OptimizerKernels kernels(one.options, one.segments, one.counted, 4, count);
    kernels.set_lr(kRate);
    kernels.update(number(kNan), yes_or_no(false), {});
    EXPECT_EQ(count.item<float>(), 4);
    const auto after = one.contents();
    for (std::size_t i = 0; i < after.size(); ++i) {
      EXPECT_TRUE(at::equal(after[i].view(at::kByte), one.before[i].view(at::kByte))) << draw;
    }
  }
}

TEST(OptimizerOnDevice, AParameterThatIsNotFiniteIsSeenWhereItIsWritten) {
  for (int draw = 0; draw < std::min(kDraws, 40); ++draw) {
    const Case one(draw);
    Drawn drawn(static_cast<std::uint64_t>(draw) + 1000);
    const auto& segment =
        one.segments[static_cast<std::size_t>(drawn.between(0, static_cast<std::int64_t>(one.segments.size()) - 1))];
    const auto place = drawn.between(0, segment.parameters.size() - 1);
    segment.parameters.narrow(place, 1).change(
        [&](const at::Tensor& value) { value.fill_(draw % 2 == 0 ? kNan : HUGE_VAL); });
    OptimizerKernels kernels(one.options, one.segments, one.counted, 4, at::full({}, 4, on_card(at::kFloat)));
    kernels.set_lr(kRate);
    kernels.update(number(one.norm), yes_or_no(true), {});
    EXPECT_TRUE(std::isnan(kernels.verdict().item<double>())) << draw;
  }
}

TEST(OptimizerOnDevice, SquaredNormsAreSumsPerUnitInFloat64) {
  for (int draw = 0; draw < kDraws; ++draw) {
    const Case one(draw);
    OptimizerKernels kernels(one.options, one.segments, one.counted, 4, at::full({}, 4, on_card(at::kFloat)));
    at::full({4}, kNan, on_card(at::kDouble));  // what the norms' memory may have held
    const auto found = kernels.squared_norms();
    auto expected = at::zeros({4}, at::kDouble);
    for (const auto& [gradient, unit] : one.counted) {
      expected[unit] += gradient.to(at::kDouble).square().sum().cpu();
    }
    ASSERT_TRUE(at::allclose(found.cpu(), expected, 1e-13, 0)) << draw;
    ASSERT_TRUE(at::equal(kernels.squared_norms(), found)) << draw;
  }
}

TEST(OptimizerOnDevice, CopiesAreRoundedAsOnTheHost) {
  std::vector<std::int32_t> patterns;
  for (std::int64_t upper = -0x8000; upper < 0x8000; ++upper) {
    for (const std::int64_t lower : {0x0000, 0x0001, 0x7fff, 0x8000, 0x8001, 0xffff}) {
      patterns.push_back(static_cast<std::int32_t>((upper << 16) | lower));
    }
  }
  const auto values = at::tensor(patterns, at::kInt).view(at::kFloat);
  for (const std::int64_t first : {0, 1, 3, 4}) {
    const auto part = values.narrow(0, first, values.numel() - first - 2);
    const auto expected = at::empty({part.numel()}, at::kBFloat16);
    test::on_cpu([&] { round_into(expected, part); });
    const auto found = at::full({values.numel()}, kNan, on_card(at::kBFloat16)).narrow(0, first, part.numel());
    const auto there = values.to(test::card()).narrow(0, first, part.numel());
    round_into(found, there);
    EXPECT_TRUE(at::equal(found.cpu().view(at::kShort), expected.view(at::kShort))) << first;
    const MasterValues split(at::zeros_like(found), at::zeros({part.numel()}, on_card(at::kShort)));
    split.set_values(there);
    EXPECT_TRUE(at::equal(split.upper().view(at::kShort), found.view(at::kShort))) << first;
    const auto back = split.values();
    EXPECT_TRUE(at::equal(back.isnan(), there.isnan()));
    EXPECT_TRUE(at::equal(back.view(at::kInt).masked_fill(there.isnan(), 0),
                          there.contiguous().view(at::kInt).masked_fill(there.isnan(), 0)));
  }
}

// The store and the optimizer of the toy graph, on the card.
struct Problem {
  explicit Problem(MasterKind master)
      : graph(test::toy_spec()),
        store(graph, Mesh(), 0, {DType::float32, DType::bfloat16, DType::float32, master}, make),
        optimizer(store, {.clip = 0.7}, make) {
    store.initialise(5);
  }
  static at::Tensor make(std::int64_t elements, at::ScalarType type) { return at::zeros({elements}, on_card(type)); }

  void step(int number) {
    at::manual_seed(static_cast<std::uint64_t>(number));
    for (const auto& buffer : store.buffers()) {
      if (buffer->trainable()) buffer->gradient().copy_(at::randn({buffer->layout().size}, on_card(at::kFloat)));
    }
    const auto norm = optimizer.squared_norms().sum().sqrt();
    optimizer.set_lr(kRate);
    optimizer.update(norm, norm.isfinite());
  }

  GraphSpec graph;
  ParameterStore store;
  Optimizer optimizer;
};

TEST(OptimizerOnDevice, MastersInHalvesTrainToTheBitsOfWholeOnes) {
  Problem whole(MasterKind::whole);
  Problem split(MasterKind::bf16_remainder);
  ASSERT_TRUE(whole.optimizer.parameters_verdict().defined()) << "the kernels are not used";
  ASSERT_TRUE(split.optimizer.parameters_verdict().defined()) << "the kernels are not used";
  for (int number = 1; number <= 20; ++number) {
    whole.step(number);
    split.step(number);
    for (std::size_t b = 0; b < whole.store.buffers().size(); ++b) {
      const auto& one = *whole.store.buffers()[b];
      const auto& other = *split.store.buffers()[b];
      ASSERT_TRUE(at::equal(one.master().values(), other.master().values())) << "step " << number;
      ASSERT_TRUE(at::equal(one.gather_input(), other.gather_input())) << "step " << number;
    }
  }
  EXPECT_EQ(split.optimizer.num_updates(), 20);
}

}  // namespace orthant::optimizer_device_test
