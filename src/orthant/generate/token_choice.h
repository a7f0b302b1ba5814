// The next tokens of a step from its logits, on the rank that chooses: by kernels where they can, see Note [Choices on
// a device] in device_choice.h, by serve/token_chooser.h else. Local.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "orthant/serve/step_order.h"
#include "orthant/serve/token_chooser.h"

namespace orthant {

class TokenChoice {
 public:
  // The tokens of the parts with an answer, in their order, from the first rows of `logits`; undefined where there are
  // no such parts. Waits for a device once, or twice where some need all their logits on
  // the host. DataError as by TokenChooser.
  std::vector<GeneratedToken> choose(const StepOrder& order, const at::Tensor& logits);

 private:
  struct Row {
    TokenChooser* chooser;
    std::int64_t answer;
  };
  std::vector<Row> rows_of(const StepOrder& order);
  static void choose_on_host(const at::Tensor& logits, const std::vector<Row>& rows,
                             const std::vector<std::int64_t>& which, std::vector<GeneratedToken>& tokens);

  std::unordered_map<std::uint64_t, TokenChooser> choosers_;  // by sequence
};

}  // namespace orthant
