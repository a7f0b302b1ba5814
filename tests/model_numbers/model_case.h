// A model's own run, in float64, and what its plain restatement needs: the same weights by name as leaves of autograd,
// and the factors of every dropout site. A restatement is written with ATen alone, as papers write the model.
#pragma once

#include <ATen/ATen.h>

#include <cmath>
#include <limits>
#include <map>

#include "ops/dropout_factors.h"
#include "ops/oracle.h"
#include "orthant/models/model_config.h"
#include "orthant/ops/attention/attention_heads.h"
#include "orthant/runtime/executor.h"
#include "orthant/runtime/unit.h"
#include "orthant/schedule/lowering.h"

namespace orthant {

using nn::expect_close;
using nn::expect_same_bits;
using nn::random_tensor;

inline constexpr std::uint64_t kSeed = 11;
inline constexpr std::int64_t kStep = 3;
inline constexpr std::int64_t kFirstRow = 5;

using Fields = std::map<std::string, at::Tensor>;

// Loss and gradients of one step; gradients by parameter name.
struct StepResult {
  at::Tensor loss;
  std::map<std::string, at::Tensor> gradients;
};

// A graph of a model with its parameters. Weights are random and of a size that makes every gradient matter.
class ModelCase {
 public:
  ModelCase(const ModelConfig& config, GraphSpec spec)
      : graph(std::move(spec)),
        store(graph, Mesh(), 0, {DType::float64, DType::float64, DType::float64},
              [](std::int64_t n, at::ScalarType type) { return at::zeros({n}, at::TensorOptions().dtype(type)); }),
        units(build_units(store, tables)) {
    std::uint64_t seed = 100;
    for (const auto& [name, value] : weights()) {
      const bool norm = name.find("norm") != std::string::npos || name.find("ln_") != std::string::npos;
      value.copy_(random_tensor(value.sizes(), seed++) * 0.3 + (norm && name.ends_with("weight") ? 1 : 0));
    }
  }

  // Views of the parameters, in alphabetical order.
  std::map<std::string, at::Tensor> weights() const {
    std::map<std::string, at::Tensor> found;
    for (const auto& buffer : store.buffers()) {
      for (const auto& entry : buffer->layout().entries) found[entry.parameter] = buffer->master_view(entry);
    }
    return found;
  }

  // Takes the weights of the same name.
  void copy_from(const ModelCase& other) {
    const auto theirs = other.weights();
    for (const auto& [name, value] : weights()) {
      if (const auto found = theirs.find(name); found != theirs.end()) value.copy_(found->second);
    }
  }

  StepResult train(const Fields& fields, Recompute recompute = Recompute::none, int microbatches = 1,
                   std::int64_t step = kStep) {
    std::vector<Microbatch> rows;
    for (int m = 0; m < microbatches; ++m) {
      Microbatch part;
      for (const auto& [name, field] : fields) {
        const auto size = field.size(0) / microbatches;
        part.fields[name] = field.narrow(0, m * size, size);
        part.first_row = kFirstRow + m * size;
      }
      rows.push_back(std::move(part));
    }
    const int count = static_cast<int>(graph.units.size());
    std::vector<Action> actions;
    for (int m = 0; m < microbatches; ++m) {
      for (int u = 0; u < count; ++u) actions.push_back({.kind = ActionKind::forward, .unit = u, .microbatch = m});
      for (int u = count; u-- > 0;) actions.push_back({.kind = ActionKind::backward, .unit = u, .microbatch = m});
    }
    store.begin_step(std::vector<bool>(graph.units.size(), false));
    StepResult result;
    result.loss = Executor(graph, units, recompute).train(actions, rows, {kSeed, step, {}}).at("loss");
    EXPECT_TRUE(store.complete_gradients().empty());
    for (const auto& buffer : store.buffers()) {
      for (const auto& entry : buffer->layout().entries) {
        result.gradients[entry.parameter] = buffer->gradient_view(entry).clone();
      }
    }
    return result;
  }

  std::map<std::string, at::Tensor> evaluate(const Fields& fields, const std::vector<std::string>& wanted) {
    return Executor(graph, units, Recompute::none)
        .evaluate(forward_actions(graph), {fields, kFirstRow}, {kSeed, kStep, {}}, wanted);
  }

  GraphSpec graph;
  Tables tables;
  ParameterStore store;
  std::vector<std::unique_ptr<Unit>> units;
};

// What a restatement reads.
class Restated {
 public:
  explicit Restated(const ModelCase& model, bool training = true) {
    pass.seed = kSeed;
    pass.step = kStep;
    pass.first_row = kFirstRow;
    pass.training = training;
    for (const auto& [name, value] : model.weights()) leaves[name] = value.detach().clone().requires_grad_();
  }

  const at::Tensor& operator[](const std::string& name) const { return leaves.at(name); }

  at::Tensor linear(const at::Tensor& x, const std::string& name) const {
    const at::Tensor y = at::matmul(x, leaves.at(name + ".weight").t());
    const auto bias = leaves.find(name + ".bias");
    return bias == leaves.end() ? y : y + bias->second;
  }

  at::Tensor layer_norm(const at::Tensor& x, const std::string& name, double eps) const {
    const at::Tensor centred = x - x.mean(-1, true);
    const at::Tensor variance = centred.pow(2).mean(-1, true);
    return centred / (variance + eps).sqrt() * leaves.at(name + ".weight") + leaves.at(name + ".bias");
  }

  at::Tensor dropout(const at::Tensor& x, double p, const std::string& site) const {
    return p == 0 ? x : x * nn::dropout_factors(pass, site, p, x.sizes(), x.options());
  }

  // q [rows, sequence, heads, size], k and v likewise -> [rows, sequence, heads * size]. A token sees `window` ones.
  at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal,
                       const at::Tensor& key_mask, double p, const std::string& site, std::int64_t window = 0) const {
    const auto heads = q.size(2), sequence = q.size(1);
    const auto by_head = [&](const at::Tensor& x) { return x.transpose(1, 2).repeat_interleave(heads / x.size(2), 1); };
    at::Tensor scores =
        at::matmul(by_head(q), by_head(k).transpose(-1, -2)) / std::sqrt(static_cast<double>(q.size(3)));
    const double hidden = -std::numeric_limits<double>::infinity();
    if (causal) scores = scores.masked_fill(at::ones({sequence, sequence}, at::kBool).triu(1), hidden);
    if (window > 0) scores = scores.masked_fill(at::ones({sequence, sequence}, at::kBool).tril(-window), hidden);
    if (key_mask.defined()) scores = scores.masked_fill(key_mask.logical_not().unsqueeze(1).unsqueeze(1), hidden);
    at::Tensor probabilities = at::softmax(scores, -1);
    if (p > 0) probabilities = probabilities * attention_factors(probabilities, p, site);
    return at::matmul(probabilities, by_head(v)).transpose(1, 2).flatten(2);
  }

  // Sum over targets that count.
  static at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& labels) {
    const at::Tensor counted = labels.ge(0);
    const at::Tensor all = -at::log_softmax(logits, -1).gather(-1, labels.clamp_min(0).unsqueeze(-1)).squeeze(-1);
    return (all * counted).sum();
  }

  // Its loss and all gradients against the model's, to 1e-10 of the largest number of each tensor.
  void expect_equal(const at::Tensor& loss, const StepResult& actual) const {
    expect_close(actual.loss, loss, 1e-10, 0, "loss");
    nn::run_backward(loss, at::ones({}, at::kDouble));
    ASSERT_EQ(actual.gradients.size(), leaves.size());
    for (const auto& [name, leaf] : leaves) {
      ASSERT_TRUE(leaf.grad().defined()) << name;
      const double largest = leaf.grad().abs().max().item<double>();
      expect_close(actual.gradients.at(name), leaf.grad(), 0, 1e-10 * std::max(1.0, largest), name);
    }
  }

  nn::Pass pass;
  std::map<std::string, at::Tensor> leaves;

 private:
  at::Tensor attention_factors(const at::Tensor& like, double p, const std::string& site) const {
    std::vector<at::Tensor> rows;
    for (std::int64_t row = 0; row < like.size(0); ++row) {
      nn::Pass one = pass;
      one.first_row = (pass.first_row + row) * nn::kMaxHeads;
      rows.push_back(nn::dropout_factors(one, site, p, like.sizes().slice(1), like.options()));
    }
    return at::stack(rows);
  }
};

inline at::Tensor random_ids(std::int64_t rows, std::int64_t sequence, std::int64_t vocabulary, std::uint64_t seed) {
  return random_tensor({rows, sequence}, seed).abs().mul(1000).to(at::kLong).remainder(vocabulary);
}

// Equal bits in every recompute mode and twice in a row; the same numbers in two microbatches; others in another step
// where something is dropped.
inline void expect_steps_agree(ModelCase& model, const Fields& fields, bool drops) {
  const StepResult plain = model.train(fields);
  const auto expect_same = [&](const StepResult& other, const std::string& what) {
    expect_same_bits(other.loss, plain.loss, what + " loss");
    for (const auto& [name, gradient] : plain.gradients) {
      expect_same_bits(other.gradients.at(name), gradient, what + " " + name);
    }
  };
  for (const auto mode : kRecomputeModes) {
    expect_same(model.train(fields, mode), std::string(recompute_name(mode)));
  }
  const StepResult halves = model.train(fields, Recompute::none, 2);
  expect_close(halves.loss, plain.loss, 1e-12, 0, "loss of two microbatches");
  for (const auto& [name, gradient] : plain.gradients) {
    expect_close(halves.gradients.at(name), gradient, 1e-9, 1e-10, "two microbatches " + name);
  }
  const StepResult other = model.train(fields, Recompute::none, 1, kStep + 1);
  EXPECT_EQ(at::equal(other.loss, plain.loss), !drops);
}

}  // namespace orthant
