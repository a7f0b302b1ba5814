#include "orthant/models/bert/tower.h"

#include <utility>

#include "orthant/models/graph_parts.h"
#include "orthant/models/parameter_kinds.h"
#include "orthant/ops/functions.h"
#include "orthant/program/cost.h"

namespace orthant {
namespace {

Body head_body(const BertModelConfig& config) {
  Recorder r;
  const std::int64_t h = config.encoder.hidden_size;
  const Value x = r.tokens("hidden", h);
  const Value dense = ops::linear(r, x, {.weight = "dense.weight", .bias = "dense.bias", .out = h});
  const Value active = ops::activation(r, dense, operation_name(config.head_activation()));
  const Value normed = ops::layer_norm(r, active, "norm.weight", "norm.bias", config.encoder.layer_norm_eps);
  r.output(ops::linear(r, normed, {.weight = "word.weight", .bias = "bias", .out = config.encoder.vocab_size}));
  return r.finish();
}

void append_head(GraphSpec& spec, const BertModelConfig& config, const BertTower& tower, const WorkSize& work) {
  const std::int64_t h = config.encoder.hidden_size;
  const std::int64_t vocab = config.encoder.vocab_size;
  UnitSpec unit = make_unit("head", "bert.head", {tower.last_hidden()}, {"logits"});
  unit.borrowed = {"embed.word.weight"};
  unit.body = head_body(config);
  unit.parameters = {along_sequence(matrix("head.dense.weight", h, h, config.encoder.initializer_range)),
                     along_sequence(bias("head.dense.bias", h)), along_sequence(norm_weight("head.norm.weight", h)),
                     along_sequence(bias("head.norm.bias", h)), bias("head.bias", vocab, split_dim(0))};
  ValueSpec logits = activation_value("logits", {work.rows, work.sequence, vocab}, work.compute);
  logits.tokens_of = tower.ids();
  logits.tp = split_dim(2);
  spec.values.push_back(std::move(logits));
  spec.units.push_back(std::move(unit));
}

}  // namespace

GraphSpec bert_model_spec(const BertModelConfig& config, const WorkSize& work) {
  GraphSpec spec;
  spec.name = "bert";
  const BertTower tower{.prefix = "", .config = config.encoder};
  append_bert_encoder(spec, tower, work);
  append_head(spec, config, tower, work);
  spec.batch_fields.push_back(batch_field("labels", {work.rows, work.sequence}, DType::int64));
  append_cross_entropy(spec, work);
  spec.check();
  add_costs(spec, work.tensor, {}, work.programs);
  return spec;
}

GraphSpec bert_forward_spec(const BertModelConfig& config, const WorkSize& work, bool pooler) {
  GraphSpec spec;
  spec.name = "bert";
  const BertTower tower{.prefix = "", .config = config.encoder};
  append_bert_encoder(spec, tower, work);
  if (pooler) append_bert_pooler(spec, tower, work);
  spec.check();
  add_costs(spec, work.tensor, {}, work.programs);
  return spec;
}

}  // namespace orthant
