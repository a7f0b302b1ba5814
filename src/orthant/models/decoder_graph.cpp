#include "orthant/models/decoder_graph.h"

#include <fmt/format.h>

#include <utility>

#include "orthant/models/parameter_kinds.h"
#include "orthant/program/cost.h"

namespace orthant {

DecoderGraph::DecoderGraph(std::string name, std::int64_t hidden_size, const WorkSize& work, const DecoderUse& use)
    : work_(work), use_(use), hidden_size_(hidden_size) {
  const Shape tokens = {work.rows, work.sequence};
  spec_.name = std::move(name);
  spec_.batch_fields = {batch_field("input_ids", tokens, DType::int64)};
  if (use_.mask) spec_.batch_fields.push_back(batch_field("attention_mask", tokens, DType::boolean));
  if (work.packed) spec_.batch_fields.push_back(batch_field("document_starts", tokens, DType::int64));
  if (use_.loss) spec_.batch_fields.push_back(batch_field("labels", tokens, DType::int64));
}

UnitSpec DecoderGraph::layer_unit(std::int64_t index, std::string kind) const {
  UnitSpec unit = make_unit(fmt::format("layers.{}", index), std::move(kind), {fmt::format("hidden.{}", index)},
                            {fmt::format("hidden.{}", index + 1)});
  if (use_.mask) unit.inputs.emplace_back("attention_mask");
  if (work_.packed) unit.inputs.emplace_back("document_starts");
  unit.recomputable = true;
  return unit;
}

UnitSpec DecoderGraph::head_unit(std::string kind, std::int64_t num_layers) const {
  return make_unit("head", std::move(kind), {fmt::format("hidden.{}", num_layers)}, {"logits"});
}

ValueSpec DecoderGraph::hidden(std::int64_t index) const {
  ValueSpec value = activation_value(fmt::format("hidden.{}", index), per_token(hidden_size_), work_.compute);
  value.tokens_of = "input_ids";
  value.sequence_sharded = true;
  return value;
}

ValueSpec DecoderGraph::logits(std::int64_t vocab_size) const {
  ValueSpec value = activation_value("logits", per_token(vocab_size), work_.compute);
  value.tokens_of = "input_ids";
  value.tp = split_dim(2);
  return value;
}

void DecoderGraph::add(UnitSpec unit, ValueSpec output) {
  spec_.values.push_back(std::move(output));
  spec_.units.push_back(std::move(unit));
}

GraphSpec DecoderGraph::finish() {
  if (use_.loss) append_cross_entropy(spec_, work_);
  spec_.check();
  add_costs(spec_, work_.tensor, {}, work_.programs);
  return std::move(spec_);
}

}  // namespace orthant
