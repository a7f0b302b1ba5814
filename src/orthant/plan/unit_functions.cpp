#include "orthant/plan/unit_functions.h"

#include <algorithm>
#include <cmath>

namespace orthant {
namespace {

constexpr double kRowBlock = 256;  // rows whose column sums are added first: nn/columns.h

// Rows of partial column sums that a device's RMSNorm and LayerNorm leave: nn/norm_device.cpp, layer_norm_device.cpp.
constexpr double kNormBlocks = 896;
constexpr double kLayerNormBlocks = 396;

// By ATen's kernels, of a function that nn/*_plain.cpp computes on a device.
constexpr Moves kPlainNorm = {2, 16};
constexpr Moves kPlainNormBack = {3, 27};
constexpr double kActivation = 2;           // by a kernel, too
constexpr double kPlainActivationBack = 5;  // of one input: made again, and its gradient
constexpr double kPlainGate = 5, kPlainGateBack = 20;

// The same of our kernels, per element of what an activation makes.
constexpr double kActivationBack = 4;
constexpr double kGate = 3, kGateBack = 6;

}  // namespace

double UnitFunctions::norm_sums() const {
  return std::ceil(sizes_.own / kRowBlock) * sizes_.hidden * sizes_.norm_numbers * sizes_.wide;
}

Held UnitFunctions::norm(const Held& x, Norm& kept) {
  const double elements = sizes_.own * sizes_.hidden;
  const Held statistics = memory.take(sizes_.own * sizes_.norm_numbers * sizes_.wide);
  Held y;
  if (sizes_.serves_norm()) {
    move(2 * elements);
    if (records) kept = {x, statistics};
    return memory.take(elements * sizes_.element);
  }
  move(kPlainNorm.narrow * elements, kPlainNorm.wide * elements);
  {
    const Held wide = widened(x, elements);
    y = memory.take(elements * sizes_.wide);
    if (!sizes_.on_host) for_a_while(elements * sizes_.wide);
  }
  if (records) kept = {x, statistics};
  return narrowed(std::move(y), elements);
}

Held UnitFunctions::device_norm_back(const Held& gy, Norm kept, Held* dropped, bool adds) {
  const double elements = sizes_.own * sizes_.hidden;
  const double blocks = sizes_.norm_numbers == 1 ? kNormBlocks : kLayerNormBlocks;
  const double sums = std::min(blocks, sizes_.own) * sizes_.hidden * sizes_.norm_numbers * sizes_.wide;
  move((adds ? 4 : 3) * elements);
  Held gx = memory.take(elements * sizes_.element);
  if (dropped != nullptr) {
    draw(elements);
    move(elements);
    *dropped = memory.take(elements * sizes_.element);
  }
  if (defers) {
    defer({gy, kept.x, kept.statistics}, [this, elements, sums] {
      move(2 * elements);
      for_a_while(sums);
    });
  } else {
    for_a_while(sums);
  }
  return gx;
}

Held UnitFunctions::norm_back(const Held& gy, Norm kept, Held* dropped, bool adds) {
  if (sizes_.serves_norm()) return device_norm_back(gy, std::move(kept), dropped, adds);
  const double elements = sizes_.own * sizes_.hidden;
  const double sums = norm_sums();
  move((kPlainNormBack.narrow + (adds ? 3 : 0)) * elements, kPlainNormBack.wide * elements);
  const Held x = widened(kept.x, elements);
  Held gx;
  {
    const Held wide = widened(gy, elements);
    if (!sizes_.on_host) for_a_while((sizes_.narrow() ? 4 : 5) * elements * sizes_.wide);
    gx = memory.take(elements * sizes_.wide);
    if (dropped != nullptr) {
      draw(elements);
      move(2 * elements, elements);
      *dropped = memory.take(elements * sizes_.wide);
    }
    if (!defers) for_a_while(sums);
  }
  gx = narrowed(std::move(gx), elements);
  if (dropped != nullptr) *dropped = narrowed(std::move(*dropped), elements);
  if (defers) {
    defer({gy, kept.x, kept.statistics},
          [this, elements, sums] { for_a_while(sums + (sizes_.narrow() ? 2 * elements * sizes_.wide : 0)); });
  }
  return gx;
}

Held UnitFunctions::dropout_add_norm(const Held& x, bool drops, Norm& kept, Held* sum) {
  const double elements = sizes_.own * sizes_.hidden;
  Held total;
  if (sizes_.serves_norm()) {
    if (drops) draw(elements);
    move(2 * elements);  // in the norm's pass, which writes the sum instead of reading it
    total = memory.take(elements * sizes_.element);
  } else if (!drops || (sizes_.on_host && !sizes_.narrow())) {
    if (drops) draw(elements);
    move(3 * elements);
    total = memory.take(elements * sizes_.element);
  } else {
    move(3 * elements, 4 * elements);
    const Held wide = widened(x, elements);
    total = narrowed(dropout(wide, elements), elements);
  }
  if (sum != nullptr) *sum = total;
  return norm(total, kept);
}

// By ATen's formulas it takes passes over memory; elsewhere a kernel draws what it uses.
void UnitFunctions::draw(double factors) {
  if (sizes_.on_host || sizes_.kernels) {
    drawn += factors;
  } else {
    moved += kFormulaDrawMoves * factors;
  }
}

Held UnitFunctions::dropout_add(const Held& x, double elements) {
  move(3 * elements);
  const Held dropped = sizes_.kernels ? Held() : dropout(x, elements);
  if (sizes_.kernels) draw(elements);
  return memory.take(elements * sizes_.element);
}

Held UnitFunctions::dropout(const Held& x, double elements) {
  draw(elements);
  if (sizes_.kernels) {
    move(2 * elements);
    return memory.take(elements * sizes_.element);
  }
  move(2 * elements, elements);
  if (!sizes_.on_host) {
    for_a_while(elements * kDrawnBytes);
    const Held factors = memory.take(elements * sizes_.wide);
    return memory.take(elements * sizes_.element);
  }
  const Held wide = widened(x, elements);
  const Held y = memory.take(elements * sizes_.wide);
  return narrowed(y, elements);
}

Held UnitFunctions::product(double tokens, double in, double out) {
  if (!sizes_.widens_products()) return values(tokens, out);
  Held wide;
  {
    const Held x = memory.take(tokens * in * sizes_.wide);
    const Held weight = memory.take(in * out * sizes_.wide);
    wide = memory.take(tokens * out * sizes_.wide);
  }
  return narrowed(std::move(wide), tokens * out);
}

Held UnitFunctions::product_back(double tokens, double out, double in) {
  if (!sizes_.widens_products()) return values(tokens, in);
  const Held gy = memory.take(tokens * out * sizes_.wide);
  const Held weight = memory.take(in * out * sizes_.wide);
  return narrowed(memory.take(tokens * in * sizes_.wide), tokens * in);
}

double UnitFunctions::weight_bytes(double tokens, const SizedWeight& weight) const {
  if (!sizes_.on_host) return 0;
  const double operands = tokens * (weight.out + weight.in);
  if (sizes_.widens_gradients()) {
    return (sizes_.narrow() ? operands * sizes_.wide : 0) + weight.out * weight.in * (sizes_.wide + sizes_.gradient);
  }
  const double columns = weight.bias && sizes_.narrow() ? tokens * weight.out * sizes_.wide : 0;  // summed for the bias
  return std::max(sizes_.gradient == sizes_.element ? 0 : operands * sizes_.gradient, columns);
}

void UnitFunctions::add_weight(std::vector<Held> held, double tokens, const SizedWeight& weight) {
  if (!weight.trainable) return;
  if (weight.bias) move(tokens * weight.out);
  const double bytes = weight_bytes(tokens, weight);
  if (defers) {
    defer(std::move(held), [this, bytes] { for_a_while(bytes); });
  } else {
    for_a_while(bytes);
  }
}

Held UnitFunctions::project_out(const SizedWeight& weight) {
  const bool scatters = weight.cut == 1 && sizes_.cuts_tokens;
  move_bias(scatters ? sizes_.own : sizes_.tokens(), weight);
  const Held y = product(sizes_.tokens(), weight.in, weight.out);
  return scatters ? values(sizes_.own, weight.out) : y;
}

Held UnitFunctions::all_tokens(const Held& own, const SizedWeight& row_weight) {
  return row_weight.cut == 1 && sizes_.cuts_tokens ? values(sizes_.tokens(), row_weight.out) : own;
}

Held UnitFunctions::linear(const Held& x, const SizedWeight& weight, Linear& kept) {
  const bool gathers = weight.cut == 0 && sizes_.cuts_tokens;
  const double tokens = weight.cut == 0 ? sizes_.tokens() : sizes_.own;
  const Held all = gathers ? values(tokens, weight.in) : x;
  if (records && weight.trainable) kept.x = gathers && sizes_.regathers ? x : all;
  move_bias(tokens, weight);
  return product(tokens, weight.in, weight.out);
}

Held UnitFunctions::linear_back(const Held& gy, Linear kept, const SizedWeight& weight) {
  const bool gathers = weight.cut == 0 && sizes_.cuts_tokens;
  const bool again = gathers && sizes_.regathers;
  const double tokens = weight.cut == 0 ? sizes_.tokens() : sizes_.own;
  const Held all = again && !defers ? values(tokens, weight.in) : kept.x;
  const Held partial = product_back(tokens, weight.out, weight.in);
  const Held gx = gathers ? values(sizes_.own, weight.in) : partial;
  if (again && defers) {
    defer({gy, kept.x}, [this, tokens, weight] {
      const Held x = values(tokens, weight.in);
      for_a_while(weight_bytes(tokens, weight));
    });
  } else {
    add_weight({gy, kept.x}, tokens, weight);
  }
  return gx;
}

Held UnitFunctions::activated(const Held& x, double inner, double width, bool drops) {
  const double tokens = sizes_.tokens();
  const double moves = inner == width ? kActivation : sizes_.kernels ? kGate : kPlainGate;
  move(moves * tokens * width);
  Held active;
  if (sizes_.on_host) {
    const Held wide = widened(x, tokens * inner);
    active = narrowed(memory.take(tokens * width * sizes_.wide), tokens * width);
  } else {
    active = values(tokens, width);
  }
  if (drops && drops_in_pass(inner, width)) {
    draw(tokens * width);
    return active;
  }
  return drops ? dropout(active, tokens * width) : active;
}

Held UnitFunctions::activation_linear(const Held& x, double inner, const SizedWeight& weight, bool drops,
                                      Linear& kept) {
  const Held active = activated(x, inner, weight.in, drops);
  if (records) kept.x = x;
  return project_out(weight);
}

Held UnitFunctions::activation_linear_back(const Held& gy, Linear kept, double inner, const SizedWeight& weight,
                                           bool drops) {
  const double tokens = sizes_.tokens();
  const double width = tokens * weight.in;
  const Held all = all_tokens(gy, weight);
  Held gradient = product_back(tokens, weight.out, weight.in);
  const bool drops_apart = drops && !drops_in_pass(inner, weight.in);
  if (drops_apart) {
    gradient = dropout(gradient, width);
  } else if (drops) {
    draw(width);
  }
  const double plain_moves = inner == weight.in ? kPlainActivationBack : kPlainGateBack;
  const double kernel_moves = inner == weight.in ? kActivationBack : kGateBack;
  move((sizes_.kernels ? kernel_moves : plain_moves) * width);
  Held active = gradient;  // which leaves the activation in its place
  Held gx;
  if (sizes_.on_host && sizes_.narrow()) {
    Held wide;
    {
      const Held x = memory.take(tokens * inner * sizes_.wide);
      wide = memory.take(width * sizes_.wide);
      gx = memory.take(tokens * inner * sizes_.wide);
    }
    gx = narrowed(std::move(gx), tokens * inner);
    if (!defers) active = narrowed(std::move(wide), width);
  } else {
    const bool plain = !sizes_.on_host && !sizes_.kernels;
    if (plain && !defers) active = values(tokens, weight.in);  // but beside it by ATen's formulas
    gx = values(tokens, inner);
    if (plain && inner > weight.in) for_a_while(2 * width * sizes_.element);
  }
  if (defers) {
    defer({gy, all, kept.x}, [this, x = kept.x, inner, weight, drops] {
      const Held again = activated(x, inner, weight.in, drops);
      for_a_while(weight_bytes(sizes_.tokens(), weight));
    });
  } else {
    const Held used = drops_apart ? dropout(active, width) : active;
    add_weight({}, tokens, weight);
  }
  return gx;
}

Held UnitFunctions::whole_channels(double own_words, double words) {
  const double tokens = sizes_.tokens();
  move(4 * tokens * words);  // gathered, and put in order
  const Held turned = own_words * std::round(words / own_words) == words ? Held() : values(tokens, own_words);
  const Held gathered = values(tokens, words);
  return values(tokens, words);
}

// Of one chunk: the logits become their gradient, and what is wanted is made of it. To the chunk's gradient of x. What
// is moved is counted for all chunks.
Held UnitFunctions::loss_chunk_back(Held logits, double rows, double all, const SizedWeight& weight, bool inputs,
                                    bool weights) {
  move_logits(kGradientMoves, all * weight.out);
  if (sizes_.narrow() && !sizes_.kernels) {
    const Held wide = memory.take(rows * weight.out * sizes_.wide);
    logits = values(rows, weight.out);
  }
  Held gx = inputs && rows < all ? values(all, weight.in) : Held();  // the chunks' together
  if (gx) move(2 * all * weight.in);
  if (inputs) {
    const Held chunk = product_back(rows, weight.out, weight.in);
    if (rows == all) gx = chunk;
  }
  if (weights && weight.trainable) {
    if (weight.bias) move(all * weight.out);
    for_a_while(weight_bytes(rows, weight));
  }
  return gx;
}

// Chunks are alike but for the last: the first shows the worst of them, beside what all of them leave.
Held UnitFunctions::loss_chunks_back(double rows, const SizedWeight& weight, bool inputs, bool weights) {
  move_bias(sizes_.tokens(), weight);
  return loss_chunk_back(product(rows, weight.in, weight.out), rows, sizes_.tokens(), weight, inputs, weights);
}

void UnitFunctions::linear_loss(const Held& x, const SizedWeight& weight, double rows, bool joins, Loss& kept) {
  const double tokens = sizes_.tokens();
  const double chunk = std::min(rows, tokens);
  const bool gathers = weight.cut == 0 && sizes_.cuts_tokens;
  const Held all = gathers ? values(tokens, weight.in) : x;
  Held logits = product(chunk, weight.in, weight.out);
  move_bias(tokens, weight);
  move_logits(kLossMoves, tokens * weight.out);
  {
    const Held numbers = memory.take((joins ? 3 : 2) * chunk * loss_number());
    if (!sizes_.kernels && (sizes_.narrow() || !sizes_.on_host)) for_a_while(chunk * weight.out * sizes_.wide);
  }
  if (in_forward) {
    const Held numbers = memory.take(chunk * loss_number());
    const Held partial = loss_chunk_back(std::move(logits), chunk, tokens, weight, true, true);
    kept.gradient = gathers ? own_values() : partial;
    return;
  }
  logits.reset();
  kept = {all, memory.take(tokens * loss_number()), {}};
}

Held UnitFunctions::linear_loss_back(Loss kept, const SizedWeight& weight, double rows) {
  if (kept.gradient) return std::move(kept.gradient);
  const double chunk = std::min(rows, sizes_.tokens());
  const Held partial = loss_chunks_back(chunk, weight, true, !defers);
  const bool gathers = weight.cut == 0 && sizes_.cuts_tokens;
  if (defers && weight.trainable) {
    defer({kept.x, kept.numbers}, [this, chunk, weight] { loss_chunks_back(chunk, weight, false, true); });
  }
  return gathers ? own_values() : partial;
}

void UnitFunctions::run_deferred() {
  for (auto& one : deferred_) {
    if (one.make) one.make();
    one = {};
  }
  deferred_.clear();
}

}  // namespace orthant
