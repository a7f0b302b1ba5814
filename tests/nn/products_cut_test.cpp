// Column and row products over the tensor axis, as an attention branch and an MLP branch use them, against one rank.
#include "nn/oracle.h"
#include "nn/thread_axis.h"
#include "orthant/nn/attention.h"
#include "orthant/nn/dropout.h"
#include "orthant/nn/linear.h"
#include "orthant/nn/mlp.h"
#include "orthant/nn/norm.h"

namespace orthant::nn {
namespace products_cut_test {

constexpr std::int64_t kRows = 3, kSequence = 5, kHidden = 24, kInner = 29, kHeads = 12, kHeadSize = 2;

// A parameter of the whole model, and what a rank holds of it.
struct Given {
  std::string name;
  at::Tensor whole;
  int dim = -1;
  std::int64_t granule = 1;
  std::int64_t blocks = 1;
};

at::Tensor part_of(const Given& given, const at::Tensor& whole, const TensorAxis* axis) {
  if (axis == nullptr || given.dim < 0) return whole;
  std::vector<at::Tensor> parts;
  for (const at::Tensor& block : whole.chunk(given.blocks, given.dim)) {
    const Range own = axis->part(block.size(given.dim) / given.granule);
    parts.push_back(block.narrow(given.dim, own.begin * given.granule, own.size() * given.granule));
  }
  return at::cat(parts, given.dim).contiguous();
}

const std::vector<Given>& model() {
  static const std::vector<Given> all = {
      {"norm", random_tensor({kHidden}, 1).abs()},
      {"qkv", random_tensor({3 * kHeads * kHeadSize, kHidden}, 2), 0, kHeadSize, 3},
      {"qkv_bias", random_tensor({3 * kHeads * kHeadSize}, 3), 0, kHeadSize, 3},
      {"out", random_tensor({kHidden, kHeads * kHeadSize}, 4), 1, kHeadSize},
      {"out_bias", random_tensor({kHidden}, 5)},
      {"up", random_tensor({kInner, kHidden}, 6), 0},
      {"up_bias", random_tensor({kInner}, 7), 0},
      {"down", random_tensor({kHidden, kInner}, 8), 1},
      {"down_bias", random_tensor({kHidden}, 9)},
  };
  return all;
}

struct Result {
  at::Tensor y, gx;
  std::map<std::string, at::Tensor> gradients;
};

struct Setting {
  bool defers = false;
};

// x -> norm -> attention + x -> dropout -> MLP + that, on this rank's tokens where they are cut.
Result run(TensorAxis* axis, const Setting& setting = {}) {
  std::map<std::string, Parameter> p;
  std::map<std::string, std::vector<std::string_view>> names;
  for (const Given& given : model()) {
    Parameter& parameter = p[given.name];
    parameter.value = make_input(part_of(given, given.whole, axis));
    parameter.gradient = at::zeros_like(parameter.value);
    parameter.cut.dim = axis == nullptr ? -1 : given.dim;
    if (axis != nullptr && given.dim >= 0) {
      parameter.cut.first =
          axis->part(given.whole.size(given.dim) / given.blocks / given.granule).begin * given.granule;
    }
    names[given.name] = {"layer", given.name};
    parameter.subject = names[given.name];
  }
  Pass pass;
  pass.seed = 5;
  pass.tensor = axis;
  pass.rows = kRows;
  pass.sequence = kSequence;
  pass.defer_weights = setting.defers;
  AttentionOptions options;
  options.head_size = kHeadSize;
  options.heads = options.kv_heads = p["out"].value.size(1) / kHeadSize;
  options.causal = true;
  options.dropout = 0.3;
  options.site = "probabilities";
  const at::Tensor all = random_tensor({kRows, kSequence, kHidden}, 10);
  const at::Tensor d_all = random_tensor({kRows, kSequence, kHidden}, 11);
  const Range own = pass.own_tokens();
  const auto held = [&](const at::Tensor& whole) {
    return pass.cuts_tokens() ? whole.view({-1, kHidden}).narrow(0, own.begin, own.size()).clone() : whole.clone();
  };
  const at::Tensor x = make_input(held(all));
  const at::Tensor normed = rms_norm(x, p["norm"], 1e-6, pass);
  const at::Tensor attended =
      attention(linear(normed, p["qkv"], &p["qkv_bias"], pass), p["out"], &p["out_bias"], options, pass, x);
  const at::Tensor middle = dropout(attended, 0.2, "middle", pass);
  const at::Tensor y =
      activation_linear(linear(middle, p["up"], &p["up_bias"], pass), {ActivationKind::gelu, 0.25, "inner"}, p["down"],
                        &p["down_bias"], pass, middle);
  run_backward(y, held(d_all));
  for (const auto& add : pass.deferred) add();
  Result result = {y.detach(), x.grad(), {}};
  for (const auto& [name, parameter] : p) result.gradients[name] = parameter.gradient;
  return result;
}

// What of one rank's result this rank must have. Gradients of whole parameters are partial where tokens are cut: those
// are summed here, by the axis itself.
void expect_part(Result part, const Result& whole, ThreadAxis& axis) {
  const bool cut = axis.sequence_parallel();
  const Range own = axis.part(kRows * kSequence);
  const auto held = [&](const at::Tensor& t) {
    return cut ? t.view({-1, kHidden}).narrow(0, own.begin, own.size()) : t;
  };
  expect_close(part.y, held(whole.y), 1e-11, 1e-11, "output");
  expect_close(part.gx, held(whole.gx), 1e-11, 1e-11, "input's gradient");
  for (const Given& given : model()) {
    at::Tensor& gradient = part.gradients.at(given.name);
    if (given.dim < 0 && cut) axis.sum(gradient, {})->wait();
    expect_close(gradient, part_of(given, whole.gradients.at(given.name), &axis), 1e-11, 1e-11, given.name);
  }
}

TEST(CutProducts, EqualOneRank) {
  const Result whole = run(nullptr);
  for (const int degree : {1, 2, 3, 4, 6}) {
    for (const auto& [sequence, regather] : {std::pair(false, false), std::pair(true, false), std::pair(true, true)}) {
      for (const bool defers : {false, true}) {
        run_axis(degree, {.sequence_parallel = sequence, .regather = regather}, [&](ThreadAxis& axis) {
          SCOPED_TRACE(testing::Message() << "rank " << axis.coordinate() << " of " << degree << ", sequence "
                                          << sequence << ", regather " << regather << ", deferred " << defers);
          expect_part(run(&axis, {.defers = defers}), whole, axis);
        });
      }
    }
  }
}

TEST(CutProducts, MoreRanksThanTokensLeaveSomeWithNone) {
  run_axis(4, {.sequence_parallel = true}, [&](ThreadAxis& axis) {
    Pass pass;
    pass.tensor = &axis;
    pass.rows = 1;
    pass.sequence = 2;
    Parameter up{.value = make_input(at::ones({1, 3})),
                 .gradient = at::zeros({1, 3}),
                 .cut = {.dim = 0, .first = axis.coordinate()}};
    Parameter down{.value = make_input(at::ones({3, 1})),
                   .gradient = at::zeros({3, 1}),
                   .cut = {.dim = 1, .first = axis.coordinate()}};
    const at::Tensor x = make_input(at::ones({pass.own_tokens().size(), 3}));
    const at::Tensor y = linear(linear(x, up, nullptr, pass), down, nullptr, pass);
    run_backward(y, at::ones_like(y));
    // Two of four ranks have a token; every output is the sum of four channels of 3.
    ASSERT_EQ(y.size(0), pass.own_tokens().size());
    EXPECT_TRUE(y.eq(12).all().item<bool>());
    EXPECT_TRUE(x.grad().eq(12).all().item<bool>());
    EXPECT_TRUE(up.gradient.eq(6).all().item<bool>());
  });
}

// Two sums forward and two backward; or as many gathers and scatters, and two gathers more where inputs come again.
TEST(CutProducts, ExchangeWhatTheClosedFormSays) {
  constexpr std::int64_t kElements = kRows * kSequence * kHidden;
  const auto count = [](const ThreadAxis& axis, const std::string& kind) {
    return std::ranges::count(axis.calls(), kind, &ThreadAxis::Call::kind);
  };
  for (const auto& [sequence, regather, sums, gathers] :
       {std::tuple(false, false, 4, 0), std::tuple(true, false, 0, 4), std::tuple(true, true, 0, 6)}) {
    run_axis(2, {.sequence_parallel = sequence, .regather = regather}, [&](ThreadAxis& axis) {
      run(&axis);
      EXPECT_EQ(count(axis, "sum"), sums);
      EXPECT_EQ(count(axis, "gather"), gathers);
      EXPECT_EQ(count(axis, "scatter"), sequence ? 4 : 0);
      for (const ThreadAxis::Call& call : axis.calls()) EXPECT_EQ(call.elements, kElements) << call.kind;
    });
  }
}

// Forward the two row products, backward the two column products.
TEST(CutProducts, NameTheParameterOfEachSum) {
  for (const bool sequence : {false, true}) {
    run_axis(2, {.sequence_parallel = sequence}, [&](ThreadAxis& axis) {
      run(&axis);
      std::vector<std::string> found;
      for (const ThreadAxis::Call& call : axis.calls()) {
        if (call.kind == "gather") continue;
        ASSERT_EQ(call.subject.size(), 2U) << call.kind;
        EXPECT_EQ(call.subject[0], "layer");
        found.push_back(call.subject[1]);
      }
      EXPECT_EQ(found, (std::vector<std::string>{"out", "down", "up", "qkv"}));
    });
  }
}

TEST(CutProducts, MissingSumsAreNoticed) {
  const Result whole = run(nullptr);
  for (const std::string name : {"qkv", "out", "up", "down"}) {
    for (const bool sequence : {false, true}) {
      run_axis(3, {.sequence_parallel = sequence}, [&](ThreadAxis& axis) {
        axis.leave_out(name);
        const Result part = run(&axis);
        const Range own = axis.part(kRows * kSequence);
        const auto equals = [&](const at::Tensor& found, const at::Tensor& all) {
          const at::Tensor held = sequence ? all.view({-1, kHidden}).narrow(0, own.begin, own.size()) : all;
          return at::allclose(found, held, 1e-3, 1e-3);
        };
        EXPECT_FALSE(equals(part.y, whole.y) && equals(part.gx, whole.gx)) << name;
      });
    }
  }
}

}  // namespace products_cut_test
}  // namespace orthant::nn
