#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error_text.h"
#include "files/temporary_folder.h"
#include "orthant/base/error.h"
#include "orthant/files/whole_file.h"
#include "orthant/text/tokenizer.h"
#include "text/small_bpe.h"
#include "text/small_sentencepiece.h"

namespace orthant {
namespace tokenizer_load_test {

namespace fs = std::filesystem;
using Ids = std::vector<std::int32_t>;
using nlohmann::json;
using test::TemporaryFolder;

// vocab.json and merges.txt of the small tokenizer, with more tokens behind its own.
void write_gpt2_files(const fs::path& folder, const std::vector<std::string>& more = {}) {
  const auto file = small_bpe();
  auto vocabulary = file["model"]["vocab"];
  for (const auto& token : more) vocabulary.emplace(token, vocabulary.size());
  std::string merges = "#version: 0.2\n";
  for (const auto& merge : file["model"]["merges"]) merges += merge.get<std::string>() + "\n";
  write_file_atomically(folder / "vocab.json", vocabulary.dump());
  write_file_atomically(folder / "merges.txt", merges);
}

std::string refusal(const fs::path& path) {
  return error_text<DataError>([&] { Tokenizer::load(path); });
}

void expect_part(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST(TokenizerLoad, TakesAFileOrAFolder) {
  const TemporaryFolder folder;
  write_file_atomically(folder.path() / "tokenizer.json", small_bpe().dump());
  const auto by_folder = Tokenizer::load(folder.path());
  const auto by_file = Tokenizer::load(folder.path() / "tokenizer.json");
  EXPECT_EQ(by_folder.encode("hello"), Ids{259});
  EXPECT_EQ(by_folder.fingerprint(), by_file.fingerprint());
  EXPECT_TRUE(Tokenizer::available());
}

TEST(TokenizerLoad, RolesArePartOfTheFingerprint) {
  const TemporaryFolder folder;
  auto file = small_bpe();
  file["added_tokens"] = nlohmann::json::array({added_token("<one>", 266), added_token("<two>", 267)});
  write_file_atomically(folder.path() / "tokenizer.json", file.dump());
  std::set<std::uint64_t> fingerprints = {Tokenizer::load(folder.path()).fingerprint()};
  for (const char* role : {"pad_token", "unk_token", "bos_token", "eos_token", "mask_token"}) {
    for (const char* token : {"<one>", "<two>"}) {
      write_file_atomically(folder.path() / "tokenizer_config.json", nlohmann::json{{role, token}}.dump());
      const auto tokenizer = Tokenizer::load(folder.path());
      EXPECT_TRUE(fingerprints.insert(tokenizer.fingerprint()).second) << role << " " << token;
      EXPECT_EQ(Tokenizer::load(folder.path()).fingerprint(), tokenizer.fingerprint());
    }
  }
}

TEST(TokenizerLoad, ReadsTheFilesOfGpt2) {
  const TemporaryFolder folder;
  write_gpt2_files(folder.path(), {"<|endoftext|>"});
  const auto tokenizer = Tokenizer::load(folder.path());
  EXPECT_EQ(tokenizer.encode("hello<|endoftext|> world"), (Ids{259, 266, 264}));
  EXPECT_EQ(tokenizer.special().end, 266);
  EXPECT_EQ(Tokenizer::load(folder.path() / "vocab.json").fingerprint(), tokenizer.fingerprint());
  // The same as a tokenizer.json, once the role that GPT-2's class gives is said.
  auto file = small_bpe();
  file["model"]["vocab"]["<|endoftext|>"] = 266;
  file["added_tokens"] = nlohmann::json::array({added_token("<|endoftext|>", 266)});
  TokenizerRoles roles;
  roles.tokens["unk_token"] = "<|endoftext|>";
  EXPECT_EQ(Tokenizer(tokenizer_from_json(file.dump(), "t.json", roles)).fingerprint(), tokenizer.fingerprint());
}

TEST(TokenizerLoad, ReadsTheFilesOfRoberta) {
  const TemporaryFolder folder;
  write_gpt2_files(folder.path(), {"<s>", "<pad>", "</s>", "<unk>", "<mask>"});
  const auto tokenizer = Tokenizer::load(folder.path());  // known by its vocabulary
  EXPECT_EQ(tokenizer.encode("hello <mask>"), (Ids{266, 259, 270, 268}));
  EXPECT_EQ(tokenizer.encode_pair("hello", "a").ids, (Ids{266, 259, 268, 268, 'a', 268}));
  EXPECT_EQ(tokenizer.special().pad, 267);
  EXPECT_EQ(tokenizer.special().mask, 270);
  EXPECT_EQ(tokenizer.special().unknown, 269);
  write_file_atomically(folder.path() / "tokenizer_config.json",
                        R"({"tokenizer_class": "RobertaTokenizerFast", "add_prefix_space": true,
                            "mask_token": {"content": "<mask>", "lstrip": false}})");
  EXPECT_EQ(Tokenizer::load(folder.path()).encode("world <mask>"), (Ids{266, 264, ' ', 270, 268}));
  write_file_atomically(folder.path() / "tokenizer_config.json", R"({"tokenizer_class": "GPT2Tokenizer"})");
  EXPECT_EQ(Tokenizer::load(folder.path()).encode("hello"), Ids{259});
}

TEST(TokenizerLoad, DocumentsBeginAsThePostProcessorSays) {
  const TemporaryFolder folder;
  auto file = small_bpe();
  file["added_tokens"] = nlohmann::json::array({added_token("<s>", 266), added_token("</s>", 267)});
  const auto begin = [&](const json& settings) {
    write_file_atomically(folder.path() / "tokenizer.json", file.dump());
    write_file_atomically(folder.path() / "tokenizer_config.json", settings.dump());
    return Tokenizer::load(folder.path()).document_begin();
  };
  EXPECT_EQ(begin({{"bos_token", "<s>"}}), Ids{}) << "a role alone is not put before a text";
  EXPECT_EQ(begin({{"bos_token", "<s>"}, {"add_bos_token", true}}), Ids{}) << "transformers does not look at it either";
  file["post_processor"] = {
      {"type", "TemplateProcessing"},
      {"single", {{{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}}, {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}},
      {"pair", {{{"Sequence", {{"id", "A"}, {"type_id", 0}}}}, {{"Sequence", {{"id", "B"}, {"type_id", 1}}}}}},
      {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", {266}}, {"tokens", {"<s>"}}}}}}};
  EXPECT_EQ(begin({{"bos_token", "<s>"}}), Ids{266});
  EXPECT_EQ(begin({{"bos_token", "<s>"}, {"add_bos_token", false}}), Ids{266});
}

TEST(TokenizerLoad, DocumentsOfFilesWithoutAPostProcessorBeginAsTheConfigurationSays) {
  const TemporaryFolder folder;
  write_gpt2_files(folder.path(), {"<|endoftext|>"});
  EXPECT_EQ(Tokenizer::load(folder.path()).document_begin(), Ids{});
  write_file_atomically(folder.path() / "tokenizer_config.json", R"({"add_bos_token": true})");
  EXPECT_EQ(Tokenizer::load(folder.path()).document_begin(), Ids{266});
  const TemporaryFolder pieces;
  write_file_atomically(pieces.path() / "tokenizer.model",
                        first_pieces() + piece_message("a", -3) + trainer_message(SentencePieceFile::Kind::bpe));
  const auto fingerprint = Tokenizer::load(pieces.path()).fingerprint();
  EXPECT_EQ(Tokenizer::load(pieces.path()).document_begin(), Ids{});
  write_file_atomically(pieces.path() / "tokenizer_config.json", R"({"add_bos_token": true})");
  EXPECT_EQ(Tokenizer::load(pieces.path()).document_begin(), Ids{1});
  EXPECT_EQ(Tokenizer::load(pieces.path()).encode("a"), (Ids{0, 3})) << "as sentencepiece has it";
  EXPECT_EQ(Tokenizer::load(pieces.path()).fingerprint(), fingerprint);
}

TEST(TokenizerLoad, ReadsAddedTokens) {
  const TemporaryFolder folder;
  write_gpt2_files(folder.path(), {"<|endoftext|>"});
  write_file_atomically(folder.path() / "added_tokens.json", R"({"<one>": 267})");
  write_file_atomically(
      folder.path() / "tokenizer_config.json",
      R"({"pad_token": "<two>", "added_tokens_decoder": {"268": {"content": "<two>", "rstrip": true}}})");
  const auto tokenizer = Tokenizer::load(folder.path());
  EXPECT_EQ(tokenizer.encode("<one> <two> a"), (Ids{267, ' ', 268, 'a'}));
  EXPECT_EQ(tokenizer.special().pad, 268);
  EXPECT_EQ(tokenizer.decode(Ids{267, 268}, true), "<one>");
  write_file_atomically(folder.path() / "added_tokens.json", R"({"<one>": 3})");
  expect_part(refusal(folder.path()), "token \"<one>\" has the id 3, which does not fit the vocabulary");
  write_file_atomically(folder.path() / "added_tokens.json", R"({"<one>": -3})");
  expect_part(refusal(folder.path()), "token \"<one>\" has the id -3");
}

TEST(TokenizerLoad, ReadsAVocabularyOfWordPieces) {
  const TemporaryFolder folder;
  write_file_atomically(folder.path() / "vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nhello\n");
  const auto tokenizer = Tokenizer::load(folder.path());
  EXPECT_EQ(tokenizer.kind(), "WordPiece");
  EXPECT_EQ(tokenizer.encode("Hello there"), (Ids{2, 5, 1, 3}));
}

TEST(TokenizerLoad, SaysWhatIsMissing) {
  const TemporaryFolder folder;
  expect_part(refusal(folder.path()), "no tokenizer in this folder");
  expect_part(refusal(folder.path()),
              "put tokenizer.json, tokenizer.model, vocab.txt, or vocab.json with merges.txt there");
  expect_part(refusal(folder.path() / "bert-base-cased"), "no such tokenizer");
  expect_part(refusal(folder.path() / "bert-base-cased"), "hf download");
  write_file_atomically(folder.path() / "tokenizer.model", "x");
  expect_part(refusal(folder.path()), "tokenizer.model: this is not a SentencePiece model");
  expect_part(refusal(folder.path() / "tokenizer.model"), "copy it again");
  write_file_atomically(folder.path() / "a.bin", "x");
  expect_part(refusal(folder.path() / "a.bin"), "not a tokenizer by its name");
}

TEST(TokenizerLoad, RefusesDamagedGpt2Files) {
  const TemporaryFolder folder;
  write_gpt2_files(folder.path());
  write_file_atomically(folder.path() / "merges.txt", "a b c\n");
  expect_part(refusal(folder.path()), "merges.txt: merge 0 is \"a b c\"");
  write_gpt2_files(folder.path());
  write_file_atomically(folder.path() / "vocab.json", "[]");
  expect_part(refusal(folder.path()), "vocab.json: the whole is an array");
  write_gpt2_files(folder.path());
  write_file_atomically(folder.path() / "tokenizer_config.json", R"({"tokenizer_class": "CLIPTokenizer"})");
  expect_part(refusal(folder.path()), "tokenizer_class is CLIPTokenizer, and there is no tokenizer.json");
  write_file_atomically(folder.path() / "tokenizer_config.json", R"({"tokenizer_class": "RobertaTokenizer"})");
  expect_part(refusal(folder.path()), "a RoBERTa vocabulary without <s> and </s>");
  write_file_atomically(folder.path() / "tokenizer_config.json",
                        R"({"added_tokens_decoder": {"x": {"content": "a"}}})");
  expect_part(refusal(folder.path()), "added_tokens_decoder.x is not an id");
}

}  // namespace tokenizer_load_test
}  // namespace orthant
