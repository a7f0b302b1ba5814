// Next tokens from logits that lie on a device, by its kernels: see choose_tokens.cu. Local.
//
// Note [Choices on a device]: a token is the same function of logits, options, seed and place as TokenChooser's. The
// most probable token is found on the device. With top_k, or top_p, the most probable ones come to the host, which
// draws as TokenChooser does: with the same bits. Without them a token is drawn on the device, with the host's random
// number; weights are added up in another order than the host's, which counts where a draw lies within rounding of the
// border between two tokens. What needs all logits (penalties, log-probabilities, more tokens than a kernel lists) is
// the host's to choose.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "orthant/nn/device_variants.h"
#include "orthant/serve/token_chooser.h"

namespace orthant {

// Whether kernels take these logits.
bool serves_choice(const at::Tensor& logits);

// One row: the options of its answer, null where the host chooses, and the token's place there.
struct ChoiceRow {
  const SamplingParams* params = nullptr;
  std::int64_t answer = 0;
};

// Whether the device can choose by these options at all.
bool device_chooses(const SamplingParams& params);

// For each row of [rows, vocabulary] its token; nothing where the host chooses, or all logits are needed after all.
// Waits for the device once. DataError as by TokenChooser.
std::vector<std::optional<std::int64_t>> choose_on_device(const at::Tensor& logits, const std::vector<ChoiceRow>& rows);

nn::device::Variants choice_variants(at::ScalarType dtype);

}  // namespace orthant
