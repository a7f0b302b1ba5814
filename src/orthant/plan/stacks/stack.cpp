#include "orthant/plan/stacks/stack.h"

#include <fmt/format.h>

#include <algorithm>

#include "orthant/base/error.h"
#include "orthant/base/json_reader.h"
#include "orthant/base/nearest.h"
#include "orthant/plan/plan_data.h"

namespace orthant {
namespace {

// Calls visit(key, field) for every key of a stack's file.
template <typename Visit>
void visit_states(Stack& stack, const Visit& visit) {
  visit("runs_here", stack.runs_here);
  visit("parameter_bytes", stack.parameter_bytes);
  visit("extra_gradient_bytes", stack.extra_gradient_bytes);
  visit("optimizer_bytes", stack.optimizer_bytes);
  visit("whole_units", stack.whole_units);
  visit("whole_gradients", stack.whole_gradients);
  visit("keeps_gathered", stack.keeps_gathered);
  visit("reserve_bytes", stack.reserve_bytes);
  visit("reserve_share", stack.reserve_share);
}

template <typename Visit>
void visit_kept(Stack& stack, const Visit& visit) {
  visit("norm_input", stack.norm_input);
  visit("norm_statistic", stack.norm_statistic);
  visit("column_input", stack.column_input);
  visit("dropout_mask", stack.dropout_mask);
  visit("projection", stack.projection);
  visit("score", stack.score);
  visit("score_dropout", stack.score_dropout);
  visit("score_statistic", stack.score_statistic);
  visit("plain_channel", stack.plain_channel);
  visit("gated_channel", stack.gated_channel);
  visit("routed_token", stack.routed_token);
  visit("regathers", stack.regathers);
  visit("selective_keeps_heads", stack.selective_keeps_heads);
  visit("recomputes_ops", stack.recomputes_ops);
  visit("embedding_mask", stack.embedding_mask);
  visit("head_input", stack.head_input);
  visit("logit", stack.logit);
  visit("logit_working", stack.logit_working);
  visit("cut_logit_working", stack.cut_logit_working);
  visit("cuts_loss", stack.cuts_loss);
  visit("padded_words", stack.padded_words);
}

template <typename Visit>
void visit_moved(Stack& stack, const Visit& visit) {
  visit("moved_hidden", stack.moved_hidden);
  visit("moved_projection", stack.moved_projection);
  visit("moved_score", stack.moved_score);
  visit("moved_score_dropout", stack.moved_score_dropout);
  visit("moved_plain_channel", stack.moved_plain_channel);
  visit("moved_gated_channel", stack.moved_gated_channel);
  visit("moved_logit", stack.moved_logit);
  visit("moved_in_backward", stack.moved_in_backward);
  visit("accumulate_moved", stack.accumulate_moved);
  visit("causal_flops", stack.causal_flops);
  visit("scatters_messages", stack.scatters_messages);
  visit("overlaps_gradients", stack.overlaps_gradients);
  visit("overlaps_messages", stack.overlaps_messages);
  visit("overlaps_exchanges", stack.overlaps_exchanges);
  visit("gathers_per_unit", stack.gathers_per_unit);
  visit("gather_share", stack.gather_share);
  visit("optimizer_moved", stack.optimizer_moved);
}

void read_field(JsonReader& reader, std::string_view key, bool& field) {
  field = reader.get<bool>(key, field);
}

void read_field(JsonReader& reader, std::string_view key, double& field) {
  field = reader.get<double>(key, field);
  if (field < 0) reader.fail(key, fmt::format("{} is below 0", field), "give what is kept or moved, or 0");
}

Stack read_stack(const std::string& name, const JsonDocument& document) {
  JsonReader reader(document);
  Stack stack;
  if (const auto preset = reader.find<std::string>("preset")) {
    const auto names = stack_names();
    if (std::ranges::find(names, *preset) == names.end()) {
      reader.fail("preset", fmt::format("unknown stack \"{}\"", *preset), did_you_mean(*preset, names));
    }
    stack = find_stack(*preset);
  }
  stack.name = name;
  stack.description = reader.get<std::string>("description", stack.description);
  const auto read = [&](std::string_view key, auto& field) { read_field(reader, key, field); };
  visit_states(stack, read);
  visit_kept(stack, read);
  visit_moved(stack, read);
  reader.finish();
  return stack;
}

}  // namespace

std::vector<std::string> stack_names() {
  return plan_data_names("stacks/", ".json");
}

Stack find_stack(const std::string& name_or_path) {
  const auto [name, document] = find_plan_document("stack", "stacks/", name_or_path);
  return read_stack(name, document);
}

}  // namespace orthant
