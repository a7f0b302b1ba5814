#include "orthant/data/trimodal_demo.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "data/same_fields.h"
#include "mesh/thrown_error.h"
#include "orthant/data/field_checks.h"
#include "orthant/data/trimodal_texts.h"

namespace orthant {
namespace trimodal_demo_test {

using test::expect_same_fields;
using test::thrown_text;

constexpr std::int64_t kMany = 4000;

TEST(TrimodalDemo, FieldsHaveTheShapesThatModelsExpect) {
  const TrimodalDemo demo({.size = 16, .primary_length = 40, .secondary_length = 30});
  std::vector<std::int64_t> indices(16);
  std::iota(indices.begin(), indices.end(), 0);
  const Fields fields = demo.rows(indices);
  EXPECT_EQ(fields.size(), 6U);
  for (const auto& [name, length] : {std::pair{"primary", 40}, std::pair{"secondary", 30}}) {
    const at::Tensor& ids = fields.at(std::string(name) + "_ids");
    const at::Tensor& mask = fields.at(std::string(name) + "_mask");
    EXPECT_EQ(ids.sizes(), (std::vector<std::int64_t>{16, length})) << name;
    EXPECT_EQ(mask.sizes(), ids.sizes()) << name;
    EXPECT_EQ(mask.scalar_type(), at::kBool) << name;
    EXPECT_TRUE(at::equal(ids.ne(WordVocabulary::kPad), mask)) << name;
    EXPECT_TRUE(ids.select(1, 0).eq(WordVocabulary::kBegin).all().item<bool>()) << name;
    EXPECT_EQ(ids.eq(WordVocabulary::kSeparator).sum().item<int>(), 16) << name;
    EXPECT_EQ(ids.eq(WordVocabulary::kUnknown).sum().item<int>(), 0) << name;
  }
  EXPECT_EQ(fields.at("tabular").sizes(), (std::vector<std::int64_t>{16, 8}));
  EXPECT_EQ(fields.at("tabular").scalar_type(), at::kFloat);
  EXPECT_EQ(fields.at("labels").sizes(), (std::vector<std::int64_t>{16}));
  check_fields(
      fields,
      {.vocab_sizes = {{"primary_ids", demo.vocab_size()}, {"secondary_ids", demo.vocab_size()}}, .num_labels = 2},
      "demo");
  EXPECT_EQ(demo.tokens(fields), fields.at("primary_mask").sum().item<std::int64_t>() +
                                     fields.at("secondary_mask").sum().item<std::int64_t>());
}

TEST(TrimodalDemo, ASampleIsAFunctionOfSeedSplitAndIndex) {
  const TrimodalDemo demo({.size = 100, .seed = 3});
  const std::vector<std::int64_t> some = {40, 7, 99};
  expect_same_fields(demo.rows(some), TrimodalDemo({.size = 5000, .seed = 3}).rows(some));
  EXPECT_NE(demo.sample(7).dialogue, TrimodalDemo({.size = 100, .seed = 4}).sample(7).dialogue);
  EXPECT_NE(demo.sample(7).numbers, TrimodalDemo({.size = 100, .seed = 3, .split = DataSplit::eval}).sample(7).numbers);
  EXPECT_THROW(demo.sample(100), InternalError);
}

TEST(TrimodalDemo, SignalsAreFairIndependentCoinsAndTheLabelIsTheirNoisyMajority) {
  const TrimodalDemo demo({.size = kMany});
  std::array<int, 8> seen = {};
  int turned = 0;
  for (std::int64_t i = 0; i < kMany; ++i) {
    const TrimodalSample sample = demo.sample(i);
    const auto [says, lost, risky] = sample.signals;
    ++seen[static_cast<std::size_t>(4 * says + 2 * lost + risky)];
    if ((says + lost + risky >= 2) != (sample.label == 1)) ++turned;
    const double score = sample.numbers[0] - (sample.numbers[1] + sample.numbers[2]) / 2;
    EXPECT_EQ(score > 0, risky) << "sample " << i;
    EXPECT_GT(std::abs(score), 0.499) << "sample " << i;
  }
  // Within four standard deviations: 21 of 500, 11 of 120.
  for (const int count : seen) EXPECT_NEAR(count, kMany / 8, 84);
  EXPECT_NEAR(turned, 0.03 * kMany, 44);
}

TEST(TrimodalDemo, EveryTextKeepsItsSignalInFewWordsAndIsWordedInManyWays) {
  DrawSequence draws(RandomStream(1, "texts"));
  std::set<std::string> openings[2][2];  // of dialogues and tracks without and with their signal
  for (int i = 0; i < kMany; ++i) {
    for (const bool signal : {false, true}) {
      const std::string texts[2] = {dialogue_text(signal, draws), track_text(signal, draws)};
      const std::size_t lengths[2] = {dialogue_signal_words(), track_signal_words()};
      for (int kind = 0; kind < 2; ++kind) {
        std::string opening;
        for (const std::string_view word : words_of(texts[kind])) {
          if (std::ranges::count(opening, ' ') == static_cast<std::ptrdiff_t>(lengths[kind])) break;
          opening.append(word).append(" ");
        }
        openings[kind][signal].insert(opening);
      }
    }
  }
  for (const auto& kind : openings) {
    for (const bool signal : {false, true}) {
      EXPECT_GT(kind[signal].size(), 200U);
      for (const std::string& text : kind[signal]) EXPECT_FALSE(kind[!signal].contains(text)) << text;
    }
  }
}

TEST(TrimodalDemo, BestAccuraciesFollowFromTheNoise) {
  EXPECT_DOUBLE_EQ(TrimodalDemo().best_accuracy(), 0.97);
  EXPECT_DOUBLE_EQ(TrimodalDemo().best_accuracy_of_some_parts(), 0.735);
  EXPECT_DOUBLE_EQ(TrimodalDemo({.label_noise = 0}).best_accuracy_of_some_parts(), 0.75);
}

TEST(TrimodalDemo, ClassWeightsWeighTheLabels) {
  const TrimodalDemo demo({.size = 64, .class_weights = {1.0, 2.0}});
  double sum = 0;
  std::vector<std::int64_t> indices;
  for (std::int64_t i = 0; i < 64; ++i) {
    indices.push_back(i);
    sum += demo.sample(i).label == 1 ? 2.0 : 1.0;
  }
  EXPECT_EQ(demo.totals(indices).weight_sum, sum);
  EXPECT_GT(sum, 64.0);
}

TEST(TrimodalDemo, RefusesOptionsThatMakeNoSense) {
  const auto needed = dialogue_signal_words() + 2;
  EXPECT_EQ(thrown_text([] { TrimodalDemo({.primary_length = 8}); }),
            fmt::format("primary_length of trimodal_demo is 8, but a text says what it is about within its first {} "
                        "positions\nset primary_length to {} or more",
                        needed, needed));
  EXPECT_NO_THROW(TrimodalDemo({.primary_length = static_cast<std::int64_t>(needed)}));
  EXPECT_THROW(TrimodalDemo({.secondary_length = static_cast<std::int64_t>(track_signal_words()) + 1}), ConfigError);
  EXPECT_EQ(thrown_text([] { TrimodalDemo({.size = -2}); }),
            "data.size is -2, but a data set needs at least one sample\nset data.size to 1 or more");
  EXPECT_EQ(thrown_text([] { TrimodalDemo({.label_noise = 0.5}); }),
            "label_noise is 0.5, but it must be at least 0 and below 0.5\nset label_noise to 0.03 or leave it out");
  EXPECT_THROW(TrimodalDemo({.label_noise = std::numeric_limits<double>::quiet_NaN()}), ConfigError);
  EXPECT_EQ(thrown_text([] { TrimodalDemo({.class_weights = {1.0}}); }),
            "class_weights has 1 entries, but there are 2 classes\ngive class_weights 2 entries, or leave it out");
}

}  // namespace trimodal_demo_test
}  // namespace orthant
