#include "orthant/text/post_processor.h"

#include <gtest/gtest.h>

#include "base/error_text.h"
#include "orthant/base/error.h"

namespace orthant {
namespace post_processor_test {

using Ids = std::vector<std::int32_t>;

Ids single(const PostProcessor& post, const Ids& text, const EncodeOptions& options) {
  Ids ids = {7};
  post.apply(text, options, ids);
  return ids;
}

TEST(PostProcessor, PutsSpecialTokensAround) {
  const auto bert = PostProcessor::bert(101, 102);
  EXPECT_EQ(single(bert, {1, 2}, {}), (Ids{7, 101, 1, 2, 102}));
  EXPECT_EQ(single(bert, {1, 2}, {.special = false}), (Ids{7, 1, 2}));
  const auto pair = bert.apply_pair({1, 2}, {3}, {});
  EXPECT_EQ(pair.ids, (Ids{101, 1, 2, 102, 3, 102}));
  EXPECT_EQ(pair.types, (Ids{0, 0, 0, 0, 1, 1}));
  const auto roberta = PostProcessor::roberta(0, 2).apply_pair({5}, {6}, {});
  EXPECT_EQ(roberta.ids, (Ids{0, 5, 2, 2, 6, 2}));
  EXPECT_EQ(roberta.types, (Ids{0, 0, 0, 0, 0, 0}));
  const auto plain = PostProcessor().apply_pair({5}, {6}, {});
  EXPECT_EQ(plain.ids, (Ids{5, 6}));
  EXPECT_EQ(plain.types, (Ids{0, 1}));
}

TEST(PostProcessor, SaysWhatATextBeginsWith) {
  EXPECT_EQ(PostProcessor::bert(101, 102).begin(), Ids{101});
  EXPECT_EQ(PostProcessor::roberta(0, 2).begin(), Ids{0});
  EXPECT_EQ(PostProcessor().begin(), Ids{});
}

TEST(PostProcessor, TextLosesItsEnd) {
  const auto bert = PostProcessor::bert(101, 102);
  EXPECT_EQ(single(bert, {1, 2, 3}, {.max_length = 4}), (Ids{7, 101, 1, 2, 102}));
  EXPECT_EQ(single(bert, {1, 2, 3}, {.max_length = 2}), (Ids{7, 101, 102}));
  EXPECT_EQ(single(bert, {1, 2, 3}, {.special = false, .max_length = 2}), (Ids{7, 1, 2}));
  EXPECT_EQ(bert.apply_pair({1, 2, 3}, {4, 5, 6, 7}, {.max_length = 6}).ids, (Ids{101, 1, 102, 4, 5, 102}));
}

TEST(PostProcessor, NeedsRoomForTheSpecialTokens) {
  const auto error = error_text<ConfigError>([] { single(PostProcessor::bert(101, 102), {1}, {.max_length = 1}); });
  EXPECT_NE(error.find("a maximum length of 1 ids has no room for the 2 special tokens"), std::string::npos) << error;
  EXPECT_NE(error.find("use at least 3"), std::string::npos) << error;
}

TEST(PostProcessor, TheLongerTextLosesFirst) {
  const auto lengths = [](std::int64_t first, std::int64_t second, std::int64_t room) {
    const auto kept = truncated_lengths(first, second, room);
    return std::pair(kept.first, kept.second);
  };
  EXPECT_EQ(lengths(3, 4, 7), std::pair(std::int64_t{3}, std::int64_t{4}));
  EXPECT_EQ(lengths(2, 9, 7), std::pair(std::int64_t{2}, std::int64_t{5}));
  EXPECT_EQ(lengths(9, 2, 7), std::pair(std::int64_t{5}, std::int64_t{2}));
  EXPECT_EQ(lengths(9, 8, 7), std::pair(std::int64_t{4}, std::int64_t{3}));
  EXPECT_EQ(lengths(8, 9, 7), std::pair(std::int64_t{3}, std::int64_t{4}));
  EXPECT_EQ(lengths(5, 5, 0), std::pair(std::int64_t{0}, std::int64_t{0}));
}

}  // namespace post_processor_test
}  // namespace orthant
