// Attention of UnitFunctions: by a host's kernels, and of a device by a library, by our kernels or by ATen's formulas.
#include <algorithm>
#include <cmath>

#include "orthant/plan/unit_functions.h"

namespace orthant {
namespace {

// Keys, values and their gradients of a head, packed; and a block of scores with its gradient.
constexpr double kPackedMatrices = 5;
constexpr double kBlockBytes = 64 * 1024;

// Of an H100 and an H200.
constexpr double kMultiprocessors = 132;

}  // namespace

double UnitFunctions::head_scratch(double channels) const {
  const double head_size = channels / std::max(sizes_.heads, 1.0);
  const double scores = std::min(kBlockBytes, sizes_.sequence * sizes_.sequence * sizes_.wide);
  return kPackedMatrices * sizes_.sequence * head_size * sizes_.wide + 2 * scores;
}

// A host draws where it uses them, and only what a mask leaves; ATen's formulas row by row, then all factors in one.
// What a device's kernels draw is in the time of their attention.
void UnitFunctions::draw_scores() {
  if (!sizes_.drops_scores) return;
  if (sizes_.on_host) {
    drawn += sizes_.seen * scores();
    return;
  }
  moved += kFormulaDrawMoves * scores();
  for_a_while(scores() * std::max(kDrawnBytes / sizes_.rows + sizes_.wide, 2 * sizes_.wide));
}

UnitFunctions::Heads UnitFunctions::heads_forward(double qkv_channels, double channels) {
  const double tokens = sizes_.tokens();
  const Held statistics = memory.take(tokens * sizes_.heads * sizes_.wide);
  if (sizes_.heads_by == HeadsBy::library) return {values(tokens, channels), statistics, {}};
  if (sizes_.heads_by == HeadsBy::kernels) {
    const double bits = sizes_.drops_scores ? kept_bits(sizes_.rows, sizes_.heads, sizes_.sequence) : 0;
    return {values(tokens, channels), statistics, memory.take(bits)};
  }
  if (!sizes_.on_host) {
    const Held wide = memory.take(scores() * sizes_.wide);
    for_a_while(scores() * sizes_.wide);
    draw_scores();
    return {values(tokens, channels), statistics, {}};
  }
  Held out;
  {
    const Held qkv = sizes_.narrow() ? memory.take(tokens * qkv_channels * sizes_.wide) : Held();
    out = memory.take(tokens * channels * sizes_.wide);
    for_a_while(head_scratch(channels));
    draw_scores();
  }
  return {narrowed(std::move(out), tokens * channels), statistics, {}};
}

// Sums of the queries' gradient, and a number per row and head. Where all sums have one order, FlashAttention adds up
// parts of the keys apart, as many as it takes to keep the card busy, and gradients of keys and values head by head.
double UnitFunctions::fused_sums(double qkv_channels, double channels) const {
  const double tokens = sizes_.tokens();
  const double parts = sizes_.repeatable ? std::ceil(kMultiprocessors / (sizes_.rows * sizes_.heads)) : 1;
  const bool shares_keys = qkv_channels < 3 * channels;
  const double by_head = sizes_.repeatable && shares_keys ? 2 * tokens * channels * sizes_.element : 0;
  return tokens * (parts * channels + sizes_.heads) * sizes_.wide + by_head;
}

Held UnitFunctions::heads_back(double qkv_channels, double channels) {
  const double tokens = sizes_.tokens();
  if (sizes_.heads_by == HeadsBy::kernels) {  // gradients lie joined at once, and are turned back in place
    if (sizes_.rotates) move(tokens * (qkv_channels + channels));
    Held gradient = values(tokens, qkv_channels);
    for_a_while(tokens * sizes_.heads * sizes_.wide);
    return gradient;
  }
  move(2 * tokens * qkv_channels);  // to join the gradients of queries, keys and values
  if (sizes_.heads_by == HeadsBy::library) {
    const Held apart = values(tokens, qkv_channels);
    for_a_while(fused_sums(qkv_channels, channels));
    return values(tokens, qkv_channels);
  }
  if (!sizes_.on_host) {
    const Held probabilities = memory.take(2 * scores() * sizes_.wide);
    draw_scores();
    const Held narrow = memory.take(sizes_.narrow() ? 2 * scores() * sizes_.element : 0);
    return values(tokens, qkv_channels);
  }
  const Held wide = sizes_.narrow() ? memory.take(tokens * (qkv_channels + 2 * channels) * sizes_.wide) : Held();
  const Held gradient = memory.take(tokens * qkv_channels * sizes_.wide);
  for_a_while(head_scratch(channels));
  draw_scores();
  return narrowed(gradient, tokens * qkv_channels);
}

Held UnitFunctions::attention(const Held& qkv, const SizedWeight& qkv_weight, const SizedWeight& weight,
                              Attention& kept) {
  if (sizes_.rotates) move(sizes_.tokens() * (qkv_weight.out + weight.in));  // queries and keys, in place
  const Heads heads = heads_forward(qkv_weight.out, weight.in);
  if (records) {
    kept = sizes_.selective ? Attention{qkv, {}, {}, {}} : Attention{qkv, heads.out, heads.statistics, heads.bits};
  }
  return project_out(weight);
}

Held UnitFunctions::attention_back(const Held& gy, Attention kept, const SizedWeight& qkv_weight,
                                   const SizedWeight& weight) {
  const Heads heads =
      sizes_.selective ? heads_forward(qkv_weight.out, weight.in) : Heads{kept.out, kept.statistics, kept.bits};
  const Held all = all_tokens(gy, weight);
  Held gradient;
  {
    const Held d_out = product_back(sizes_.tokens(), weight.out, weight.in);
    gradient = heads_back(qkv_weight.out, weight.in);
  }
  add_weight({gy, all, heads.out}, sizes_.tokens(), weight);
  return gradient;
}

}  // namespace orthant
