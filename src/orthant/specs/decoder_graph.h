// What the graphs of language models over one sequence of tokens share: the batch fields, the values hidden.N and
// logits, and either the loss or a mask.
#pragma once

#include <cstdint>
#include <string>

#include "orthant/graph/spec.h"
#include "orthant/specs/unit_cost.h"
#include "orthant/specs/work_size.h"

namespace orthant {

// What a decoder is built for: training with a loss, or its forward pass alone, there with a mask when the texts of a
// batch are of different lengths.
struct DecoderUse {
  bool loss = true;
  bool mask = false;  // a batch field attention_mask, boolean [rows, sequence], true for tokens
};

// Base of the builders of each model's units.
class DecoderGraph {
 protected:
  // Begins with the batch fields.
  DecoderGraph(std::string name, std::int64_t hidden_size, const WorkSize& work, const DecoderUse& use);

  Shape per_token(std::int64_t channels) const { return {work_.rows, work_.sequence, channels}; }
  double weight_flops(const UnitSpec& unit) const;  // products of all its own matrices with every token, on one rank

  // The unit layers.<index> of that kind, from hidden.<index> (and the mask) to hidden.<index + 1>.
  UnitSpec layer_unit(std::int64_t index, std::string kind) const;
  UnitSpec head_unit(std::string kind, std::int64_t num_layers) const;
  ValueSpec hidden(std::int64_t index) const;
  ValueSpec logits(std::int64_t vocab_size) const;
  // Causal attention of a rank's part of `heads` heads, to a layer's cost.
  void add_attention_flops(UnitCost& cost, std::int64_t heads, std::int64_t head_size) const;

  void add(UnitSpec unit, ValueSpec output);
  // Ends with the loss where one is wanted; checked.
  GraphSpec finish();

  const WorkSize& work_;
  const DecoderUse use_;
  const std::int64_t hidden_size_;
  const RankWork rank_;
  const KeptBytes kept_;
  GraphSpec spec_;
};

}  // namespace orthant
