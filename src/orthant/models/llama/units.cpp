#include "orthant/models/llama/units.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "orthant/nn/attention.h"
#include "orthant/nn/embedding.h"
#include "orthant/nn/linear.h"
#include "orthant/nn/mlp.h"
#include "orthant/nn/norm.h"

namespace orthant::llama {
namespace {

// ids [rows, sequence] -> hidden [rows, sequence, hidden].
class Embed : public Unit {
 public:
  explicit Embed(const UnitParameters& p) : table_(p["weight"]) {}

  Tensors forward(const Tensors& inputs, nn::Pass& pass) override {
    return {nn::embedding({{inputs[0], &table_}}, pass)};
  }

 private:
  nn::Parameter& table_;
};

// hidden -> hidden: norm, attention and residual; norm, SwiGLU MLP and residual.
class Layer : public Unit {
 public:
  Layer(const LlamaConfig& config, const UnitParameters& p, Tables& tables)
      : config_(config),
        tables_(tables),
        norm1_(p["norm1.weight"]),
        qkv_(p.joined("qkv")),
        out_(p["attention.wo.weight"]),
        norm2_(p["norm2.weight"]),
        gate_up_(p.joined("gate_up")),
        down_(p["mlp.w2.weight"]) {}

  Tensors forward(const Tensors& inputs, nn::Pass& pass) override {
    const auto& x = inputs[0];
    const auto qkv = nn::linear(nn::rms_norm(x, norm1_, config_.rms_norm_eps, pass), qkv_, nullptr, pass);
    const auto attended = nn::attention(qkv, out_, nullptr, options(x), pass, x);
    const auto gate_up =
        nn::linear(nn::rms_norm(attended, norm2_, config_.rms_norm_eps, pass), gate_up_, nullptr, pass);
    return {nn::swiglu_linear(gate_up, down_, nullptr, pass, attended)};
  }

 private:
  // The same for every microbatch of one length.
  const nn::AttentionOptions& options(const at::Tensor& x) {
    if (sequence_ == x.size(1)) return options_;
    sequence_ = x.size(1);
    options_.heads = config_.num_attention_heads;
    options_.kv_heads = config_.kv_heads();
    options_.head_size = config_.head_size();
    options_.causal = true;
    const auto table = [&](std::string_view part) {
      const auto key = fmt::format("rotary.{} {} {} {}", part, sequence_, options_.head_size, config_.rope_theta);
      return tables_.get(key, [&] {
        const auto both =
            nn::rotary_table(sequence_, options_.head_size, config_.rope_theta, x.options().requires_grad(false));
        return part == "cos" ? both.cos : both.sin;
      });
    };
    options_.rotary = {table("cos"), table("sin")};
    return options_;
  }

  const LlamaConfig config_;
  Tables& tables_;
  nn::AttentionOptions options_;
  std::int64_t sequence_ = -1;  // that options_ are for
  nn::Parameter& norm1_;
  nn::Parameter& qkv_;
  nn::Parameter& out_;
  nn::Parameter& norm2_;
  nn::Parameter& gate_up_;
  nn::Parameter& down_;
};

// hidden -> logits [rows, sequence, vocabulary]; the matrix may be the embedding's.
class Head : public Unit {
 public:
  Head(const LlamaConfig& config, const UnitParameters& p)
      : eps_(config.rms_norm_eps), norm_(p["norm.weight"]), weight_(p["weight"]) {}

  Tensors forward(const Tensors& inputs, nn::Pass& pass) override {
    return {nn::linear(nn::rms_norm(inputs[0], norm_, eps_, pass), weight_, nullptr, pass)};
  }

 private:
  double eps_;
  nn::Parameter& norm_;
  nn::Parameter& weight_;
};

}  // namespace

std::unique_ptr<Unit> make_unit(const LlamaConfig& config, const UnitParameters& parameters, Tables& tables) {
  const auto& kind = parameters.spec().kind;
  if (kind == "llama.embed") return std::make_unique<Embed>(parameters);
  if (kind == "llama.layer") return std::make_unique<Layer>(config, parameters, tables);
  if (kind == "llama.head") return std::make_unique<Head>(config, parameters);
  return nullptr;
}

}  // namespace orthant::llama
