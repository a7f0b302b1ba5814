#include "orthant/models/llama/units.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <utility>

#include "orthant/models/logits.h"
#include "orthant/nn/attention.h"
#include "orthant/nn/embedding.h"
#include "orthant/nn/linear.h"
#include "orthant/nn/mlp.h"
#include "orthant/nn/norm.h"

namespace orthant::llama {
namespace {

// ids [rows, sequence] -> hidden [rows, sequence, hidden], or of own tokens where the pass cuts them.
class Embed : public Unit {
 public:
  Embed(const LlamaConfig& config, const UnitParameters& p) : entries_(config.vocab_size), table_(p["weight"]) {}

  Tensors forward(const Tensors& inputs, nn::Pass& pass) override {
    return {nn::embedding({{inputs[0], &table_, entries_}}, pass)};
  }

 private:
  std::int64_t entries_;
  nn::Parameter& table_;
};

// hidden (and a mask) -> hidden: norm, attention and residual; norm, SwiGLU MLP and residual.
class Layer : public Unit {
 public:
  Layer(const LlamaConfig& config, const UnitParameters& p, Tables& tables)
      : config_(config),
        tables_(tables),
        norm1_(p["norm1.weight"]),
        qkv_(p.joined("qkv")),
        qkv_bias_(config.attention_bias ? &p.joined("qkv_bias") : nullptr),
        out_(p["attention.wo.weight"]),
        out_bias_(p.find("attention.wo.bias")),
        norm2_(p["norm2.weight"]),
        gate_up_(p.joined("gate_up")),
        gate_up_bias_(config.mlp_bias ? &p.joined("gate_up_bias") : nullptr),
        down_(p["mlp.w2.weight"]),
        down_bias_(p.find("mlp.w2.bias")) {
    options_.site = p.spec().name + ".attention.probabilities";
  }

  Tensors forward(const Tensors& inputs, nn::Pass& pass) override {
    const auto& x = inputs[0];
    const double eps = config_.rms_norm_eps;
    prepare(x, pass.sequence);
    options_.key_mask = inputs.size() > 1 ? inputs[1] : at::Tensor();
    // What a norm makes is its product's alone: held on to, it would last to the end where backward needs nothing.
    auto first = nn::rms_norm_and_residual(x, norm1_, eps, pass);
    const auto qkv = nn::linear(std::exchange(first.norm, {}), qkv_, qkv_bias_, pass);
    const auto attended = nn::attention(qkv, out_, out_bias_, options_, pass, first.residual);
    auto second = nn::rms_norm_and_residual(attended, norm2_, eps, pass);
    const auto gate_up = nn::linear(std::exchange(second.norm, {}), gate_up_, gate_up_bias_, pass);
    return {nn::activation_linear(gate_up, {nn::ActivationKind::swiglu}, down_, down_bias_, pass, second.residual)};
  }

 private:
  // The options but the mask, which are the same for every microbatch of one length.
  void prepare(const at::Tensor& x, std::int64_t sequence) {
    if (sequence_ == sequence) return;
    sequence_ = sequence;
    options_.head_size = config_.head_size();
    options_.heads = out_.value.size(1) / options_.head_size;  // of this rank
    options_.kv_heads = (qkv_.value.size(0) / options_.head_size - options_.heads) / 2;
    options_.causal = true;
    options_.dropout = config_.attention_dropout;
    // Dynamic frequencies are those of one length; all others serve every length.
    const bool dynamic = config_.rope_scaling.kind == RopeScaling::Kind::dynamic;
    const auto name = fmt::format("rotary {} {} {}", options_.head_size, config_.rope_theta, dynamic ? sequence_ : 0);
    const auto table = [&](const char* part, at::Tensor nn::RotaryTable::* member) {
      return tables_.rows(fmt::format("{} {}", name, part), sequence_, [&](std::int64_t positions) {
        return rotary(positions, x.options().requires_grad(false)).*member;
      });
    };
    options_.rotary = {table("cos", &nn::RotaryTable::cos), table("sin", &nn::RotaryTable::sin)};
  }

  nn::RotaryTable rotary(std::int64_t positions, const at::TensorOptions& options) const {
    const auto frequencies = rope_frequencies(config_.rope_scaling, config_.rope_theta, config_.head_size(),
                                              config_.max_position_embeddings, sequence_);
    return nn::rotary_table(positions, inverse_frequencies(frequencies.inverse, options), frequencies.magnitude,
                            options);
  }

  // Pretrained weights have seen angles in float32, powers and products rounded as torch rounds them: at position 1000
  // an exact angle differs by 1e-4. So they are computed alike, except in float64.
  at::Tensor inverse_frequencies(const std::vector<double>& exact, const at::TensorOptions& options) const {
    const auto doubles = at::tensor(exact, at::dtype(at::kDouble));
    if (options.dtype() == at::kDouble) return doubles;
    const auto powers = [&](at::ScalarType type) {
      const auto exponents = at::arange(0, config_.head_size(), 2, at::dtype(type)) / config_.head_size();
      return at::pow(config_.rope_theta, exponents).reciprocal();
    };
    return powers(at::kFloat) * (doubles / powers(at::kDouble)).to(at::kFloat);  // the quotient is the scaling
  }

  const LlamaConfig config_;
  Tables& tables_;
  nn::AttentionOptions options_;
  std::int64_t sequence_ = -1;  // that options_ are for
  nn::Parameter& norm1_;
  nn::Parameter& qkv_;
  nn::Parameter* qkv_bias_;
  nn::Parameter& out_;
  nn::Parameter* out_bias_;
  nn::Parameter& norm2_;
  nn::Parameter& gate_up_;
  nn::Parameter* gate_up_bias_;
  nn::Parameter& down_;
  nn::Parameter* down_bias_;
};

// hidden -> logits [rows, sequence, vocabulary], or this rank's words, or the loss; the matrix may be the embedding's.
class Head : public Unit {
 public:
  Head(const LlamaConfig& config, const UnitParameters& p)
      : eps_(config.rms_norm_eps), norm_(p["norm.weight"]), logits_(p, p["weight"], nullptr) {}

  Tensors forward(const Tensors& inputs, nn::Pass& pass) override {
    return logits_.forward(nn::rms_norm(inputs[0], norm_, eps_, pass), inputs, pass);
  }

 private:
  double eps_;
  nn::Parameter& norm_;
  Logits logits_;
};

}  // namespace

std::unique_ptr<Unit> make_unit(const LlamaConfig& config, const UnitParameters& parameters, Tables& tables) {
  const auto& kind = parameters.spec().kind;
  if (kind == "llama.embed") return std::make_unique<Embed>(config, parameters);
  if (kind == "llama.layer") return std::make_unique<Layer>(config, parameters, tables);
  if (is_head(kind, "llama")) return std::make_unique<Head>(config, parameters);
  return nullptr;
}

}  // namespace orthant::llama
