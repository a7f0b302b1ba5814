#include <utility>

#include "orthant/models/graph_parts.h"
#include "orthant/models/parameter_kinds.h"
#include "orthant/models/trimodal/config.h"
#include "orthant/ops/functions.h"
#include "orthant/program/cost.h"

namespace orthant {
namespace {

// Of the linears outside the towers.
constexpr double kStddev = 0.02;
constexpr double kTabularEps = 1e-5;

Body tabular_body(const TabularConfig& tabular) {
  Recorder r;
  const Value numbers = ops::convert(r, r.rows("tabular", tabular.input_dim));
  const Value normed = ops::layer_norm(r, numbers, "norm.weight", "norm.bias", kTabularEps);
  const Value wide =
      ops::linear(r, normed, {.weight = "linear.weight", .bias = "linear.bias", .out = tabular.hidden_dim});
  r.output(ops::activation(r, wide, "relu"));
  return r.finish();
}

// Of the parts' vectors, side by side.
Body fusion_body(const GraphSpec& spec, const TrimodalConfig& config, const std::vector<std::string>& inputs) {
  Recorder r;
  std::vector<Value> parts;
  for (const auto& input : inputs) parts.push_back(r.rows(input, spec.value(input).shape.at(1)));
  const Value wide = ops::linear(r, ops::concat(r, parts),
                                 {.weight = "hidden.weight", .bias = "hidden.bias", .out = config.fusion.hidden_size});
  const Value active = ops::activation(r, wide, "relu", config.fusion.dropout, "dropout");
  r.output(ops::linear(r, active, {.weight = "output.weight", .bias = "output.bias", .out = config.num_labels}));
  return r.finish();
}

void append_tabular(GraphSpec& spec, const TabularConfig& tabular, const WorkSize& work) {
  const Shape input = {work.rows, tabular.input_dim};
  const Shape output = {work.rows, tabular.hidden_dim};
  spec.batch_fields.push_back(batch_field("tabular", input, work.compute));
  UnitSpec unit = make_unit("tabular", "trimodal.tabular", {"tabular"}, {"tabular.features"});
  unit.parameters = {matrix("tabular.linear.weight", tabular.hidden_dim, tabular.input_dim, kStddev),
                     bias("tabular.linear.bias", tabular.hidden_dim),
                     norm_weight("tabular.norm.weight", tabular.input_dim),
                     bias("tabular.norm.bias", tabular.input_dim)};
  unit.body = tabular_body(tabular);
  spec.values.push_back(activation_value("tabular.features", output, work.compute));
  spec.units.push_back(std::move(unit));
}

void append_fusion(GraphSpec& spec, const TrimodalConfig& config, std::vector<std::string> inputs,
                   const WorkSize& work) {
  std::int64_t width = 0;
  for (const auto& input : inputs) width += spec.value(input).shape.at(1);
  const FusionConfig& fusion = config.fusion;
  const Shape logits = {work.rows, config.num_labels};
  const Body body = fusion_body(spec, config, inputs);
  UnitSpec unit = make_unit("fusion", "trimodal.fusion", std::move(inputs), {"logits"});
  unit.body = body;
  unit.parameters = {matrix("fusion.hidden.weight", fusion.hidden_size, width, kStddev),
                     matrix("fusion.output.weight", config.num_labels, fusion.hidden_size, kStddev),
                     bias("fusion.hidden.bias", fusion.hidden_size), bias("fusion.output.bias", config.num_labels)};
  spec.values.push_back(activation_value("logits", logits, work.compute));
  spec.units.push_back(std::move(unit));
}

}  // namespace

GraphSpec trimodal_spec(const TrimodalConfig& config, const WorkSize& work) {
  refuse(find_problem(config), "trimodal");
  GraphSpec spec;
  spec.name = "trimodal";
  BertTower primary{"primary", config.primary, config.pooling, config.projection};
  append_bert_tower(spec, primary, work);
  BertTower secondary{"secondary", config.secondary, config.pooling, config.projection};
  if (config.shared_towers) secondary.borrow_from = "primary";
  WorkSize secondary_work = work;
  if (work.secondary_sequence != 0) secondary_work.sequence = work.secondary_sequence;
  append_bert_tower(spec, secondary, secondary_work);

  std::vector<std::string> features = {"primary.pooled", "secondary.pooled"};
  if (config.tabular) {
    append_tabular(spec, *config.tabular, work);
    features.push_back("tabular.features");
  }
  append_fusion(spec, config, std::move(features), work);
  spec.batch_fields.push_back(batch_field("labels", {work.rows}, DType::int64));
  append_cross_entropy(spec, work, config.class_weights);
  spec.check();
  add_costs(spec, work.tensor, {}, work.programs);
  return spec;
}

}  // namespace orthant
