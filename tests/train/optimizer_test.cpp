// Fused updates against a loop written by hand in float64, with the tied and undecayed parameters of the toy graph.
#include "orthant/train/optimizer.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "runtime/toy_graph.h"

namespace orthant {
namespace optimizer_test {

constexpr double kRate = 0.05;
constexpr int kSteps = 6;

at::Tensor make_zeros(std::int64_t elements, at::ScalarType type) {
  return at::zeros({elements}, at::TensorOptions().dtype(type));
}

// The toy graph's parameters; unit d is frozen.
struct Problem {
  explicit Problem(Precision precision) : graph(spec()), store(graph, Mesh(), 0, precision, make_zeros) {
    store.initialise(5);
  }
  explicit Problem(DType dtype) : Problem(Precision{dtype, dtype, dtype}) {}

  static GraphSpec spec() {
    auto graph = test::toy_spec();
    for (auto& parameter : graph.units[3].parameters) parameter.trainable = false;
    return graph;
  }

  // Gradients of a step: some numbers, zero in the gaps.
  void set_gradients(int step) {
    for (const auto& buffer : store.buffers()) {
      if (!buffer->trainable()) continue;
      for (const auto& entry : buffer->layout().entries) {
        const auto place =
            at::arange(entry.elements, at::kDouble) + static_cast<double>(entry.parameter.front() * step);
        buffer->gradient_view(entry).copy_((place * 1.7).sin().reshape(entry.shape));
      }
    }
  }

  GraphSpec graph;
  ParameterStore store;
};

// As the trainer does it: norm and update.
void step(Optimizer& optimizer, Problem& problem, int number) {
  problem.set_gradients(number);
  const auto norm = optimizer.squared_norms().sum().sqrt();
  optimizer.set_lr(kRate);
  optimizer.update(norm, norm.isfinite());
}

// The trainer also skips a step whose loss is not finite, whatever the norm.
void skipped_step(Optimizer& optimizer, double norm) {
  optimizer.set_lr(kRate);
  optimizer.update(at::scalar_tensor(norm, at::kDouble), at::scalar_tensor(false, at::kBool));
}

using Numbers = std::map<std::string, std::vector<double>>;  // by parameter

std::vector<double> numbers_of(const at::Tensor& tensor) {
  const auto wide = tensor.to(at::kDouble).flatten().contiguous();
  return {wide.const_data_ptr<double>(), wide.const_data_ptr<double>() + wide.numel()};
}

Numbers parameters_of(const ParameterStore& store) {
  Numbers found;
  for (const auto& buffer : store.buffers()) {
    for (const auto& entry : buffer->layout().entries) found[entry.parameter] = numbers_of(buffer->master_view(entry));
  }
  return found;
}

Numbers gradients_of(const ParameterStore& store) {
  Numbers found;
  for (const auto& buffer : store.buffers()) {
    if (!buffer->trainable()) continue;
    for (const auto& entry : buffer->layout().entries) {
      found[entry.parameter] = numbers_of(buffer->gradient_view(entry));
    }
  }
  return found;
}

// One element after another, as the formulas are printed.
class PlainOptimizer {
 public:
  PlainOptimizer(const ParameterStore& store, OptimizerOptions options)
      : parameters(parameters_of(store)), options_(std::move(options)) {
    for (const auto& unit : store.graph().units) {
      for (const auto& parameter : unit.parameters) decayed_[parameter.name] = parameter.shape.size() > 1;
    }
  }

  void update(const Numbers& gradients) {
    ++steps_;
    double squares = 0;
    for (const auto& [name, values] : gradients) {
      for (const double g : values) squares += g * g;
    }
    const double norm = std::sqrt(squares);
    const double factor = options_.clip > 0 && norm > options_.clip ? options_.clip / norm : 1;
    for (const auto& [name, values] : gradients) {
      first_[name].resize(values.size());
      second_[name].resize(values.size());
      for (std::size_t i = 0; i < values.size(); ++i) update_one(name, i, factor * values[i]);
    }
  }

  Numbers parameters;

 private:
  void update_one(const std::string& name, std::size_t i, double g) {
    double& p = parameters.at(name)[i];
    double& m = first_[name][i];
    double& v = second_[name][i];
    const double decay = decayed_.at(name) ? options_.weight_decay : 0;
    if (options_.kind == "sgd") {
      m = options_.momentum * m + g + decay * p;
      p -= kRate * m;
      return;
    }
    m = options_.beta1 * m + (1 - options_.beta1) * g;
    v = options_.beta2 * v + (1 - options_.beta2) * g * g;
    const double m_hat = m / (1 - std::pow(options_.beta1, steps_));
    const double v_hat = v / (1 - std::pow(options_.beta2, steps_));
    p = p - kRate * decay * p - kRate * m_hat / (std::sqrt(v_hat) + options_.eps);
  }

  OptimizerOptions options_;
  std::map<std::string, bool> decayed_;
  Numbers first_;
  Numbers second_;
  int steps_ = 0;
};

double largest_difference(const Numbers& found, const Numbers& expected) {
  double worst = 0;
  for (const auto& [name, values] : expected) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      worst = std::max(worst, std::abs(found.at(name).at(i) - values[i]));
    }
  }
  return worst;
}

// Runs both over several steps and compares after each.
void expect_as_by_hand(const OptimizerOptions& options, Precision precision, double tolerance) {
  Problem problem(precision);
  Optimizer optimizer(problem.store, options, make_zeros);
  PlainOptimizer plain(problem.store, options);
  const auto first = parameters_of(problem.store);
  for (int number = 1; number <= kSteps; ++number) {
    problem.set_gradients(number);
    plain.update(gradients_of(problem.store));
    step(optimizer, problem, number);
    EXPECT_LT(largest_difference(parameters_of(problem.store), plain.parameters), tolerance)
        << options.kind << " clip " << options.clip << " step " << number;
    EXPECT_EQ(optimizer.num_updates(), number);
  }
  EXPECT_GT(largest_difference(parameters_of(problem.store), first), 0.05) << "nothing was learned";
  EXPECT_EQ(parameters_of(problem.store).at("d.weight"), first.at("d.weight")) << "frozen";
}

constexpr Precision kDouble = {DType::float64, DType::float64, DType::float64};
constexpr Precision kSingle = {DType::float32, DType::float32, DType::float32};

// The norm of the gradients is about 10.
const std::vector<OptimizerOptions> kCases = {
    {.kind = "adamw", .beta1 = 0.9, .beta2 = 0.95, .weight_decay = 0.1},
    {.kind = "adamw", .beta1 = 0.8, .beta2 = 0.99, .eps = 0.01, .weight_decay = 0.1, .clip = 0.7},
    {.kind = "adamw", .eps = 0.01, .weight_decay = 0.1, .clip = 1000},
    {.kind = "sgd", .weight_decay = 0.1},
    {.kind = "sgd", .weight_decay = 0.1, .momentum = 0.9},
    {.kind = "sgd", .weight_decay = 0.1, .momentum = 0.9, .clip = 0.7},
    {.kind = "sgd", .weight_decay = 0.1, .momentum = 0.9, .clip = 1000},
};

TEST(Optimizer, UpdatesInDoubleAreThoseOfThePlainLoop) {
  for (const auto& options : kCases) expect_as_by_hand(options, kDouble, 1e-12);
}

TEST(Optimizer, UpdatesInFloatAreThoseOfThePlainLoop) {
  for (const auto& options : kCases) expect_as_by_hand(options, kSingle, 1e-6);
}

TEST(Optimizer, GradientsOfAnotherDtypeAreConverted) {
  for (const auto& options : kCases) {
    expect_as_by_hand(options, {DType::float64, DType::float64, DType::float32}, 1e-6);
    expect_as_by_hand(options, {DType::float32, DType::float32, DType::float64}, 1e-6);
  }
}

TEST(Optimizer, DecaysMatricesAndLeavesBiasesAlone) {
  Problem problem(DType::float64);
  Optimizer optimizer(problem.store, {.kind = "sgd", .weight_decay = 0.5}, make_zeros);
  const auto before = parameters_of(problem.store);
  optimizer.set_lr(0.1);
  optimizer.update(at::zeros({}, at::kDouble), at::scalar_tensor(true, at::kBool));  // all gradients are zero
  const auto after = parameters_of(problem.store);
  for (std::size_t i = 0; i < before.at("a.weight").size(); ++i) {
    EXPECT_NEAR(after.at("a.weight")[i], 0.95 * before.at("a.weight")[i], 1e-15) << i;
  }
  EXPECT_EQ(after.at("a.bias"), before.at("a.bias"));
}

TEST(Optimizer, ClippingGradientsOfZeroChangesNoBit) {
  for (const auto dtype : {DType::float32, DType::float64}) {
    Problem problem(dtype);
    Optimizer optimizer(problem.store, {.weight_decay = 0, .clip = 0.7}, make_zeros);
    const auto before = parameters_of(problem.store);
    optimizer.set_lr(0.1);
    optimizer.update(at::zeros({}, at::kDouble), at::scalar_tensor(true, at::kBool));
    EXPECT_EQ(parameters_of(problem.store), before);
  }
}

TEST(Optimizer, ANormBelowTheClipChangesNoBit) {
  Problem clipped(DType::float32);
  Problem free(DType::float32);
  Optimizer with(clipped.store, {.clip = 1000}, make_zeros);
  Optimizer without(free.store, {.clip = 0}, make_zeros);
  for (int number = 1; number <= 3; ++number) {
    step(with, clipped, number);
    step(without, free, number);
  }
  EXPECT_EQ(parameters_of(clipped.store), parameters_of(free.store));
}

TEST(Optimizer, AStepThatIsNotFiniteChangesNothing) {
  for (const auto& options : kCases) {
    for (const double bad : {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
      for (const auto dtype : {DType::float32, DType::float64}) {
        Problem problem(dtype);
        Optimizer optimizer(problem.store, options, make_zeros);
        step(optimizer, problem, 1);
        const auto before = parameters_of(problem.store);
        std::vector<at::Tensor> states;
        const auto trainable = [&](std::size_t b) { return problem.store.buffers()[b]->trainable(); };
        for (std::size_t i = 0; i < optimizer.state_names().size(); ++i) {
          for (std::size_t b = 0; b < problem.store.buffers().size(); ++b) {
            if (trainable(b)) states.push_back(optimizer.state(i, b).clone());
          }
        }
        problem.set_gradients(2);
        problem.store.buffers().front()->gradient()[0].fill_(bad);
        skipped_step(optimizer, bad);
        EXPECT_EQ(parameters_of(problem.store), before) << options.kind << " clip " << options.clip << " norm " << bad;
        EXPECT_EQ(optimizer.num_updates(), 1);
        auto state = states.begin();
        for (std::size_t i = 0; i < optimizer.state_names().size(); ++i) {
          for (std::size_t b = 0; b < problem.store.buffers().size(); ++b) {
            if (trainable(b)) EXPECT_TRUE(at::equal(optimizer.state(i, b), *state++)) << optimizer.state_names()[i];
          }
        }
      }
    }
  }
}

// A run goes on as if the skipped step had not been; so do the gaps, which no gradient overwrites.
TEST(Optimizer, ASkippedUpdateLeavesNoTrace) {
  for (const auto dtype : {DType::float32, DType::float64}) {
    SCOPED_TRACE(dtype_name(dtype));
    Problem skipped(dtype);
    Problem straight(dtype);
    Optimizer first(skipped.store, {.clip = 0.7}, make_zeros);
    Optimizer second(straight.store, {.clip = 0.7}, make_zeros);
    step(first, skipped, 1);
    step(second, straight, 1);
    for (const double norm : {std::numeric_limits<double>::quiet_NaN(), 2.5}) {
      skipped.set_gradients(3);
      skipped_step(first, norm);
    }
    skipped.set_gradients(2);
    EXPECT_TRUE(first.squared_norms().isfinite().all().item<bool>()) << "something stayed behind in the gradients";
    step(first, skipped, 2);
    step(second, straight, 2);
    EXPECT_EQ(first.num_updates(), 2);
    EXPECT_TRUE(parameters_of(skipped.store) == parameters_of(straight.store));
  }
}

TEST(Optimizer, TheClipScalesGradientsInPlace) {
  for (const auto dtype : {DType::float32, DType::float64}) {
    Problem problem(dtype);
    Optimizer optimizer(problem.store, {.clip = 0.7}, make_zeros);
    step(optimizer, problem, 1);
    EXPECT_NEAR(optimizer.squared_norms().sum().sqrt().item<double>(), 0.7, 1e-6) << dtype_name(dtype);
  }
}

TEST(Optimizer, StateHasTheParametersDtypeAndLayout) {
  Problem problem(DType::float32);
  Optimizer adamw(problem.store, {.kind = "adamw"}, make_zeros);
  Optimizer momentum(problem.store, {.kind = "sgd", .momentum = 0.9}, make_zeros);
  Optimizer plain(problem.store, {.kind = "sgd"}, make_zeros);
  EXPECT_EQ(adamw.state_names(), (std::vector<std::string>{"exp_avg", "exp_avg_sq"}));
  EXPECT_EQ(momentum.state_names(), std::vector<std::string>{"momentum"});
  EXPECT_TRUE(plain.state_names().empty());
  for (std::size_t b = 0; b < problem.store.buffers().size(); ++b) {
    const auto& buffer = *problem.store.buffers()[b];
    EXPECT_EQ(adamw.state(1, b).defined(), buffer.trainable()) << buffer.layout().name;
    if (!buffer.trainable()) continue;
    EXPECT_EQ(adamw.state(1, b).numel(), buffer.master().size());
    EXPECT_EQ(adamw.state(1, b).scalar_type(), at::kFloat);
    EXPECT_EQ(buffer.gradient().scalar_type(), at::kFloat);
  }
}

TEST(Optimizer, TheBiasCorrectionFollowsTheUpdateCount) {
  Problem problem(DType::float64);
  const auto before = parameters_of(problem.store).at("a.bias");
  Optimizer optimizer(problem.store, {.beta1 = 0.9, .beta2 = 0.99, .weight_decay = 0}, make_zeros);
  optimizer.set_num_updates(9);
  step(optimizer, problem, 1);
  const auto g = gradients_of(problem.store).at("a.bias");
  EXPECT_EQ(optimizer.num_updates(), 10);
  const auto after = parameters_of(problem.store).at("a.bias");
  for (std::size_t i = 0; i < g.size(); ++i) {
    const double m = 0.1 * g[i] / (1 - std::pow(0.9, 10));
    const double v = 0.01 * g[i] * g[i] / (1 - std::pow(0.99, 10));
    EXPECT_NEAR(after[i], before[i] - kRate * m / (std::sqrt(v) + 1e-8), 1e-12) << i;
  }
}

TEST(Optimizer, ComputeCopiesFollowTheUpdate) {
  Problem problem(Precision{DType::float32, DType::bfloat16, DType::float32});
  Optimizer optimizer(problem.store, {}, make_zeros);
  step(optimizer, problem, 1);
  for (const auto& buffer : problem.store.buffers()) {
    for (const auto& entry : buffer->layout().entries) {
      const auto* parameter = buffer->find(entry.parameter, buffer->layout().users.front());
      EXPECT_TRUE(at::equal(parameter->value, buffer->master_view(entry).to(at::kBFloat16))) << entry.parameter;
    }
  }
}

TEST(Optimizer, SquaredNormsAreSumsPerOwningUnitInDouble) {
  Problem problem(DType::float32);
  problem.set_gradients(1);
  const auto found = Optimizer(problem.store, {}, make_zeros).squared_norms();
  ASSERT_EQ(found.sizes(), at::IntArrayRef({6}));
  ASSERT_EQ(found.scalar_type(), at::kDouble);
  std::vector<double> expected(6);
  for (const auto& [name, values] : gradients_of(problem.store)) {
    for (const double g : values) expected[static_cast<std::size_t>(problem.graph.owner(name))] += g * g;
  }
  for (std::size_t u = 0; u < 6; ++u) {
    EXPECT_NEAR(found[static_cast<std::int64_t>(u)].item<double>(), expected[u], 1e-12) << problem.graph.units[u].name;
  }
}

}  // namespace optimizer_test
}  // namespace orthant
