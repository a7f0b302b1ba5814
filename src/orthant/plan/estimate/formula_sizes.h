// What one rank has of a microbatch, in the words of closed forms. See formula_work().
#pragma once

#include "orthant/plan/estimate/unit_work.h"

namespace orthant {

struct FormulaSizes {
  int tp = 1;
  int cp = 1;
  int ep = 1;
  bool cuts_tokens = false;  // sequence parallelism
  bool regathers = false;    // column inputs are kept cut, and gathered again in backward
  double element = 2;        // bytes of an activation
  double tokens = 0;         // of a microbatch, on one cp rank
  double own = 0;            // of those between products
  double column = 0;         // of those as column products keep their input
  double pairs = 0;          // of positions, per head
  double hidden = 0;
  double heads = 0;
  double query = 0;  // channels of its heads
  double key = 0;    // channels of its key/value heads
  double inner = 0;
  double words = 0;
  double loss_words = 0;  // that the loss works on
  double routed = 0;      // tokens that its experts take

  double hidden_bytes() const { return element * tokens * hidden; }  // of all tokens
  double message_bytes(const Stack& stack) const;                    // that travel between stages
};

// ConfigError for what closed forms do not cover: degrees that do not divide, frozen parameters, a sequence that the
// model cannot read, a recompute that the stack does not have.
FormulaSizes formula_sizes(const TransformerShape& shape, const Stack& stack, const PlanSettings& settings);

// Of any layer; they differ in their names alone.
UnitWork formula_layer(const TransformerShape& shape, const Stack& stack, const PlanSettings& settings,
                       const FormulaSizes& sizes);

}  // namespace orthant
