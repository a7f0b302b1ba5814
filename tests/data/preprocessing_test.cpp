#include "orthant/data/preprocessing.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "mesh/thrown_error.h"

namespace orthant {
namespace preprocessing_test {

using test::thrown_text;

Preprocessing example() {
  Preprocessing p;
  p.primary = {.column = "title",
               .tokenizer = "a/vocab.txt",
               .fingerprint = 0xfedcba9876543210,
               .vocab_size = 900,
               .length = 32};
  p.secondary = {.column = "", .tokenizer = "b", .fingerprint = 7, .vocab_size = 11, .length = 4};
  p.numbers = {{.column = "budget", .mean = 0.1, .scale = 1.0 / 3},
               {.column = "a \"b\", c", .mean = -1e99, .scale = 5e-99}};
  p.label = "genre";
  p.labels = {"Drama", "Comédie", "1"};
  p.class_weights = {1.0, 2.0 / 3, 0.1};
  return p;
}

TEST(Preprocessing, ComesBackFromJsonBitByBit) {
  const auto saved = example();
  EXPECT_EQ(preprocessing_from_json(to_json(saved), "x"), saved);
  const auto file = std::filesystem::path(testing::TempDir()) / "orthant_preprocessing_test.json";
  save_preprocessing(saved, file);
  EXPECT_EQ(load_preprocessing(file), saved);
  std::filesystem::remove(file);
}

TEST(Preprocessing, RefusesJsonThatIsNotOne) {
  EXPECT_EQ(thrown_text<DataError>([] { preprocessing_from_json("{\"version\": 2}", "p.json"); }),
            "p.json:1:13: version: this program reads version 1, found 2\n");
  auto text = to_json(example());
  text.replace(text.find("fedcba98"), 8, "fedcbaxx");
  EXPECT_EQ(thrown_text<DataError>([&] { preprocessing_from_json(text, "p.json"); }),
            "p.json:6:18: primary.fingerprint: expected 16 hexadecimal digits, found \"fedcbaxx76543210\"\n");
  auto scale = example();
  scale.numbers[0].scale = 0;
  EXPECT_EQ(thrown_text<DataError>([&] { preprocessing_from_json(to_json(scale), "p.json"); }),
            "p.json:21:13: numbers.0.scale: 0 is not above 0\n");
  auto weights = example();
  weights.class_weights.pop_back();
  EXPECT_EQ(thrown_text<DataError>([&] { preprocessing_from_json(to_json(weights), "p.json"); }),
            "p.json:35:19: class_weights: 2 weights for 3 labels\n");
}

TEST(Preprocessing, ListsEveryDifference) {
  const auto saved = example();
  auto now = saved;
  EXPECT_TRUE(differences(saved, now).empty());
  now.primary.tokenizer = "the same file elsewhere";
  EXPECT_TRUE(differences(saved, now).empty());
  now.primary.length = 16;
  now.secondary.fingerprint = 8;
  now.secondary.tokenizer = "c";
  now.numbers[0].mean = 0.25;
  now.labels = {"Drama"};
  now.class_weights = {};
  const std::vector<std::string> expected = {
      "primary.length: 32 saved, 16 now",
      "secondary.tokenizer: \"b\" (11 tokens, fingerprint 0000000000000007) saved, \"c\" (11 tokens, fingerprint "
      "0000000000000008) now",
      "numbers.budget.mean: 0.1 saved, 0.25 now",
      "labels: [\"Drama\", \"Comédie\", \"1\"] saved, [\"Drama\"] now",
      "class_weights: [1, 0.6666666666666666, 0.1] saved, [] now",
  };
  EXPECT_EQ(differences(saved, now), expected);
  EXPECT_EQ(differences(saved, now, false).size(), 3U) << "means and class weights follow from the data";
  now = saved;
  now.numbers.pop_back();
  now.numbers[0].scale = 9;
  EXPECT_EQ(differences(saved, now),
            std::vector<std::string>{"numbers: [\"budget\", \"a \"b\", c\"] saved, [\"budget\"] now"});
}

TEST(Preprocessing, AMismatchSaysWhatToDo) {
  auto now = example();
  check_same_preprocessing(example(), now, "run/preprocessing.json");
  now.label = "rating";
  now.primary.length = 16;
  EXPECT_EQ(thrown_text<DataError>([&] { check_same_preprocessing(example(), now, "run/preprocessing.json"); }),
            "run/preprocessing.json does not describe the data of this run:\n"
            "  primary.length: 32 saved, 16 now\n"
            "  label: \"genre\" saved, \"rating\" now\n"
            "use the columns, tokenizers, lengths and labels that the model was trained with, or start a new run");
}

}  // namespace preprocessing_test
}  // namespace orthant
