// What the code of attention and rotation needs of a rank's heads besides tensors. Internal to this layer.
#pragma once

#include <optional>

#include "orthant/nn/binding.h"
#include "orthant/ops/attention/attention_heads.h"
#include "orthant/ops/attention/local_heads.h"
#include "orthant/ops/dropout/site_draw.h"
#include "orthant/ops/exchange/token_values.h"
#include "orthant/ops/rotary/rotary_tables.h"

namespace orthant {

class HeadsCall {
 public:
  // `out`: the value that has a rank's heads side by side.
  HeadsCall(const Binding& b, int qkv, int out, int mask, int documents) : mask_(mask), documents_(documents) {
    const Attributes& attributes = b.attributes();
    const Heads local = local_heads(b, qkv);
    options_.head_size = local.head_size;
    options_.heads = local.heads;
    options_.kv_heads = local.kv_heads;
    if (out >= 0) options_.first_head = first_of(b.placement(out).dims.back(), b.tensor) / local.head_size;
    if (attributes.find("causal") != nullptr) {
      options_.causal = attributes.flag("causal");
      options_.window = attributes.integer("window");
      options_.dropout = attributes.number("p");
      if (options_.dropout > 0) options_.site = b.site();
    }
    if (attributes.find("theta") != nullptr) tables_.emplace(b);
  }

  nn::HeadsSetup setup(const at::Tensor& qkv, Frame& frame) {
    prepare(qkv, frame);
    options_.key_mask = frame.get(mask_);
    return nn::heads_setup(qkv, options_, frame.pass);
  }

  // With the mask of whole rows, and without rotation.
  const nn::AttentionOptions& options(const Frame& frame) {
    options_.key_mask = frame.get(mask_);
    options_.document_starts = frame.get(documents_);
    return options_;
  }

  // Of a generation: tables have all positions that a sequence may have.
  const nn::AttentionOptions& cached_options(const at::Tensor& qkv, const Frame& frame) {
    if (tables_) options_.rotary = tables_->whole(frame.pass, qkv.options());
    return options_;
  }

  // [tokens, channels] as rows of tokens.
  static at::Tensor by_rows(const at::Tensor& matrix, const nn::Pass& pass) {
    return matrix.view({pass.rows, pass.sequence, matrix.size(1)});
  }

  const nn::AttentionOptions& options(const at::Tensor& qkv, const Frame& frame) {
    prepare(qkv, frame);
    return options_;
  }

 private:
  void prepare(const at::Tensor& qkv, const Frame& frame) {
    const nn::TokenRows* rows = frame.pass.token_rows;
    options_.document_starts = rows != nullptr ? rows->starts : frame.get(documents_);
    options_.document_rows = rows != nullptr ? rows->row : at::Tensor();
    options_.unpadded = rows != nullptr ? nn::UnpaddedRows{rows->firsts, rows->longest} : nn::UnpaddedRows();
    if (!tables_) return;
    if (!options_.document_starts.defined()) {
      options_.rotary = tables_->get(frame.pass, qkv.options());
      return;
    }
    options_.rotary = tables_->whole(frame.pass, qkv.options());
    options_.positions = nn::own_columns(nn::document_positions(options_.document_starts), frame.pass);
  }

  nn::AttentionOptions options_;
  int mask_;
  int documents_;
  std::optional<RotaryTables> tables_;
};

}  // namespace orthant
