#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "orthant/base/error.h"
#include "orthant/plan/estimate/formula_sizes.h"

namespace orthant {
namespace {

void check_covered(const TransformerShape& shape, const Stack& stack, const PlanSettings& settings) {
  if (shape.frozen) {
    throw ConfigError(fmt::format("stack {} trains every parameter; this model has frozen ones", stack.name),
                      {.remedy = "use --stack orthant, or a model without freeze"});
  }
  if (shape.longest > 0 && settings.sequence > shape.longest) {
    throw ConfigError(
        fmt::format("sequence {} is longer than the {} positions of the model", settings.sequence, shape.longest),
        {.remedy = fmt::format("set it to at most {}, or use a model with more positions", shape.longest)});
  }
  if (settings.recompute == PlanRecompute::op && !stack.recomputes_ops) {
    throw ConfigError(fmt::format("stack {} does not recompute op by op", stack.name),
                      {.remedy = "use recompute none, selective or full, or --stack torchtitan"});
  }
}

void check_degrees(const TransformerShape& shape, const Mesh& mesh) {
  const int tp = mesh.degree(Axis::tp);
  const int ep = mesh.degree(Axis::ep);
  if (shape.heads % tp != 0 || (shape.kv_heads % tp != 0 && tp % shape.kv_heads != 0)) {
    throw ConfigError(
        fmt::format("tp={} does not divide {} heads and {} key/value heads", tp, shape.heads, shape.kv_heads),
        {.remedy = "set tp to a divisor of both, or to a multiple of the key/value heads that divides the heads"});
  }
  if (shape.experts == 0 && ep > 1) {
    throw ConfigError(fmt::format("ep={}, and the model has no experts", ep), {.remedy = "leave ep out"});
  }
  if (shape.experts % ep != 0) {
    throw ConfigError(fmt::format("ep={} does not divide {} experts", ep, shape.experts),
                      {.remedy = "set ep to a divisor of them"});
  }
}

// The table of words on one tp rank.
double padded_words(const TransformerShape& shape, const Stack& stack, int tp) {
  const double multiple = std::max(1.0, stack.padded_words);
  return std::ceil(static_cast<double>(shape.vocab) / tp / multiple) * multiple;
}

UnitWork embedding_work(const TransformerShape& shape, const Stack& stack, const FormulaSizes& sizes) {
  UnitWork work;
  work.name = "embed";
  work.role = UnitRole::embedding;
  const auto tables = static_cast<double>(shape.positions + shape.token_types);
  work.parameters = (sizes.words + tables) * sizes.hidden;
  if (shape.embedding_norm) work.parameters += static_cast<double>(shape.norm_parameters());
  const double mask = shape.dropout ? stack.embedding_mask : 0;
  work.logits_bytes = mask * sizes.hidden * sizes.own;
  work.moved_bytes = 2 * sizes.hidden_bytes() + 4 * mask * sizes.hidden * sizes.own;
  work.backward_moved_bytes = work.moved_bytes;
  work.weights_moved_bytes = stack.accumulate_moved * work.parameters;
  work.kernels = shape.dropout ? 2 : 1;
  if (sizes.tp > 1) {
    const auto kind = sizes.cuts_tokens ? ExchangeKind::reduce_scatter : ExchangeKind::all_reduce;
    work.forward_exchanges = {{kind, Axis::tp, sizes.hidden_bytes()}};
    if (sizes.cuts_tokens) work.backward_exchanges = {{ExchangeKind::all_gather, Axis::tp, sizes.hidden_bytes()}};
  }
  work.output_bytes = sizes.message_bytes(stack);
  return work;
}

void set_head_parameters(UnitWork& work, const TransformerShape& shape, const FormulaSizes& sizes) {
  const double words = sizes.words * sizes.hidden;
  work.borrowed = shape.tied ? words : 0;
  work.parameters = words + (shape.head_bias ? sizes.words : 0);
  if (shape.final_norm) work.parameters += static_cast<double>(shape.norm_parameters());
  if (shape.head_dense) work.parameters += sizes.hidden * sizes.hidden + sizes.hidden;
}

void set_head_exchanges(UnitWork& work, const Stack& stack, const FormulaSizes& sizes) {
  if (sizes.tp == 1) return;
  const bool cuts_loss = sizes.loss_words == sizes.words;
  const auto inputs = sizes.cuts_tokens ? ExchangeKind::reduce_scatter : ExchangeKind::all_reduce;
  if (sizes.cuts_tokens) work.forward_exchanges = {{ExchangeKind::all_gather, Axis::tp, sizes.hidden_bytes()}};
  work.backward_exchanges = {{inputs, Axis::tp, sizes.hidden_bytes(), stack.overlaps_exchanges}};
  if (cuts_loss) {
    // Largest logits, sums of exponentials, logits of the targets.
    const PricedExchange numbers{ExchangeKind::all_reduce, Axis::tp, 4 * sizes.tokens};
    work.forward_exchanges.insert(work.forward_exchanges.end(), 3, numbers);
  } else {
    const double logits = sizes.element * sizes.tokens * sizes.loss_words;
    work.forward_exchanges.push_back({ExchangeKind::all_gather, Axis::tp, logits});
  }
}

UnitWork head_work(const TransformerShape& shape, const Stack& stack, const FormulaSizes& sizes) {
  UnitWork work;
  work.name = "head";
  work.role = UnitRole::head;
  set_head_parameters(work, shape, sizes);
  work.products = {{sizes.tokens, sizes.words, sizes.hidden}};
  if (shape.head_dense) work.products.push_back({sizes.own, sizes.hidden, sizes.hidden});
  const double logits = sizes.tokens * sizes.loss_words;
  const double normed = (shape.final_norm ? 1 : 0) + (shape.head_dense ? 2 : 0);
  work.logits_bytes = stack.head_input * sizes.hidden * (normed * sizes.own + sizes.column) + stack.logit * logits;
  const bool cut = sizes.tp > 1 && sizes.loss_words == sizes.words;
  work.forward_bytes = (stack.logit_working + (cut ? stack.cut_logit_working : 0)) * logits;
  work.backward_bytes = work.forward_bytes;
  work.deferred_bytes = sizes.element * (sizes.hidden * sizes.column + sizes.tokens * sizes.words);
  work.moved_bytes = 2 * sizes.element * sizes.hidden * sizes.own + stack.moved_logit * logits;
  work.backward_moved_bytes = work.moved_bytes;
  work.weights_moved_bytes = stack.accumulate_moved * work.parameters;
  work.kernels = static_cast<int>(work.products.size()) + 5;  // norm, loss
  set_head_exchanges(work, stack, sizes);
  return work;
}

}  // namespace

double FormulaSizes::message_bytes(const Stack& stack) const {
  if (cuts_tokens) return element * hidden * own;
  return hidden_bytes() / (stack.scatters_messages ? tp : 1);
}

FormulaSizes formula_sizes(const TransformerShape& shape, const Stack& stack, const PlanSettings& settings) {
  check_covered(shape, stack, settings);
  check_degrees(shape, settings.mesh);
  FormulaSizes sizes;
  sizes.tp = settings.mesh.degree(Axis::tp);
  sizes.cp = settings.mesh.degree(Axis::cp);
  sizes.ep = settings.mesh.degree(Axis::ep);
  sizes.cuts_tokens = sizes.tp > 1 && settings.tensor.sequence_parallel;
  sizes.regathers = sizes.cuts_tokens && (stack.runs_here ? settings.tensor.regather : stack.regathers);
  sizes.element = static_cast<double>(bytes_of(settings.compute));
  const auto rows = static_cast<double>(settings.micro_batch);
  const auto sequence = static_cast<double>(settings.sequence);
  sizes.tokens = rows * sequence / sizes.cp;
  sizes.own = sizes.cuts_tokens ? sizes.tokens / sizes.tp : sizes.tokens;
  sizes.column = sizes.regathers ? sizes.own : sizes.tokens;
  sizes.pairs = sizes.tokens * sequence;
  sizes.hidden = static_cast<double>(shape.hidden);
  sizes.heads = static_cast<double>(shape.heads) / sizes.tp;
  const auto head_size = static_cast<double>(shape.head_size);
  sizes.query = sizes.heads * head_size;
  sizes.key = std::max(1.0, static_cast<double>(shape.kv_heads) / sizes.tp) * head_size;
  sizes.inner = static_cast<double>(shape.inner) / sizes.tp;
  sizes.words = padded_words(shape, stack, sizes.tp);
  const bool cuts_loss = stack.runs_here ? settings.tensor.loss_parallel : stack.cuts_loss;
  sizes.loss_words = cuts_loss ? sizes.words : sizes.words * sizes.tp;
  // Every tp rank routes its part of the tokens, under sequence parallelism or not.
  // Experts that tp cuts take every token; whole ones share the tokens of their tp ranks.
  const double sharers = sizes.ep == 1 ? 1 : sizes.tp;
  const double skew = sizes.ep > 1 ? settings.expert_skew : 1;
  sizes.routed = skew * sizes.tokens / sharers * static_cast<double>(shape.experts_per_token);
  return sizes;
}

ModelWork formula_work(const TransformerShape& shape, const Stack& stack, const PlanSettings& settings) {
  const FormulaSizes sizes = formula_sizes(shape, stack, settings);
  ModelWork work = {embedding_work(shape, stack, sizes)};
  const UnitWork layer = formula_layer(shape, stack, settings, sizes);
  for (std::int64_t i = 0; i < shape.layers; ++i) {
    work.push_back(layer);
    work.back().name = fmt::format("layers.{}", i);
  }
  work.push_back(head_work(shape, stack, sizes));
  return work;
}

}  // namespace orthant
