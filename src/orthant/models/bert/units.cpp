#include "orthant/models/bert/units.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "orthant/models/activation.h"
#include "orthant/models/logits.h"
#include "orthant/models/post_norm_layer.h"
#include "orthant/nn/dropout.h"
#include "orthant/nn/embedding.h"
#include "orthant/nn/linear.h"
#include "orthant/nn/norm.h"

namespace orthant::bert {
namespace {

// ids and, in some graphs, token types [rows, sequence] -> hidden [rows, sequence, hidden]. Without token types all
// tokens are of type 0.
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
    const auto types = inputs.size() > 1 ? inputs[1] : tables_.rows("token types", ids.size(1), [&](std::int64_t rows) {
      return at::zeros({rows}, ids.options());
    });
    const auto sum =
        nn::embedding({{ids, &word_, config_.vocab_size}, {positions(ids), &position_}, {types, &token_type_}}, pass);
    const auto normed = nn::layer_norm(sum, norm_weight_, norm_bias_, config_.layer_norm_eps, pass);
    return {nn::dropout(normed, config_.hidden_dropout_prob, site_, pass)};
  }

 private:
  // BERT counts from 0. RoBERTa counts the ids that are not padding, whatever the mask says, from the padding's id + 1
  // on, and gives padding that id.
  at::Tensor positions(const at::Tensor& ids) {
    if (config_.counts_tokens()) {
      const auto real = ids.ne(config_.pad_token_id).to(at::kLong);
      return real.cumsum(1).mul_(real).add_(config_.position_offset - 1);
    }
    return tables_.rows("positions", ids.size(1), [&](std::int64_t rows) { return at::arange(rows, ids.options()); });
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
    auto first = nn::first_positions(inputs[0], pass);
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

// hidden [rows, sequence, hidden] -> logits [rows, sequence, vocabulary] of masked words, or the loss; the last matrix
// is the word embedding's.
class Head : public Unit {
 public:
  Head(const BertModelConfig& config, const UnitParameters& p)
      : activation_(nn_activation(config.head_activation())),
        eps_(config.encoder.layer_norm_eps),
        dense_(p["dense.weight"]),
        dense_bias_(p["dense.bias"]),
        norm_(p["norm.weight"]),
        norm_bias_(p["norm.bias"]),
        logits_(p, p["word.weight"], &p["bias"]) {}

  Tensors forward(const Tensors& inputs, nn::Pass& pass) override {
    const auto active = nn::plain_activate(activation_, nn::linear(inputs[0], dense_, &dense_bias_, pass));
    return logits_.forward(nn::layer_norm(active, norm_, norm_bias_, eps_, pass), inputs, pass);
  }

 private:
  nn::ActivationKind activation_;
  double eps_;
  nn::Parameter& dense_;
  nn::Parameter& dense_bias_;
  nn::Parameter& norm_;
  nn::Parameter& norm_bias_;
  Logits logits_;
};

PostNormLayer layer_of(const BertConfig& config) {
  PostNormLayer layer;
  layer.head_size = config.head_size();
  layer.eps = config.layer_norm_eps;
  layer.activation = nn_activation(config.hidden_act);
  layer.attention_dropout = config.attention_probs_dropout_prob;
  layer.dropout = config.hidden_dropout_prob;
  return layer;
}

}  // namespace

std::unique_ptr<Unit> make_unit(const BertConfig& config, const UnitParameters& parameters, Tables& tables) {
  const auto& kind = parameters.spec().kind;
  if (kind == "bert.embed") return std::make_unique<Embed>(config, parameters, tables);
  if (kind == "bert.layer") return make_post_norm_layer(layer_of(config), parameters);
  if (kind == "bert.pooler") return std::make_unique<Pooler>(parameters);
  return nullptr;
}

std::unique_ptr<Unit> make_unit(const BertModelConfig& config, const UnitParameters& parameters, Tables& tables) {
  if (is_head(parameters.spec().kind, "bert")) return std::make_unique<Head>(config, parameters);
  return make_unit(config.encoder, parameters, tables);
}

}  // namespace orthant::bert
