#include "orthant/data/make_vocabulary.h"

#include <algorithm>

#include "data/table_files.h"
#include "mesh/thrown_error.h"
#include "orthant/data/inspect_table.h"
#include "orthant/text/tokenizer.h"

namespace orthant {
namespace make_vocabulary_test {

class MakeVocabulary : public test::TableFiles {
 protected:
  Tokenizer tokenizer_of(const MadeVocabulary& made, bool cased) const {
    std::string lines;
    for (const auto& token : made.tokens) lines += token + "\n";
    write("tokenizer_config.json", fmt::format("{{\"do_lower_case\": {}}}", !cased));
    return Tokenizer::load(write("made.txt", lines));
  }
};

const char* const kTable =
    "title,plot,n\n"
    "\"The Good, the Bad\",Café in the 東京 night,1\n"
    "THE café,walking walking,2\n"
    "bad row\n";

TEST_F(MakeVocabulary, EveryTextItWasMadeFromHasNoUnknownToken) {
  for (const bool cased : {false, true}) {
    const auto path = write("t.csv", kTable);
    const auto made =
        make_vocabulary({.path = path, .columns = {"title", "plot"}, .size = 400, .cased = cased, .progress = {}});
    EXPECT_EQ(made.rows, 2);
    EXPECT_EQ(made.words, 15);
    const auto tokenizer = tokenizer_of(made, cased);
    EXPECT_EQ(tokenizer.vocab_size(), static_cast<std::int64_t>(made.tokens.size()));
    const auto facts =
        inspect_table({.path = path, .columns = {"title", "plot"}, .tokenizer = tokenizer, .progress = {}});
    for (const auto& column : facts.columns) {
      ASSERT_TRUE(column.tokens);
      EXPECT_EQ(column.tokens->unknown, 0) << column.name << (cased ? " cased" : " uncased");
    }
    if (!cased) EXPECT_EQ(facts.columns[0].tokens->least, 4) << "[CLS] the cafe [SEP]";
  }
}

TEST_F(MakeVocabulary, CasingIsTheTokenizers) {
  const auto has = [&](bool cased, const std::string& token) {
    const auto made = make_vocabulary(
        {.path = write("t.csv", kTable), .columns = {"title", "plot"}, .size = 400, .cased = cased, .progress = {}});
    return std::ranges::find(made.tokens, token) != made.tokens.end();
  };
  EXPECT_TRUE(has(false, "the"));
  EXPECT_TRUE(has(false, "cafe")) << "accents go with capital letters";
  EXPECT_FALSE(has(true, "cafe"));
  EXPECT_TRUE(has(true, "##É") || has(true, "##é"));
  EXPECT_TRUE(has(false, "walking"));
}

TEST_F(MakeVocabulary, NeedsColumns) {
  EXPECT_EQ(
      test::thrown_text([&] { make_vocabulary({.path = write("t.csv", kTable), .columns = {}, .progress = {}}); }),
      "no columns are named to make a vocabulary from\nset --columns title,plot");
}

}  // namespace make_vocabulary_test
}  // namespace orthant
