#include "orthant/specs/decoder_graph.h"

#include <fmt/format.h>

#include <utility>

#include "orthant/specs/parameter_kinds.h"

namespace orthant {

DecoderGraph::DecoderGraph(std::string name, std::int64_t hidden_size, const WorkSize& work, const DecoderUse& use)
    : work_(work), use_(use), hidden_size_(hidden_size), rank_(work), kept_(work.compute) {
  const Shape tokens = {work.rows, work.sequence};
  spec_.name = std::move(name);
  spec_.batch_fields = {batch_field("input_ids", tokens, DType::int64)};
  if (use_.mask) spec_.batch_fields.push_back(batch_field("attention_mask", tokens, DType::boolean));
  if (use_.loss) spec_.batch_fields.push_back(batch_field("labels", tokens, DType::int64));
}

double DecoderGraph::weight_flops(const UnitSpec& unit) const {
  double flops = 0;
  for (const auto& parameter : unit.parameters) {
    if (parameter.shape.size() != 2) continue;
    const Shape shape = rank_.parameter(parameter);
    flops += product_flops(rank_.num_tokens(), static_cast<double>(shape[0]), static_cast<double>(shape[1]));
  }
  return flops;
}

UnitSpec DecoderGraph::layer_unit(std::int64_t index, std::string kind) const {
  UnitSpec unit = make_unit(fmt::format("layers.{}", index), std::move(kind), {fmt::format("hidden.{}", index)},
                            {fmt::format("hidden.{}", index + 1)});
  if (use_.mask) unit.inputs.emplace_back("attention_mask");
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

void DecoderGraph::add_attention_flops(UnitCost& cost, std::int64_t heads, std::int64_t head_size) const {
  const double flops =
      attention_flops(static_cast<double>(work_.rows), static_cast<double>(rank_.part(heads)),
                      static_cast<double>(work_.sequence), static_cast<double>(head_size), /*causal=*/true);
  cost.forward_flops += flops;
  cost.input_flops += 2 * flops;
}

void DecoderGraph::add(UnitSpec unit, ValueSpec output) {
  unit.cost.output_bytes = kept_.activation(rank_.value(output));
  spec_.values.push_back(std::move(output));
  spec_.units.push_back(std::move(unit));
}

GraphSpec DecoderGraph::finish() {
  if (use_.loss) append_cross_entropy(spec_, work_);
  spec_.check();
  return std::move(spec_);
}

}  // namespace orthant
