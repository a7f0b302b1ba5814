#include "orthant/models/decoder_graph.h"

#include <fmt/format.h>

#include <utility>

#include "orthant/models/parameter_kinds.h"
#include "orthant/program/cost.h"
#include "orthant/program/sizes.h"

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

Value DecoderGraph::mask(Recorder& r) const {
  return use_.mask ? r.field("attention_mask", Sym::tokens, Number::mask) : Value{};
}

Value DecoderGraph::documents(Recorder& r) const {
  return work_.packed ? r.field("document_starts", Sym::tokens, Number::index) : Value{};
}

std::string DecoderGraph::next_layer() const {
  return fmt::format("layers.{}", num_layers_);
}

std::string DecoderGraph::hidden() const {
  return fmt::format("hidden.{}", num_layers_);
}

ValueSpec DecoderGraph::per_token(std::string name, std::int64_t channels) const {
  ValueSpec value = activation_value(std::move(name), {work_.rows, work_.sequence, channels}, work_.compute);
  value.tokens_of = "input_ids";
  return value;
}

void DecoderGraph::add(UnitSpec unit, DecoderUnit made, ValueSpec output) {
  unit.kind = std::move(made.kind);
  unit.body = std::move(made.body);
  unit.parameters = std::move(made.parameters);
  unit.borrowed = std::move(made.borrowed);
  unit.outputs.insert(unit.outputs.begin(), output.name);
  spec_.values.push_back(std::move(output));
  spec_.units.push_back(std::move(unit));
}

void DecoderGraph::add_embed(DecoderUnit made, bool reads_documents) {
  UnitSpec unit = make_unit("embed", {}, {"input_ids"}, {});
  if (work_.packed && reads_documents) unit.inputs.emplace_back("document_starts");
  unit.backward_reads_parameters = false;
  ValueSpec output = per_token(hidden(), hidden_size_);
  output.sequence_sharded = true;
  add(std::move(unit), std::move(made), std::move(output));
}

void DecoderGraph::add_layer(DecoderUnit made, bool has_loss) {
  UnitSpec unit = make_unit(next_layer(), {}, {hidden()}, {});
  if (use_.mask) unit.inputs.emplace_back("attention_mask");
  if (work_.packed) unit.inputs.emplace_back("document_starts");
  unit.recomputable = true;
  if (has_loss) {
    unit.inputs.emplace_back("labels");
    unit.auxiliary_loss = unit.name + ".router_loss";
    unit.outputs.push_back(unit.auxiliary_loss);
    spec_.values.push_back(activation_value(unit.auxiliary_loss, {}, statistics_dtype(work_.compute)));
  }
  ++num_layers_;
  ValueSpec output = per_token(hidden(), hidden_size_);
  output.sequence_sharded = true;
  add(std::move(unit), std::move(made), std::move(output));
}

void DecoderGraph::add_head(DecoderUnit made, std::int64_t vocab_size) {
  ValueSpec output = per_token("logits", vocab_size);
  output.tp = split_dim(2);
  add(make_unit("head", {}, {hidden()}, {}), std::move(made), std::move(output));
}

GraphSpec DecoderGraph::finish() {
  if (use_.loss) append_cross_entropy(spec_, work_);
  spec_.check();
  add_costs(spec_, work_.tensor, {}, work_.programs);
  return std::move(spec_);
}

}  // namespace orthant
