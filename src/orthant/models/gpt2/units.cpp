#include "orthant/models/gpt2/units.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <utility>

#include "orthant/models/activation.h"
#include "orthant/models/logits.h"
#include "orthant/nn/attention.h"
#include "orthant/nn/dropout.h"
#include "orthant/nn/embedding.h"
#include "orthant/nn/linear.h"
#include "orthant/nn/mlp.h"
#include "orthant/nn/norm.h"

namespace orthant::gpt2 {
namespace {

// ids [rows, sequence] -> hidden [rows, sequence, hidden].
class Embed : public Unit {
 public:
  Embed(const Gpt2Config& config, const UnitParameters& p, Tables& tables)
      : dropout_(config.embd_pdrop),
        entries_(config.vocab_size),
        tables_(tables),
        words_(p["wte.weight"]),
        positions_(p["wpe.weight"]) {}

  Tensors forward(const Tensors& inputs, nn::Pass& pass) override {
    const auto& ids = inputs[0];
    const auto positions =
        tables_.rows("positions", ids.size(1), [&](std::int64_t rows) { return at::arange(rows, ids.options()); });
    const auto sum = nn::embedding({{ids, &words_, entries_}, {positions, &positions_}}, pass);
    return {nn::dropout(sum, dropout_, "embed.dropout", pass)};
  }

 private:
  double dropout_;
  std::int64_t entries_;
  Tables& tables_;
  nn::Parameter& words_;
  nn::Parameter& positions_;
};

// hidden (and a mask) -> hidden: norm, attention, dropout and residual; norm, MLP, dropout and residual.
class Layer : public Unit {
 public:
  Layer(const Gpt2Config& config, const UnitParameters& p)
      : config_(config),
        name_(p.spec().name),
        norm1_(p["ln_1.weight"]),
        norm1_bias_(p["ln_1.bias"]),
        qkv_(p["attn.c_attn.weight"]),
        qkv_bias_(p["attn.c_attn.bias"]),
        out_(p["attn.c_proj.weight"]),
        out_bias_(p["attn.c_proj.bias"]),
        norm2_(p["ln_2.weight"]),
        norm2_bias_(p["ln_2.bias"]),
        up_(p["mlp.c_fc.weight"]),
        up_bias_(p["mlp.c_fc.bias"]),
        down_(p["mlp.c_proj.weight"]),
        down_bias_(p["mlp.c_proj.bias"]) {}

  Tensors forward(const Tensors& inputs, nn::Pass& pass) override {
    const auto& x = inputs[0];
    // Without dropout residuals are added in the products.
    const bool fused = config_.resid_pdrop == 0 || !pass.training;
    nn::AttentionOptions options;
    options.head_size = config_.head_size();
    options.heads = out_.value.size(1) / options.head_size;  // of this rank
    options.kv_heads = options.heads;
    options.causal = true;
    if (inputs.size() > 1) options.key_mask = inputs[1];
    options.dropout = config_.attn_pdrop;
    options.site = name_ + ".attn.probabilities";
    const double eps = config_.layer_norm_epsilon;
    // What a norm makes is its product's alone: held on to, it would last to the end where backward needs nothing.
    auto first = nn::layer_norm_and_residual(x, norm1_, norm1_bias_, eps, pass);
    const auto qkv = nn::linear(std::exchange(first.norm, {}), qkv_, &qkv_bias_, pass);
    const auto attended = nn::attention(qkv, out_, &out_bias_, options, pass, fused ? first.residual : at::Tensor());
    const double p = config_.resid_pdrop;
    auto second = fused ? nn::layer_norm_and_residual(attended, norm2_, norm2_bias_, eps, pass)
                        : nn::dropout_add_layer_norm_and_residual(attended, first.residual, p, name_ + ".attn.dropout",
                                                                  norm2_, norm2_bias_, eps, pass);
    const auto wide = nn::linear(std::exchange(second.norm, {}), up_, &up_bias_, pass);
    const auto narrow = nn::activation_linear(wide, {nn_activation(config_.activation_function)}, down_, &down_bias_,
                                              pass, fused ? second.residual : at::Tensor());
    return {fused ? narrow : nn::dropout_add(narrow, second.residual, p, name_ + ".mlp.dropout", pass)};
  }

 private:
  const Gpt2Config config_;
  std::string name_;
  nn::Parameter& norm1_;
  nn::Parameter& norm1_bias_;
  nn::Parameter& qkv_;
  nn::Parameter& qkv_bias_;
  nn::Parameter& out_;
  nn::Parameter& out_bias_;
  nn::Parameter& norm2_;
  nn::Parameter& norm2_bias_;
  nn::Parameter& up_;
  nn::Parameter& up_bias_;
  nn::Parameter& down_;
  nn::Parameter& down_bias_;
};

// hidden -> logits [rows, sequence, vocabulary], or the loss; the matrix may be the embedding's.
class Head : public Unit {
 public:
  Head(const Gpt2Config& config, const UnitParameters& p)
      : eps_(config.layer_norm_epsilon),
        norm_(p["ln_f.weight"]),
        norm_bias_(p["ln_f.bias"]),
        logits_(p, config.tie_word_embeddings ? p["wte.weight"] : p["lm_head.weight"], nullptr) {}

  Tensors forward(const Tensors& inputs, nn::Pass& pass) override {
    return logits_.forward(nn::layer_norm(inputs[0], norm_, norm_bias_, eps_, pass), inputs, pass);
  }

 private:
  double eps_;
  nn::Parameter& norm_;
  nn::Parameter& norm_bias_;
  Logits logits_;
};

}  // namespace

std::unique_ptr<Unit> make_unit(const Gpt2Config& config, const UnitParameters& parameters, Tables& tables) {
  const auto& kind = parameters.spec().kind;
  if (kind == "gpt2.embed") return std::make_unique<Embed>(config, parameters, tables);
  if (kind == "gpt2.layer") return std::make_unique<Layer>(config, parameters);
  if (is_head(kind, "gpt2")) return std::make_unique<Head>(config, parameters);
  return nullptr;
}

}  // namespace orthant::gpt2
