#include "orthant/nn/linear_cross_entropy.h"

#include "nn/live_bytes.h"
#include "nn/oracle.h"
#include "nn/thread_axis.h"
#include "orthant/nn/linear.h"

namespace orthant::nn {
namespace linear_cross_entropy_test {

constexpr double kFactor = 0.37;  // gradient of the loss
constexpr std::int64_t kHidden = 12;

// When the gradients are made.
enum class Way { forward, backward, split };
constexpr Way kWays[] = {Way::forward, Way::backward, Way::split};

// All of them kept whole; frozen ones have no gradient.
struct Case {
  at::Tensor x, targets;
  Parameter weight;
  std::optional<Parameter> bias;
  bool needs_x = true;

  // Every third target is ignored; one is out of range.
  Case(const std::vector<std::int64_t>& leading, std::int64_t classes, at::ScalarType dtype, bool with_bias = false) {
    auto shape = leading;
    shape.push_back(kHidden);
    x = random_tensor(shape, 1, dtype);
    targets = at::arange(c10::multiply_integers(leading), at::kLong).mul_(7).remainder_(classes).view(leading);
    targets.view({-1}).slice(0, 1, std::nullopt, 3).fill_(CrossEntropyOptions().ignore_index);
    if (targets.numel() > 4) targets.view({-1})[3].fill_(classes);
    const at::ScalarType gradients = dtype == at::kBFloat16 ? at::kFloat : dtype;
    weight = make_parameter(random_tensor({classes, kHidden}, 2, dtype), gradients);
    if (with_bias) bias = make_parameter(random_tensor({classes}, 3, dtype), gradients);
  }
};

struct Result {
  at::Tensor loss, x, weight, bias;  // all but the loss are gradients
};

at::Tensor d_loss_of(at::ScalarType dtype) {
  return at::scalar_tensor(kFactor, dtype == at::kDouble ? at::kDouble : at::kFloat);
}

Result result_of(const at::Tensor& loss, const at::Tensor& x, const Parameter& weight, const Parameter* bias) {
  return {loss.detach(), x.grad(), weight.gradient, bias == nullptr ? at::Tensor() : bias->gradient};
}

// linear and cross_entropy, one after the other.
const std::vector<std::string_view> kNames = {"head", "loss"};

Result apart(Case given, const CrossEntropyOptions& options = {}) {
  Pass pass;
  const at::Tensor x = given.needs_x ? make_input(given.x) : given.x;
  Parameter* const bias = given.bias ? &*given.bias : nullptr;
  given.weight.gradient = given.weight.trainable() ? given.weight.gradient.clone() : at::Tensor();
  if (bias != nullptr) bias->gradient = bias->gradient.clone();
  const at::Tensor loss = cross_entropy(linear(x, given.weight, bias, pass), given.targets, options, pass);
  run_backward(loss, d_loss_of(given.x.scalar_type()));
  return result_of(loss, x, given.weight, bias);
}

// With an axis, of its rank's classes and tokens.
Result joined(Case given, Way way, std::int64_t chunk_rows, TensorAxis* axis = nullptr,
              CrossEntropyOptions loss_options = {}) {
  Pass pass;
  pass.tensor = axis;
  pass.rows = given.targets.size(0);
  pass.sequence = given.targets.dim() > 1 ? given.targets.size(1) : 1;
  Parameter* const bias = given.bias ? &*given.bias : nullptr;
  const auto own_part = [&](Parameter& parameter) {
    const Range own = axis == nullptr ? Range{0, parameter.value.size(0)} : axis->part(parameter.value.size(0));
    parameter.value = make_input(parameter.value.detach().narrow(0, own.begin, own.size()));
    if (parameter.trainable()) {
      parameter.gradient = parameter.gradient.narrow(0, own.begin, own.size()).clone();
    } else {
      parameter.value.requires_grad_(false);
    }
    if (axis != nullptr) parameter.cut = {.dim = 0, .first = own.begin};
  };
  if (axis != nullptr) loss_options.classes = given.weight.value.size(0);
  own_part(given.weight);
  if (bias != nullptr) own_part(*bias);
  at::Tensor x = given.x;
  if (pass.cuts_tokens()) {
    const Range own = pass.own_tokens();
    x = x.view({-1, kHidden}).narrow(0, own.begin, own.size());
  }
  if (given.needs_x) x = make_input(x);
  const at::Tensor d_loss = d_loss_of(given.x.scalar_type());
  if (way == Way::forward) pass.loss_gradient = d_loss;
  const at::Tensor loss =
      linear_cross_entropy(x, given.weight, bias, given.targets, {loss_options, chunk_rows, kNames}, pass);
  pass.defer_weights = way == Way::split;
  run_backward(loss, d_loss);
  run_deferred(pass);
  return result_of(loss, x, given.weight, bias);
}

void expect_result(const Result& actual, const Result& expected, double bound) {
  expect_close(actual.loss, expected.loss, bound, bound, "loss");
  const auto compare = [&](const at::Tensor& a, const at::Tensor& e, const char* what) {
    ASSERT_EQ(a.defined(), e.defined()) << what;
    if (a.defined()) expect_close(a, e, bound, bound, what);
  };
  compare(actual.x, expected.x, "gradient of x");
  compare(actual.weight, expected.weight, "gradient of the weight");
  compare(actual.bias, expected.bias, "gradient of the bias");
}

void expect_same_result(const Result& actual, const Result& expected) {
  expect_same_bits(actual.loss, expected.loss, "loss");
  if (expected.x.defined()) expect_same_bits(actual.x, expected.x, "gradient of x");
  if (expected.weight.defined()) expect_same_bits(actual.weight, expected.weight, "gradient of the weight");
  if (expected.bias.defined()) expect_same_bits(actual.bias, expected.bias, "gradient of the bias");
}

TEST(LinearCrossEntropy, EqualsLinearAndCrossEntropyInEveryChunkSize) {
  const std::vector<std::vector<std::int64_t>> leadings = {{1}, {7}, {2, 5}, {3, 16}};
  for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16}) {
    const double bound = dtype == at::kDouble ? 1e-13 : dtype == at::kFloat ? 3e-6 : 3e-2;
    for (const auto& leading : leadings) {
      for (const bool with_bias : {false, true}) {
        const Case given(leading, 33, dtype, with_bias);
        const Result expected = apart(given);
        for (const std::int64_t chunk_rows : {0, 1, 3, 5, 48, 1000}) {
          for (const Way way : kWays) {
            SCOPED_TRACE(testing::Message()
                         << c10::toString(dtype) << " [" << at::IntArrayRef(leading) << "] chunks of " << chunk_rows
                         << (with_bias ? " with bias" : "") << " way " << static_cast<int>(way));
            expect_result(joined(given, way, chunk_rows), expected, bound);
          }
        }
      }
    }
  }
}

TEST(LinearCrossEntropy, GivesTheSameBitsWheneverGradientsAreMade) {
  for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16}) {
    const Case given({3, 11}, 70, dtype, /*with_bias=*/true);
    for (const std::int64_t chunk_rows : {0, 4, 33}) {
      const Result forward = joined(given, Way::forward, chunk_rows);
      expect_same_result(joined(given, Way::backward, chunk_rows), forward);
      expect_same_result(joined(given, Way::split, chunk_rows), forward);
    }
  }
}

TEST(LinearCrossEntropy, FrozenPartsGetNoGradientAndChangeNoOther) {
  for (const bool weight : {false, true}) {
    for (const bool bias : {false, true}) {
      for (const bool x : {false, true}) {
        if (!weight && !bias && !x) continue;
        Case given({2, 9}, 20, at::kDouble, /*with_bias=*/true);
        if (!weight) given.weight = make_frozen(given.weight.value);
        if (!bias) given.bias = make_frozen(given.bias->value);
        given.needs_x = x;
        Case all({2, 9}, 20, at::kDouble, /*with_bias=*/true);
        Result expected = apart(all);
        if (!weight) expected.weight.reset();
        if (!bias) expected.bias.reset();
        if (!x) expected.x.reset();
        for (const Way way : kWays) expect_result(joined(given, way, 4), expected, 1e-13);
      }
    }
  }
}

// A tied weight, or one of an earlier microbatch, has a gradient already.
TEST(LinearCrossEntropy, AddsToAGradientThatIsThere) {
  Case given({2, 9}, 20, at::kDouble);
  given.weight.gradient = random_tensor({20, kHidden}, 7);
  given.weight.fresh = false;
  const Result expected = apart(given);
  for (const Way way : kWays) expect_result(joined(given, way, 5), expected, 1e-13);
}

TEST(LinearCrossEntropy, WeighsClasses) {
  const Case given({2, 9}, 20, at::kDouble);
  CrossEntropyOptions options;
  options.class_weights = random_tensor({20}, 4).abs();
  const Result expected = apart(given, options);
  for (const Way way : kWays) expect_result(joined(given, way, 4, nullptr, options), expected, 1e-13);
}

TEST(LinearCrossEntropy, WithoutGradModeThereIsNoGraphAndTheSameValue) {
  Case given({2, 9}, 20, at::kFloat);
  const Result expected = joined(given, Way::forward, 4);
  at::NoGradGuard no_grad;
  Pass pass;
  const at::Tensor loss = linear_cross_entropy(given.x, given.weight, nullptr, given.targets, {{}, 4}, pass);
  EXPECT_FALSE(loss.requires_grad());
  expect_same_bits(loss, expected.loss, "loss");
  EXPECT_TRUE(given.weight.fresh) << "nothing is added";
}

TEST(LinearCrossEntropy, OverTpEqualsOneRank) {
  const Case given({2, 7}, 35, at::kDouble, /*with_bias=*/true);
  const Result whole = apart(given);
  for (const bool sequence_parallel : {false, true}) {
    for (const int degree : {1, 2, 3}) {
      for (const Way way : kWays) {
        run_axis(degree, {.sequence_parallel = sequence_parallel}, [&](ThreadAxis& axis) {
          SCOPED_TRACE(testing::Message() << "rank " << axis.coordinate() << " of " << degree << " way "
                                          << static_cast<int>(way) << (sequence_parallel ? " cut tokens" : ""));
          Result expected = whole;
          const Range classes = axis.part(35);
          expected.weight = whole.weight.narrow(0, classes.begin, classes.size());
          expected.bias = whole.bias.narrow(0, classes.begin, classes.size());
          if (sequence_parallel) {
            const Range tokens = axis.part(14);
            expected.x = whole.x.view({-1, kHidden}).narrow(0, tokens.begin, tokens.size());
          }
          expect_result(joined(given, way, 4, &axis), expected, 1e-12);
        });
      }
    }
  }
}

TEST(LinearCrossEntropy, WithoutSumsOverTpResultsDiffer) {
  const Case given({2, 7}, 35, at::kDouble);
  const Result whole = apart(given);
  run_axis(2, {}, [&](ThreadAxis& axis) {
    axis.leave_out("loss");
    const Result cut = joined(given, Way::forward, 4, &axis);
    EXPECT_GT((cut.loss - whole.loss).abs().item<double>(), 1e-3);
  });
}

TEST(LinearCrossEntropy, HasTheLogitsOfOneChunkAtATime) {
  constexpr std::int64_t kRows = 256, kClasses = 500, kChunk = 8;
  const Case given({kRows}, kClasses, at::kFloat);
  auto& live = LiveBytes::instance();
  const auto peak_of = [&](const auto& run) {
    live.reset_peak();
    const std::int64_t before = live.now();
    run();
    return live.peak() - before;
  };
  const std::int64_t logits = kRows * kClasses * static_cast<std::int64_t>(sizeof(float));
  EXPECT_GE(peak_of([&] { apart(given); }), logits);
  for (const Way way : kWays) {
    EXPECT_LT(peak_of([&] { joined(given, way, kChunk); }), logits / 2) << static_cast<int>(way);
  }
}

}  // namespace linear_cross_entropy_test
}  // namespace orthant::nn
