#include "orthant/train/metrics.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

namespace orthant {
namespace metrics_test {

StepMetrics sample() {
  return {.step = 1,
          .epoch = 0,
          .loss = 2.5,
          .grad_norm = 0.1,
          .lr = 3e-4,
          .samples = 16,
          .tokens = 2048,
          .step_seconds = 2,
          .samples_per_second = 8,
          .tokens_per_second = 1024.5,
          .peak_memory_bytes = 123456789};
}

TEST(Metrics, LineHasTheKeysOfTheContractInItsOrder) {
  EXPECT_EQ(metrics_line(sample()),
            R"({"step":1,"epoch":0,"loss":2.5,"grad_norm":0.1,"lr":3e-04,"samples":16,"tokens":2048,)"
            R"("step_seconds":2.0,"samples_per_second":8.0,"tokens_per_second":1024.5,"peak_memory_bytes":123456789})");
}

TEST(Metrics, ModelsWithExpertsHaveMoreAtTheEnd) {
  StepMetrics metrics = sample();
  metrics.auxiliary_loss = 0.5;
  metrics.expert_loads = {{"layers.1", {0.25, 0.75}, 0.5}, {"layers.3", {1, 0}}};
  EXPECT_TRUE(metrics_line(metrics).ends_with(
      R"("peak_memory_bytes":123456789,"auxiliary_loss":0.5,"dropped_share":0.25,"expert_loads":{"layers.1":[0.25,0.75],"layers.3":[1.0,0.0]}})"));
}

TEST(Metrics, WhatJsonCannotWriteIsNull) {
  StepMetrics metrics = sample();
  metrics.loss = std::numeric_limits<double>::quiet_NaN();
  metrics.grad_norm = std::numeric_limits<double>::infinity();
  metrics.lr = -std::numeric_limits<double>::infinity();
  const std::string line = metrics_line(metrics);
  EXPECT_NE(line.find(R"("loss":null,"grad_norm":null,"lr":null,)"), std::string::npos) << line;
  EXPECT_TRUE(nlohmann::json::parse(line)["lr"].is_null());
}

TEST(Metrics, NumbersReadBackToTheSameBits) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 2000; ++round) {
    StepMetrics metrics = sample();
    do {
      metrics.loss = std::bit_cast<double>(random());
    } while (!std::isfinite(metrics.loss));
    metrics.step_seconds = std::ldexp(static_cast<double>(random()), -64);
    metrics.peak_memory_bytes = static_cast<std::int64_t>(random() >> 1);
    const std::string line = metrics_line(metrics);
    const auto back = nlohmann::json::parse(line);
    ASSERT_TRUE(back["loss"].is_number_float()) << line;
    ASSERT_EQ(std::bit_cast<std::uint64_t>(back["loss"].get<double>()), std::bit_cast<std::uint64_t>(metrics.loss))
        << line;
    ASSERT_EQ(back["step_seconds"].get<double>(), metrics.step_seconds) << line;
    ASSERT_EQ(back["peak_memory_bytes"].get<std::int64_t>(), metrics.peak_memory_bytes) << line;
  }
}

TEST(Metrics, EvaluationLineStartsWithItsStep) {
  EXPECT_EQ(eval_line(5, {{"loss", 0.25}, {"accuracy", 1}, {"roc_auc", std::nan("")}}),
            R"({"step":5,"accuracy":1.0,"loss":0.25,"roc_auc":null})");
}

}  // namespace metrics_test
}  // namespace orthant
