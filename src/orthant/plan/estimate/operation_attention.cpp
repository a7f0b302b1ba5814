// Attention of OperationPrices: by a host's kernels, and of a device by a library, by our kernels or by ATen's
// formulas.
#include <algorithm>
#include <array>
#include <cmath>

#include "orthant/ops/attention_workspace.h"
#include "orthant/plan/estimate/operation_price.h"
#include "orthant/program/cost.h"

namespace orthant {
namespace {

// Of queries and keys of a narrow type, half of each head at a time, while a host turns them (ops/rotary/rotary.cpp):
// the two halves as they were, what becomes of one, and of the other with its two products.
constexpr double kTurnedHalves = 6;

// Of an H100 and an H200.
constexpr double kMultiprocessors = 132;

// Inputs of the gradient's operation.
enum : std::size_t { kQkv = 1, kBackMask = 2, kAttended = 3 };

}  // namespace

double OperationPrices::local_heads(const Operation& op) const {
  const int attended = op.name.ends_with("_back") ? op.in[kAttended] : op.out[op.name == "attention" ? 0 : 1];
  return std::max(1.0, channels(attended) / static_cast<double>(op.attributes.integer("head_size")));
}

double OperationPrices::scores(const Operation& op) const {
  return static_cast<double>(sizes_.tokens() * std::max(sizes_.sequence, sizes_.whole_sequence)) * local_heads(op);
}

double OperationPrices::head_scratch(const Operation& op) const {
  const auto size = static_cast<std::int64_t>(wide_);
  return static_cast<double>(size * attention_workspace(sizes_.sequence, sizes_.sequence,
                                                        op.attributes.integer("head_size"), size,
                                                        settings_.vector_bytes)
                                        .elements);
}

// A host draws where it uses them, and only what a mask leaves; ATen's formulas row by row, then all factors in one.
// What a device's kernels draw is in the time of their attention.
void OperationPrices::draw_scores(const Operation& op, double count) {
  if (!drops(op)) return;
  if (on_host_) {
    drawn += attended_share(op.attributes, std::max(sizes_.sequence, sizes_.whole_sequence)) * count;
    return;
  }
  moved += kFormulaDrawMoves * count;
  memory.for_a_while(count * std::max(kDrawnBytes / static_cast<double>(sizes_.rows) + wide_, 2 * wide_));
}

void OperationPrices::attention(const Operation& op, bool rotates) {
  if (is_over_context(op) && (on_host_ || heads_by(op, 1, sizes_) == HeadsBy::kernels)) {
    if (on_host_) draw_scores(op, scores(op));
    const Sums made = context_attention(op);
    const std::array<const Held*, 4> held = {&made.out, &made.lse, nullptr, &made.met};
    for (std::size_t i = 0; i < op.out.size(); ++i) {
      if (op.out[i] >= 0 && held.at(i) != nullptr) value(op.out[i]) = *held.at(i);
    }
    return;
  }
  const std::size_t first = rotates ? 1 : 0;
  const double count = elements(op.out[first]);
  const auto by = on_host_ ? HeadsBy::formulas : heads_by(op, 1, sizes_);
  if (rotates) {
    move(elements(op.in[0]) + count);  // queries and keys, in place
    value(op.out[0]) = value(op.in[0]);
  }
  const Held tables = on_host_ ? wide_tables(op) : Held();
  if (on_host_ && rotates && narrow()) memory.for_a_while(kTurnedHalves * (elements(op.in[0]) + count) / 4 * wide_);
  const Held statistics = take(op.out[first + 1]);
  value(op.out[first + 1]) = statistics;
  constexpr std::size_t kMet = 3;  // what all_to_all keeps in place of the projection
  if (shares_rows(op) && op.out.size() > kMet && op.out[kMet] >= 0) {
    value(op.out[kMet]) = narrow_values(elements(op.out[kMet]));
  }
  if (by == HeadsBy::library) {
    value(op.out[first]) = narrow_values(count);
  } else if (by == HeadsBy::kernels) {
    const auto rows = static_cast<double>(sizes_.rows), s = static_cast<double>(sizes_.sequence);
    value(op.out[first]) = narrow_values(count);
    if (drops(op) && op.out[first + 2] >= 0) {
      value(op.out[first + 2]) = memory.take(kept_bits(rows, local_heads(op), s));
    }
  } else if (!on_host_) {
    const Held wide = memory.take(scores(op) * wide_);
    memory.for_a_while(scores(op) * wide_);
    draw_scores(op, scores(op));
    value(op.out[first]) = narrow_values(count);
  } else {
    Held out;
    {
      const Held qkv = narrow() ? memory.take(elements(op.in[0]) * wide_) : Held();
      out = memory.take(count * wide_);
      memory.for_a_while(head_scratch(op));
      draw_scores(op, scores(op));
    }
    value(op.out[first]) = narrowed(std::move(out), count);
  }
}

// A host's kernels read sines and cosines in the type they compute in.
Held OperationPrices::wide_tables(const Operation& op) {
  if (!narrow() || op.attributes.find("theta") == nullptr) return {};
  return memory.take(static_cast<double>(sizes_.sequence * op.attributes.integer("head_size")) * wide_);
}

// Sums of the queries' gradient, and a number per row and head. Where all sums have one order, FlashAttention adds up
// parts of the keys apart, as many as it takes to keep the card busy, and gradients of keys and values head by head.
double OperationPrices::fused_sums(const Operation& op, double qkv, double out) const {
  const auto rows = static_cast<double>(sizes_.rows), all = static_cast<double>(sizes_.tokens());
  const double heads = local_heads(op);
  const double parts = settings_.deterministic ? std::ceil(kMultiprocessors / (rows * heads)) : 1;
  const bool shares_keys = qkv < 3 * out;
  const double by_head = settings_.deterministic && shares_keys ? 2 * out * element_ : 0;
  return (parts * out + all * heads) * wide_ + by_head;
}

Held OperationPrices::host_heads_back(const Operation& op, double qkv) {
  const double out = elements(op.in[kAttended]);
  const Held tables = wide_tables(op);
  const Held wide = narrow() ? memory.take((qkv + 2 * out) * wide_) : Held();
  const Held gradient = memory.take(qkv * wide_);
  memory.for_a_while(head_scratch(op));
  draw_scores(op, scores(op));
  return narrowed(gradient, qkv);
}

void OperationPrices::attention_back(const Operation& op, bool rotates) {
  const double qkv = elements(op.in[kQkv]), out = elements(op.in[kAttended]);
  Held& gradient = value(op.out[0]);
  if (on_host_) {
    move(2 * qkv);
    if (is_over_context(op)) draw_scores(op, scores(op));
    gradient = is_over_context(op) ? context_attention_back(op) : host_heads_back(op, qkv);
    return;
  }
  const auto by = heads_by(op, kBackMask, sizes_);
  if (is_over_context(op) && by == HeadsBy::kernels) {
    move(2 * qkv);
    gradient = context_attention_back(op);
    return;
  }
  if (by == HeadsBy::kernels) {  // gradients lie joined at once, and are turned back in place
    if (rotates) move(qkv + out);
    gradient = narrow_values(qkv);
    // Two numbers of each query; sums of the queries' gradients over blocks of keys, where there are several.
    const double numbers = 2 * static_cast<double>(sizes_.tokens()) * local_heads(op);
    memory.for_a_while((numbers + (sizes_.sequence > kKernelKeys ? out : 0)) * wide_);
    return;
  }
  move(2 * qkv);  // to join the gradients of queries, keys and values
  if (by == HeadsBy::library) {
    const Held apart = narrow_values(qkv);
    memory.for_a_while(fused_sums(op, qkv, out));
    gradient = narrow_values(qkv);
    return;
  }
  const Held probabilities = memory.take(2 * scores(op) * wide_);
  draw_scores(op, scores(op));
  const Held narrow_scores = memory.take(narrow() ? 2 * scores(op) * element_ : 0);
  gradient = narrow_values(qkv);
}

}  // namespace orthant
