#include "orthant/data/token_files.h"

#include <gtest/gtest.h>

#include "base/error_text.h"
#include "data/small_text.h"
#include "files/temporary_folder.h"
#include "mesh/thrown_error.h"
#include "orthant/base/error.h"
#include "orthant/data/id_lines.h"
#include "orthant/data/tokenize_text.h"

namespace orthant {
namespace token_files_test {

using test::TemporaryFolder;
using test::text_of;
using test::thrown_text;
using test::write_text;

constexpr std::string_view kTwoBytes("a\0b\0\0\1c\0", 8);  // a b | c

void expect_part(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST(TokenFiles, ABinIsOneDocumentOfItsIds) {
  TemporaryFolder folder;
  const auto two = write_text(folder / "two.bin", kTwoBytes);
  const auto store = open_token_files({two}, {.token_type = "uint16"}, {}).tokens;
  EXPECT_EQ(text_of(*store), "ab|c");
  EXPECT_EQ(store->documents(), 1);
  EXPECT_EQ(store->document_begin(1), 4);
  EXPECT_EQ(store->index().max_id, 256);
  EXPECT_EQ(store->index().tokenizer.vocab_size, 257);
  const auto four = write_text(folder / "four.bin", std::string_view("a\0\0\0\0\1\0\0", 8));
  EXPECT_EQ(text_of(*open_token_files({four}, {.token_type = "uint32"}, {}).tokens), "a|");
}

TEST(TokenFiles, LinesAreDocuments) {
  TemporaryFolder folder;
  const auto a =
      write_text(folder / "a.jsonl",
                 "[97, 98, 256]\n\n{\"ids\": [99], \"more\": {\"ids\": [1, [2]]}}\r\n[]\n{\"x\": 1, \"ids\": []}");
  const auto b = write_text(folder / "b.jsonl", "{\"ids\":[100,256]}\n");
  const auto found = open_token_files({a, b}, {.ids_column = "ids"}, {});
  EXPECT_EQ(found.numbers, (std::vector<std::int64_t>{0, 1, 4}));
  EXPECT_EQ(found.documents, 5);
  const auto& store = found.tokens;
  EXPECT_EQ(text_of(*store), "ab|cd|");
  EXPECT_EQ(store->documents(), 3);
  EXPECT_EQ(store->document_begin(1), 3);
  EXPECT_EQ(store->document_begin(2), 4);
  EXPECT_EQ(store->index().empty_documents, 2);
}

TEST(TokenFiles, TheFirstLineSaysWhetherLinesAreIds) {
  TemporaryFolder folder;
  const auto are_ids = [&](const std::string& text) { return begins_with_ids(write_text(folder / "a", text), "ids"); };
  for (const char* text : {"[1, 2]\nx", "\n \r\n[]", "{\"a\": [1], \"ids\": [2]}", "{\"ids\": \"wrong\"}", "[-1]"}) {
    EXPECT_TRUE(are_ids(text)) << text;
  }
  for (const char* text : {"", "\n", "the ship", "[1] the ship", "[The ship]", "{\"a\": {\"ids\": [1]}}", "7", "{"}) {
    EXPECT_FALSE(are_ids(text)) << text;
  }
  EXPECT_FALSE(are_ids(std::string(std::size_t{66} << 20, 'a'))) << "a text in one line";
}

TEST(TokenFiles, SaysWhichFilesHoldIds) {
  EXPECT_FALSE(hold_ids({"a.txt"}, {}));
  EXPECT_TRUE(hold_ids({"a.jsonl"}, {.ids_column = "ids"}));
  EXPECT_TRUE(hold_ids({"a.bin"}, {.token_type = "uint32"}));
  EXPECT_EQ(
      thrown_text([] { hold_ids({"a.bin"}, {}); }),
      "a.bin is a file of ids, but data.token_type does not say how wide they are\nset data.token_type=uint16, or "
      "uint32 for a vocabulary of more than 65536");
  expect_part(thrown_text([] { hold_ids({"a.bin"}, {.token_type = "int16"}); }), "data.token_type is \"int16\"");
  expect_part(thrown_text([] { hold_ids({"a.bin", "b.bin"}, {.token_type = "uint16"}); }),
              "data.path names 2 files, among them a.bin\nname one .bin; several are joined by cat");
}

TEST(TokenFiles, RefusesABinOfAnotherWidthOrTokenizer) {
  TemporaryFolder folder;
  const auto odd = write_text(folder / "odd.bin", "abc");
  expect_part(error_text<DataError>([&] { open_token_files({odd}, {.token_type = "uint16"}, {}); }),
              "odd.bin has 3 bytes, which are not a whole number of ids of 2 bytes");
  const auto empty = write_text(folder / "empty.bin", "");
  expect_part(error_text<DataError>([&] { open_token_files({empty}, {.token_type = "uint16"}, {}); }), "has 0 bytes");
  const auto two = write_text(folder / "two.bin", kTwoBytes);
  expect_part(error_text<DataError>([&] { open_token_files({two}, {.token_type = "uint32"}, {}); }),
              "two.bin has ids up to 6488320 as uint32, more than any vocabulary\n  fix: set data.token_type=uint16");
  TokenizerFacts facts;
  facts.path = "t";
  facts.vocab_size = 256;
  expect_part(error_text<DataError>([&] { open_token_files({two}, {.token_type = "uint16"}, facts); }),
              "two.bin has token ids up to 256, but tokenizer t has a vocabulary of 256");
  expect_part(
      error_text<DataError>([&] { open_token_files({(folder / "none.bin").string()}, {.token_type = "uint16"}, {}); }),
      "none.bin");
}

TEST(TokenFiles, NamesTheLineThatIsNoListOfIds) {
  TemporaryFolder folder;
  const auto refusal = [&](const std::string& line) {
    const auto path = write_text(folder / "a.jsonl", "[1]\n" + line + "\n");
    return error_text<DataError>([&] { open_token_files({path}, {.ids_column = "ids"}, {}); });
  };
  expect_part(refusal("[1, 2"), "a.jsonl:2: this is not JSON");
  expect_part(refusal("[1] 2"), "a.jsonl:2: this is not JSON");
  expect_part(refusal("7"), "a.jsonl:2: something that is no list of ids");
  expect_part(refusal("[1.5]"), "a.jsonl:2: something that is no list of ids");
  expect_part(refusal("[\"a\"]"), "a.jsonl:2: something that is no list of ids");
  expect_part(refusal("[[1]]"), "a.jsonl:2: something that is no list of ids");
  expect_part(refusal("[-1]"), "a.jsonl:2: -1 is not between 0 and 4194303");
  expect_part(refusal("[18446744073709551615]"), "18446744073709551615 is not between 0 and 4194303");
  expect_part(refusal("{\"text\": \"a\"}"), "a.jsonl:2: there is no key \"ids\"\n  fix: write a line as [1, 2, 3] or");
  expect_part(refusal("{\"ids\": \"a\"}"), "a.jsonl:2: something that is no list of ids");
  expect_part(refusal("{\"ids\": [1], \"ids\": [2]}"), "a.jsonl:2: the key \"ids\" is given twice");
  expect_part(refusal("{\"a\": " + std::string(100000, '[')), "a.jsonl:2: nested deeper than 64 levels");
  const auto blank = write_text(folder / "blank.jsonl", "\n[]\n \n");
  expect_part(error_text<DataError>([&] { open_token_files({blank}, {.ids_column = "ids"}, {}); }),
              "there are no ids in it");
}

// Ids of four bytes that are read as ids of two would train without a word: every second id is their upper half.
TEST(TokenFiles, IdsOfFourBytesAreNotReadAsIdsOfTwo) {
  const TemporaryFolder folder;
  const auto write_ids = [&](const auto& ids) {
    return write_text(folder / "ids.bin",
                      std::string_view(reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(ids[0])));
  };
  const auto refused = [&](const std::string& path) {
    return error_text<DataError>([&] { open_token_files({path}, {.token_type = "uint16"}, {}); });
  };
  std::vector<std::uint32_t> small, large, padded;
  std::vector<std::uint16_t> two, few;
  for (std::uint32_t i = 0; i < 400; ++i) {
    small.push_back(i % 50);
    large.push_back(1 + (i * 331) % 128'000);  // half of them beyond 65535
    padded.push_back(i % 4 == 0 ? 7 : 0);
    two.push_back(static_cast<std::uint16_t>(i * 7 % 20));
    few.push_back(static_cast<std::uint16_t>(i % 2));
  }
  for (const auto& ids : {small, large, padded}) {
    const auto path = write_ids(ids);
    EXPECT_TRUE(looks_like_uint32(path));
    expect_part(refused(path), "ids.bin: data.token_type is uint16, but of every two such ids the second is 0");
    expect_part(refused(path), "fix: set data.token_type=uint32");
    EXPECT_EQ(open_token_files({path}, {.token_type = "uint32"}, {}).tokens->size(), 400);
  }
  for (const auto& ids : {two, few}) {
    const auto path = write_ids(ids);
    EXPECT_FALSE(looks_like_uint32(path));
    EXPECT_EQ(open_token_files({path}, {.token_type = "uint16"}, {}).tokens->size(), 400);
  }
}

TEST(TokenFiles, IdsAreNotPreparedAsText) {
  const auto text = error_text<DataError>([] { tokenize_text(test::byte_encoder(), {.files = {"a.txt", "b.bin"}}); });
  expect_part(text,
              "b.bin is by its ending a file of token ids, not text\n  fix: train on it as it is: --set "
              "data.kind=text --set data.path=b.bin --set data.token_type=uint16 (or uint32)");
}

}  // namespace token_files_test
}  // namespace orthant
