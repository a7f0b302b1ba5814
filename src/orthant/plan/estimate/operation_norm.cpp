// Norms of OperationPrices, also with the dropout and sum in front of them: by a host's kernels, and of a device by our
// kernels or by ATen's formulas.
#include <algorithm>
#include <cmath>

#include "orthant/plan/estimate/operation_price.h"

namespace orthant {
namespace {

// Bytes of the longest row that a device's norms take: of RMSNorm 32 warps of lanes with two vectors of 16 bytes each,
// of LayerNorm 16 warps with four.
constexpr double kMostNormBytes = 32 * 32 * 2 * 16;

// Rows of partial column sums that a device's LayerNorm leaves: ops/norm/layer_norm_device.cpp.
constexpr double kLayerNormBlocks = 396;

constexpr Moves kPlainNorm = {2, 16};

}  // namespace

bool OperationPrices::serves_norm(double width) const {
  return kernels_ && width * element_ <= kMostNormBytes;
}

Held OperationPrices::normed(const Held& x, double count, double width, int statistics, int weights) {
  const Held numbers = statistics < 0 ? Held() : take(statistics);
  if (statistics >= 0) value(statistics) = numbers;
  if (serves_norm(width)) {
    move(2 * count);
    return narrow_values(count);
  }
  move(kPlainNorm.narrow * count, kPlainNorm.wide * count);
  Held y;
  {
    const Held wide = widened(x, count);
    const Held wide_weights = on_host_ && narrow() ? memory.take(weights * width * wide_) : Held();
    y = memory.take(count * wide_);
    if (!on_host_) memory.for_a_while(count * wide_);
  }
  return narrowed(std::move(y), count);
}

void OperationPrices::norm(const Operation& op) {
  const int weights = op.name == "rms_norm" ? 1 : 2;
  value(op.out[0]) = normed(value(op.in[0]), elements(op.in[0]), channels(op.in[0]), op.out[1], weights);
}

void OperationPrices::dropout_add_norm(const Operation& op) {
  const double count = elements(op.in[0]), width = channels(op.in[0]);
  Held& sum = value(op.out[0]);
  if (serves_norm(width)) {
    if (drops(op)) draw(count);
    move(2 * count);  // in the norm's pass, which writes the sum instead of reading it
    sum = narrow_values(count);
  } else if (!drops(op) || (on_host_ && !narrow())) {
    if (drops(op)) draw(count);
    move(3 * count);
    sum = narrow_values(count);
  } else {
    move(3 * count, 4 * count);
    const Held wide = widened(value(op.in[0]), count);
    if (on_host_) {
      draw(count);
      const Held left = memory.take(count * wide_);
      memory.for_a_while(count * wide_);  // what is added
      sum = narrow_values(count);
    } else {
      sum = narrowed(dropped(wide, count), count);
    }
  }
  value(op.out[1]) = normed(sum, count, width, op.out[2], /*weights=*/2);
}

Held OperationPrices::device_norm_back(const Operation& op) {
  const double count = elements(op.in[0]), width = channels(op.in[0]);
  const bool rms = op.name == "rms_norm_back";
  const double blocks = std::min(rms ? kNormBlocks : kLayerNormBlocks, tokens(op.in[0]));
  const bool adds = op.in.size() > 3 && op.in[3] >= 0;
  const bool inputs = op.out[0] >= 0;
  move(!inputs ? 2 * count : (adds ? 4 : 3) * count);
  const Held gx = inputs ? narrow_values(count) : Held();
  if (op.out.size() > 1) {
    draw(count);
    move(count);
    value(op.out[1]) = narrow_values(count);
  }
  if (op.attributes.flag("weights")) memory.for_a_while(blocks * width * (rms ? 1 : 2) * wide_);
  return gx;
}

void OperationPrices::norm_back(const Operation& op) {
  const double count = elements(op.in[0]), width = channels(op.in[0]);
  if (serves_norm(width)) {
    const Held gx = device_norm_back(op);
    if (op.out[0] >= 0) value(op.out[0]) = gx;
    return;
  }
  const bool adds = op.in.size() > 3 && op.in[3] >= 0;
  const bool inputs = op.out[0] >= 0, drop = op.out.size() > 1;
  const bool weights = op.attributes.flag("weights");
  const double blocks = std::ceil(tokens(op.in[0]) / kRowBlock);
  if (inputs) move((kPlainNormBack.narrow + (adds ? 3 : 0)) * count, kPlainNormBack.wide * count);
  Held x = widened(value(op.in[1]), count);
  Held wide_weight = on_host_ && narrow() && inputs ? memory.take(width * wide_) : Held();
  const bool apart = drop && adds;  // a dropout behind what is added takes a pass of its own
  Held gx, left, sums;
  {
    const Held wide = widened(value(op.in[0]), count);
    if (!on_host_) memory.for_a_while((narrow() ? 4 : 5) * count * wide_);
    if (inputs) gx = memory.take(count * wide_);
    if (drop && !apart) {
      draw(count);
      move(2 * count, count);
      left = memory.take(count * wide_);
    }
    if (weights) sums = memory.take(blocks * width * (op.name == "rms_norm_back" ? 1 : 2) * wide_);
  }
  if (inputs) value(op.out[0]) = narrowed(std::move(gx), count);
  if (drop && !apart) value(op.out[1]) = narrowed(std::move(left), count);
  x.reset();
  wide_weight.reset();
  if (apart) value(op.out[1]) = dropped(value(op.out[0]), count);
  if (on_host_ && weights) memory.for_a_while(column_sums(blocks, width));
}

}  // namespace orthant
