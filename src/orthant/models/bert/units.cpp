#include "orthant/models/bert/units.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "orthant/nn/attention.h"
#include "orthant/nn/dropout.h"
#include "orthant/nn/embedding.h"
#include "orthant/nn/linear.h"
#include "orthant/nn/mlp.h"
#include "orthant/nn/norm.h"

namespace orthant::bert {
namespace {

// ids and mask [rows, sequence] -> hidden [rows, sequence, hidden]. All tokens are of segment 0.
class Embed : public Unit {
 public:
  Embed(const BertConfig& config, const UnitParameters& p, Tables& tables)
      : config_(config),
        tables_(tables),
        site_(p.spec().name + ".dropout"),
        word_(p["word.weight"]),
        position_(p["position.weight"]),
        token_type_(p["token_type.weight"]),
        norm_weight_(p["norm.weight"]),
        norm_bias_(p["norm.bias"]) {}

  Tensors forward(const Tensors& inputs, nn::Pass& pass) override {
    const auto& ids = inputs[0];
    const auto segments =
        tables_.get(fmt::format("segments {}", ids.size(1)), [&] { return at::zeros({ids.size(1)}, ids.options()); });
    const auto sum =
        nn::embedding({{ids, &word_}, {positions(ids, inputs[1]), &position_}, {segments, &token_type_}}, pass);
    const auto normed = nn::layer_norm(sum, norm_weight_, norm_bias_, config_.layer_norm_eps, pass);
    return {nn::dropout(normed, config_.hidden_dropout_prob, site_, pass)};
  }

 private:
  // BERT counts from 0; RoBERTa counts real tokens from the padding index + 1 and gives padding that index.
  at::Tensor positions(const at::Tensor& ids, const at::Tensor& mask) {
    if (config_.position_offset > 0) {
      const auto real = mask.to(at::kLong);
      return real.cumsum(1).mul_(real).add_(config_.position_offset - 1);
    }
    return tables_.get(fmt::format("positions {}", ids.size(1)),
                       [&] { return at::arange(ids.size(1), ids.options()); });
  }

  const BertConfig config_;
  Tables& tables_;
  std::string site_;
  nn::Parameter& word_;
  nn::Parameter& position_;
  nn::Parameter& token_type_;
  nn::Parameter& norm_weight_;
  nn::Parameter& norm_bias_;
};

// hidden, mask -> hidden: attention, then MLP, each followed by dropout, residual and LayerNorm.
class Layer : public Unit {
 public:
  Layer(const BertConfig& config, const UnitParameters& p)
      : config_(config),
        name_(p.spec().name),
        qkv_(p.joined("qkv")),
        qkv_bias_(p.joined("qkv_bias")),
        out_(p["attention.output.weight"]),
        out_bias_(p["attention.output.bias"]),
        norm1_(p["attention.norm.weight"]),
        norm1_bias_(p["attention.norm.bias"]),
        up_(p["mlp.up.weight"]),
        up_bias_(p["mlp.up.bias"]),
        down_(p["mlp.down.weight"]),
        down_bias_(p["mlp.down.bias"]),
        norm2_(p["mlp.norm.weight"]),
        norm2_bias_(p["mlp.norm.bias"]) {}

  Tensors forward(const Tensors& inputs, nn::Pass& pass) override {
    const auto& x = inputs[0];
    nn::AttentionOptions options;
    options.heads = config_.num_attention_heads;
    options.kv_heads = config_.num_attention_heads;
    options.head_size = config_.hidden_size / config_.num_attention_heads;
    options.key_mask = inputs[1];
    options.dropout = config_.attention_probs_dropout_prob;
    options.site = name_ + ".attention.probabilities";
    const auto attended = nn::attention(nn::linear(x, qkv_, &qkv_bias_, pass), out_, &out_bias_, options, pass);
    const auto middle =
        nn::dropout_add_layer_norm(attended, x, config_.hidden_dropout_prob, name_ + ".attention.dropout", norm1_,
                                   norm1_bias_, config_.layer_norm_eps, pass);
    const auto gelu = config_.hidden_act == Activation::gelu ? nn::Gelu::exact : nn::Gelu::tanh;
    const auto widened = nn::gelu_linear(nn::linear(middle, up_, &up_bias_, pass), gelu, down_, &down_bias_, pass);
    return {nn::dropout_add_layer_norm(widened, middle, config_.hidden_dropout_prob, name_ + ".mlp.dropout", norm2_,
                                       norm2_bias_, config_.layer_norm_eps, pass)};
  }

 private:
  const BertConfig config_;
  std::string name_;
  nn::Parameter& qkv_;
  nn::Parameter& qkv_bias_;
  nn::Parameter& out_;
  nn::Parameter& out_bias_;
  nn::Parameter& norm1_;
  nn::Parameter& norm1_bias_;
  nn::Parameter& up_;
  nn::Parameter& up_bias_;
  nn::Parameter& down_;
  nn::Parameter& down_bias_;
  nn::Parameter& norm2_;
  nn::Parameter& norm2_bias_;
};

// hidden [rows, sequence, hidden] -> [rows, width]: the first position, through a tanh layer and a projection when the
// model has them.
class Pooler : public Unit {
 public:
  explicit Pooler(const UnitParameters& p)
      : dense_(p.find("dense.weight")),
        dense_bias_(p.find("dense.bias")),
        projection_(p.find("projection.weight")),
        projection_bias_(p.find("projection.bias")) {}

  Tensors forward(const Tensors& inputs, nn::Pass& pass) override {
    auto first = inputs[0].select(1, 0).contiguous();
    if (dense_ != nullptr) first = nn::linear(first, *dense_, dense_bias_, pass).tanh();
    if (projection_ != nullptr) first = nn::linear(first, *projection_, projection_bias_, pass);
    return {first};
  }

 private:
  nn::Parameter* dense_;
  nn::Parameter* dense_bias_;
  nn::Parameter* projection_;
  nn::Parameter* projection_bias_;
};

}  // namespace

std::unique_ptr<Unit> make_unit(const BertConfig& config, const UnitParameters& parameters, Tables& tables) {
  const auto& kind = parameters.spec().kind;
  if (kind == "bert.embed") return std::make_unique<Embed>(config, parameters, tables);
  if (kind == "bert.layer") return std::make_unique<Layer>(config, parameters);
  if (kind == "bert.pooler") return std::make_unique<Pooler>(parameters);
  return nullptr;
}

}  // namespace orthant::bert
