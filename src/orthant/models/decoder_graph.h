// What the graphs of language models over one sequence of tokens share: the batch fields, the values hidden.N and
// logits, and either the loss or a mask.
#pragma once

#include <cstdint>
#include <string>

#include "orthant/graph/recorder.h"
#include "orthant/graph/spec.h"
#include "orthant/models/graph_parts.h"
#include "orthant/models/work_size.h"

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

  // For each token the position in its row where its document begins: [rows, sequence]; id -1 unless rows are packed.
  Value documents(Recorder& r) const {
    return work_.packed ? r.field("document_starts", Sym::tokens, Number::index) : Value{};
  }

  // The unit layers.<index> of that kind, from hidden.<index> (and the mask, and the starts of documents) to
  // hidden.<index + 1>.
  UnitSpec layer_unit(std::int64_t index, std::string kind) const;
  UnitSpec head_unit(std::string kind, std::int64_t num_layers) const;
  ValueSpec hidden(std::int64_t index) const;
  ValueSpec logits(std::int64_t vocab_size) const;

  void add(UnitSpec unit, ValueSpec output);
  // Ends with the loss where one is wanted; checked and with costs.
  GraphSpec finish();

  const WorkSize& work_;
  const DecoderUse use_;
  const std::int64_t hidden_size_;
  GraphSpec spec_;
};

}  // namespace orthant
