#include "orthant/train/trainer.h"

#include <gtest/gtest.h>

#include "base/error_text.h"
#include "orthant/base/error.h"
#include "orthant/models/build.h"
#include "orthant/specs/presets.h"

namespace orthant {
namespace {

TEST(Trainer, RefusesAGraphWithoutALoss) {
  const ModelConfig config = gpt2_preset("gpt2-tiny");
  const auto units = [&](ParameterStore& store, Tables& tables) { return build_units(config, store, tables); };
  EXPECT_EQ(
      error_text<ConfigError>([&] { Trainer(forward_spec(config, {.rows = 1, .sequence = 4}), units, Mesh(), {}); }),
      "graph \"gpt2\": none of its 4 units is a loss\n  fix: mark the unit that computes the loss with is_loss");
}

}  // namespace
}  // namespace orthant
