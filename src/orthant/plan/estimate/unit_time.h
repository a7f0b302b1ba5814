// Seconds of a unit's forward and backward on a card: products by their size, the rest by the bytes it moves, what is
// exchanged over tp, cp and ep, and what is made again. Local.
#pragma once

#include "orthant/plan/estimate/collective_time.h"
#include "orthant/plan/estimate/hardware.h"
#include "orthant/plan/estimate/unit_work.h"

namespace orthant {

// Spans of the axes that units exchange over.
struct ExchangeSpans {
  Span tp, cp, ep;
};

// Seconds of waiting for what is exchanged and for ranks that are interrupted, by axis.
struct Waits {
  double tp = 0, cp = 0, ep = 0;
  double total() const { return tp + cp + ep; }
  Waits& operator+=(const Waits& other) {
    tp += other.tp;
    cp += other.cp;
    ep += other.ep;
    return *this;
  }
};

struct UnitSeconds {
  double forward = 0;  // includes its exchanges
  double inputs = 0;   // includes its exchanges and what is recomputed
  double weights = 0;  // includes the part of communication that compute does not hide
  Waits exchanged;     // waiting in all three
  double total() const { return forward + inputs + weights; }
};

// FLOPs of attention's backward, in those of its forward: fused kernels make the scores again.
inline constexpr double kFusedBackward = 2.5;

// At the peak by the curve of the card, or as fast as memory gives and takes the three matrices.
double product_seconds(const Product& product, const Hardware& hardware, double element_bytes);

// For one microbatch.
UnitSeconds unit_seconds(const UnitWork& work, const PlanSettings& settings, const ExchangeSpans& spans,
                         const Hardware& hardware);

}  // namespace orthant
