// The section `precision`: float16 and the loss scale. Other dtypes are tested with the rest of a configuration.
#include "orthant/train/precision_config.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "base/error_text.h"
#include "orthant/train/run_config.h"

namespace orthant {
namespace precision_config_test {

RunConfig read(const std::vector<std::string>& overrides) {
  return read_run_config(load_run_document("", overrides));
}

TEST(PrecisionConfig, TheLossScaleIsDynamicANumberOrAnObject) {
  const auto scale = [](const std::vector<std::string>& overrides) { return read(overrides).trainer.loss_scale; };
  const LossScaleOptions dynamic = {.dynamic = true, .initial = 65536};
  EXPECT_EQ(scale({"precision.compute=bfloat16"}), LossScaleOptions());
  EXPECT_EQ(scale({"precision.compute=float16"}), dynamic);
  EXPECT_EQ(scale({"precision.reduce=float16"}), dynamic);
  EXPECT_EQ(scale({"precision.loss_scale=dynamic"}), dynamic);
  EXPECT_EQ(scale({"precision.compute=float16", "precision.loss_scale=1"}), LossScaleOptions());
  EXPECT_EQ(scale({"precision.loss_scale=1024"}), (LossScaleOptions{.initial = 1024}));
  EXPECT_EQ(scale({"precision.loss_scale.interval=5"}),
            (LossScaleOptions{.dynamic = true, .initial = 65536, .interval = 5}));
  EXPECT_EQ(scale({R"(precision.loss_scale={"initial": 8, "growth": 4, "backoff": 0.25, "interval": 7})"}),
            (LossScaleOptions{.dynamic = true, .initial = 8, .growth = 4, .backoff = 0.25, .interval = 7}));
}

TEST(PrecisionConfig, Float16IsForProductsAndSums) {
  EXPECT_EQ(read({"precision.compute=float16", "precision.reduce=float16"}).trainer.precision,
            (Precision{DType::float32, DType::float16, DType::float16}));
}

TEST(PrecisionConfig, Tf32IsOffUnlessItIsSet) {
  EXPECT_FALSE(read({}).trainer.precision.tf32);
  auto document = load_run_document("", {"precision.tf32=true"});
  EXPECT_TRUE(read_run_config(document).trainer.precision.tf32);
  EXPECT_NE(resolved_config(document).find("\"tf32\": true"), std::string::npos);
}

TEST(PrecisionConfig, Float8IsBfloat16WithSomeProductsInFloat8) {
  auto document = load_run_document("", {"precision.compute=float8", "precision.master=bf16_remainder"});
  const auto precision = read_run_config(document).trainer.precision;
  EXPECT_EQ(precision, (Precision{.compute = DType::bfloat16, .master = MasterKind::bf16_remainder, .float8 = true}));
  EXPECT_EQ(compute_name(precision), "float8");
  EXPECT_NE(resolved_config(document).find("\"compute\": \"float8\""), std::string::npos);
  EXPECT_FALSE(read({"precision.compute=bfloat16"}).trainer.precision.float8);
}

TEST(PrecisionConfig, WhatCannotTrainIsRefused) {
  const std::vector<std::pair<std::string, std::vector<std::string>>> refusals = {
      {"precision.params=float16",
       {"precision.params: the optimizer's copy in float16 loses small updates", "use float32 and compute float16"}},
      {R"(precision={"compute": "bfloat16", "tf32": true})",
       {"precision.tf32: is true with compute bfloat16: it rounds products of float32 alone",
        "use compute float32, or leave tf32 out"}},
      {R"(precision={"params": "float64", "compute": "float8"})",
       {"precision.compute: is float8 with params float64", "use params float32"}},
      {"precision.params=float8", {"precision.params: \"float8\" is not a dtype to train in"}},
      {"precision.compute=float9", {"\"float9\" is not a dtype to train in", "did you mean \"float8\"?"}},
      {R"(precision={"params": "float64", "tf32": true})", {"precision.tf32: is true with compute float64"}},
      {"precision.loss_scale=dynamc",
       {"precision.loss_scale: found \"dynamc\"", "use \"dynamic\", a number from 1 on, or {\"initial\": 65536"}},
      {"precision.loss_scale=0.5",
       {"precision.loss_scale: a scale of 0.5; it must be 1 to 2^60", "use \"dynamic\", or 1 for none"}},
      {"precision.loss_scale=1e30", {"a scale of 1e+30; it must be 1 to 2^60"}},
      {"precision.loss_scale=true", {"precision.loss_scale: found true"}},
      {"precision.loss_scale.initial=0", {"a scale of 0; it must be 1 to 2^60"}},
      {"precision.loss_scale.initial=big", {"precision.loss_scale: initial is \"big\", not a number"}},
      {"precision.loss_scale.growth=0.5", {"growth is 0.5; it must be at least 1", "use 2"}},
      {"precision.loss_scale.backoff=1", {"backoff is 1; it must be between 0 and 1", "use 0.5"}},
      {"precision.loss_scale.interval=0", {"interval is 0; it must be a whole number of steps from 1 on", "use 2000"}},
      {"precision.loss_scale.interval=1.5", {"interval is 1.5; it must be a whole number"}},
      {"precision.loss_scale.intervall=5",
       {"precision.loss_scale: unknown key \"intervall\"", "did you mean \"interval\"?"}},
  };
  for (const auto& [setting, texts] : refusals) {
    const auto found = error_text<ConfigError>([&] { read({setting}); });
    for (const auto& text : texts) EXPECT_NE(found.find(text), std::string::npos) << text << " in\n" << found;
  }
}

}  // namespace precision_config_test
}  // namespace orthant
