// Whether a long document that is read in chunks has the ids of the whole one, with real tokenizers.
#include "orthant/data/tokenize_text.h"

#include <gtest/gtest.h>

#include "data/small_text.h"
#include "files/temporary_folder.h"
#include "mesh/thrown_error.h"
#include "text/small_bpe.h"

namespace orthant {
namespace tokenize_text_test {

using test::TemporaryFolder;
using test::thrown_text;
using test::write_text;
using Ids = std::vector<std::int64_t>;

Ids ids_of(const Tokenizer& tokenizer, const std::string& path, const ChunkOptions& chunks) {
  const auto store = tokenize_text(text_encoder(tokenizer, "t"),
                                   {.files = {path}, .documents = {.chunks = chunks}, .end_token = false});
  Ids ids(static_cast<std::size_t>(store->size()));
  store->read(0, ids);
  return ids;
}

// Lines, blank lines and safe cuts in random order.
std::string some_text(std::mt19937& random) {
  static const std::vector<std::string> kParts = {"hello", " world", "\n",   "\nworld", "a.\nhello", "\n\n", " \n",
                                                  "\r\n",  "<x>",    "<x>a", ".\n7",    "é\n",       "  ",   "\nworld"};
  std::string text = "hello";
  while (text.size() < 200) text += kParts[random() % kParts.size()];
  return text;
}

nlohmann::json with_prefix_space() {
  auto file = small_bpe();
  file["pre_tokenizer"]["add_prefix_space"] = true;
  file["added_tokens"] = nlohmann::json::array({added_token("<x>", 266)});
  return file;
}

TEST(TokenizeText, ChunksOfADocumentHaveTheIdsOfTheWhole) {
  auto llama = small_bpe();
  llama["pre_tokenizer"] = {
      {"type", "Sequence"},
      {"pretokenizers",
       {{{"type", "Split"}, {"pattern", {{"Regex", kLlama3Regex}}}, {"behavior", "Isolated"}, {"invert", false}},
        {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}};
  const TemporaryFolder folder;
  std::mt19937 random(5);
  for (const auto& file : {small_bpe(), with_prefix_space(), llama}) {
    const auto tokenizer = tokenizer_of(file);
    EXPECT_TRUE(tokenizer.may_be_cut());
    for (int round = 0; round < 50; ++round) {
      const auto path = write_text(folder / "a.txt", some_text(random));
      const auto whole = ids_of(tokenizer, path, {});
      for (const std::int64_t bytes : {16, 33, 70}) {
        ASSERT_EQ(ids_of(tokenizer, path, {.bytes = bytes, .most_bytes = 1 << 20}), whole)
            << "chunks of " << bytes << " bytes in round " << round << " of " << file["pre_tokenizer"];
      }
    }
  }
}

TEST(TokenizeText, ADocumentInChunksBeginsOnce) {
  const TemporaryFolder folder;
  std::mt19937 random(6);
  auto encoder = text_encoder(tokenizer_of(small_bpe()), "t");
  encoder.begin = {7, 8};
  const auto path = write_text(folder / "a.txt", some_text(random));
  const auto store = tokenize_text(
      encoder, {.files = {path}, .documents = {.chunks = {.bytes = 16, .most_bytes = 1 << 20}}, .end_token = false});
  Ids ids(static_cast<std::size_t>(store->size()));
  store->read(0, ids);
  Ids expected = {7, 8};
  for (const auto id : ids_of(tokenizer_of(small_bpe()), path, {})) expected.push_back(id);
  EXPECT_EQ(ids, expected);
}

TEST(TokenizeText, DocumentsAreNumberedWithTheEmptyOnesAmongThem) {
  const TemporaryFolder folder;
  const auto path = write_text(folder / "a.txt", "hello\n\nworld\n \nhello world\n");
  const auto found = tokenize_documents(text_encoder(tokenizer_of(small_bpe()), "t"),
                                        {.files = {path}, .documents = {.separator = "line"}, .end_token = false});
  EXPECT_EQ(found.tokens->documents(), static_cast<std::int64_t>(found.numbers.size()));
  const auto lines = write_text(folder / "a.jsonl", R"({"text":"hello"}
{"text":""}
{"text":"world"}
{"text":null}
)");
  const auto rows =
      tokenize_documents(text_encoder(tokenizer_of(small_bpe()), "t"), {.files = {lines}, .end_token = false});
  EXPECT_EQ(rows.documents, 4);
  EXPECT_EQ(rows.numbers, (Ids{0, 2}));
  EXPECT_EQ(rows.tokens->documents(), 2);
}

TEST(TokenizeText, TokenizersThatJoinLinesSeeWholeDocuments) {
  auto joining = small_bpe();  // words of two letters with the line end between them
  joining["pre_tokenizer"] = {
      {"type", "Sequence"},
      {"pretokenizers",
       {{{"type", "Split"}, {"pattern", {{"Regex", "a\\na|."}}}, {"behavior", "Isolated"}, {"invert", false}},
        {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}};
  joining["model"]["vocab"][spelling_of_bytes("a\n")] = 266;
  joining["model"]["vocab"][spelling_of_bytes("a\na")] = 267;
  for (const auto* left : {"a", "a\n"}) {
    joining["model"]["merges"].push_back(spelling_of_bytes(left) + " " +
                                         spelling_of_bytes(std::string_view(left) == "a" ? "\n" : "a"));
  }
  const auto tokenizer = tokenizer_of(joining);
  EXPECT_FALSE(tokenizer.may_be_cut());
  const TemporaryFolder folder;
  const auto path = write_text(folder / "a.txt", "xxxxxxa\nayyyyyyy");
  EXPECT_EQ(ids_of(tokenizer, path, {.bytes = 10}),
            (Ids{'x', 'x', 'x', 'x', 'x', 'x', 267, 'y', 'y', 'y', 'y', 'y', 'y', 'y'}));
  EXPECT_EQ(thrown_text<DataError>([&] { ids_of(tokenizer, path, {.bytes = 4, .whole_bytes = 8}); }),
            path +
                ": the document at byte 0 is longer than 8 B, and the tokenizer makes words across line ends, so that "
                "it cannot be cut\nmake documents shorter: orthant data prepare-text --separator blank-line or line, "
                "or more files");
}

TEST(TokenizeText, AddedTokensThatReachOverLinesForbidCuts) {
  const auto may_be_cut = [](const std::string& content, const nlohmann::json& more) {
    auto file = small_bpe();
    file["added_tokens"] = nlohmann::json::array({added_token(content, 266, more)});
    return tokenizer_of(file).may_be_cut();
  };
  EXPECT_TRUE(may_be_cut("<x>", {{"lstrip", true}, {"rstrip", true}}));
  EXPECT_TRUE(may_be_cut("x>", {{"lstrip", false}}));
  EXPECT_FALSE(may_be_cut("x>", {{"lstrip", true}}));
  EXPECT_FALSE(may_be_cut("<x", {{"rstrip", true}}));
  EXPECT_FALSE(may_be_cut("<\n>", {{"rstrip", false}}));
}

}  // namespace tokenize_text_test
}  // namespace orthant
