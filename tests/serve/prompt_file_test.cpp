#include "orthant/serve/prompt_file.h"

#include <gtest/gtest.h>

#include <sstream>

#include "mesh/thrown_error.h"

namespace prompt_file_test {
namespace {

using namespace orthant;

PromptFile read(const std::string& text) {
  std::istringstream file(text);
  return read_prompts(file, "p");
}

TEST(PromptFile, NamesBadLinesAndReadsTheRest) {
  const auto found =
      read("\"a\"\n\n{\n{\"token_ids\": [1, 2]}\n{\"token_ids\": [18446744073709551615]}\n{\"token_ids\": [1.5]}\n");
  ASSERT_EQ(found.prompts.size(), 2U);
  EXPECT_EQ(found.lines, (std::vector<std::int64_t>{1, 4}));
  EXPECT_EQ(found.prompts[1].ids, (std::vector<std::int64_t>{1, 2}));
  ASSERT_EQ(found.bad.size(), 3U);
  EXPECT_EQ(found.bad[0].error, "it is no JSON");
  EXPECT_EQ(found.bad[1].error, "its token_ids hold 18446744073709551615");
  EXPECT_EQ(found.bad[2].error, "its token_ids hold 1.5");
}

// Whatever prints such a value calls itself as often as it is deep.
TEST(PromptFile, ListsInOneAnotherAreNamedAlone) {
  const auto deep = std::string(200'000, '[') + std::string(200'000, ']');
  EXPECT_EQ(test::thrown_text<DataError>([&] { read("{\"token_ids\": [" + deep + "]}\n"); }),
            "p: has no prompt; line 1: its token_ids hold array\n"
            "write one JSON text, {\"prompt\": ...} or {\"token_ids\": [...]} a line");
}

TEST(PromptFile, WithoutAPromptIsRefused) {
  EXPECT_EQ(test::thrown_text<DataError>([] { read("\n \n"); }),
            "p: has no prompt; it is empty\n"
            "write one JSON text, {\"prompt\": ...} or {\"token_ids\": [...]} a line");
}

}  // namespace
}  // namespace prompt_file_test
