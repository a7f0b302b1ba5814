// The builder of language models over one sequence of tokens: units embed, layers.N and head, the batch fields, the
// values hidden.N and logits between them, and either the loss or a mask. A family gives the parameters and bodies of
// its units.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

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

// What a family gives of a unit.
struct DecoderUnit {
  std::string kind;  // "llama.layer"
  SharedBody body;
  std::vector<ParameterSpec> parameters;
  std::vector<std::string> borrowed = {};
};

class DecoderGraph {
 public:
  // Begins with the batch fields.
  DecoderGraph(std::string name, std::int64_t hidden_size, const WorkSize& work, const DecoderUse& use);

  const WorkSize& work() const { return work_; }
  const DecoderUse& use() const { return use_; }

  // While a body is recorded: which tokens can be seen (id -1 where there is no mask), and for each token the position
  // in its row where its document begins (id -1 unless rows are packed), both [rows, sequence]. In this order.
  Value mask(Recorder& r) const;
  Value documents(Recorder& r) const;

  // In this order. An embedding reads input_ids, and where documents begin if it `reads_documents`; layer N reads
  // hidden.N, mask and documents. `has_loss`: it also reads labels and adds a loss of its own.
  void add_embed(DecoderUnit unit, bool reads_documents = false);
  void add_layer(DecoderUnit unit, bool has_loss = false);
  std::string next_layer() const;  // its name, with which those of its parameters begin
  void add_head(DecoderUnit unit, std::int64_t vocab_size);

  // Ends with the loss where one is wanted; checked and with costs.
  GraphSpec finish();

 private:
  ValueSpec per_token(std::string name, std::int64_t channels) const;
  std::string hidden() const;
  void add(UnitSpec unit, DecoderUnit made, ValueSpec output);

  const WorkSize& work_;
  const DecoderUse use_;
  const std::int64_t hidden_size_;
  std::int64_t num_layers_ = 0;  // so far
  GraphSpec spec_;
};

}  // namespace orthant
