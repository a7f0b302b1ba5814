#include "orthant/text/tokenizer.h"

#include <fmt/format.h>

#include <array>

#include "orthant/base/error.h"
#include "orthant/files/path_facts.h"
#include "orthant/files/whole_file.h"
#include "orthant/text/gpt2_files.h"
#include "orthant/text/sentencepiece.h"
#include "orthant/text/tokenizer_json.h"
#include "orthant/text/tokenizer_model.h"
#include "orthant/text/wordpiece.h"

namespace orthant {
namespace {

namespace fs = std::filesystem;

using Handle = std::shared_ptr<const Tokenizer::Model>;

constexpr std::string_view kExpected = "tokenizer.json, tokenizer.model, vocab.txt, or vocab.json with merges.txt";

fs::path folder_of(const fs::path& file) {
  return file.has_parent_path() ? file.parent_path() : fs::path(".");
}

Handle from_json_file(const fs::path& file) {
  return tokenizer_from_json(read_text_file(file), file.string(), read_roles(folder_of(file)));
}

Handle from_vocab_txt(const fs::path& file) {
  return make_wordpiece(read_wordpiece_vocabulary(file));
}

// SentencePiece's own file. The largest in use have a few megabytes.
Handle from_sentencepiece(const fs::path& file) {
  constexpr std::int64_t kMaxBytes = std::int64_t{64} << 20;
  return make_sentencepiece(parse_sentencepiece(read_file(file, kMaxBytes), file.string()),
                            read_roles(folder_of(file)).add_bos_token);
}

// A .model, or one of the names that Hugging Face models give it.
constexpr std::array<const char*, 4> kSentencePieceNames = {"tokenizer.model", "spiece.model",
                                                            "sentencepiece.bpe.model", "spm.model"};

Handle from_folder(const fs::path& folder) {
  if (is_there(folder / "tokenizer.json")) return from_json_file(folder / "tokenizer.json");
  if (is_there(folder / "vocab.txt")) return from_vocab_txt(folder / "vocab.txt");
  if (is_there(folder / "vocab.json") && is_there(folder / "merges.txt")) return tokenizer_from_gpt2_files(folder);
  for (const char* name : kSentencePieceNames) {
    if (is_there(folder / name)) return from_sentencepiece(folder / name);
  }
  throw DataError(fmt::format("{}: no tokenizer in this folder", folder.string()),
                  {.remedy = fmt::format("put {} there", kExpected)});
}

Handle from_file(const fs::path& file) {
  const auto name = file.filename().string();
  if (name == "vocab.json" || name == "merges.txt") return tokenizer_from_gpt2_files(folder_of(file));
  if (file.extension() == ".json") return from_json_file(file);
  if (file.extension() == ".txt") return from_vocab_txt(file);
  if (file.extension() == ".model") return from_sentencepiece(file);
  throw DataError(fmt::format("{}: not a tokenizer by its name", file.string()),
                  {.remedy = fmt::format("give {}, or a folder with them", kExpected)});
}

}  // namespace

bool Tokenizer::available() {
  return true;
}

Tokenizer Tokenizer::load(const fs::path& file_or_folder) {
  if (!is_there(file_or_folder)) {
    throw DataError(fmt::format("{}: no such tokenizer", file_or_folder.string()),
                    {.remedy = fmt::format("give a file or a folder with {}; to bring one of Hugging Face here: "
                                           "hf download {} --include '*token*' 'vocab*' merges.txt --local-dir {}",
                                           kExpected, file_or_folder.string(), file_or_folder.string())});
  }
  return Tokenizer(is_folder(file_or_folder) ? from_folder(file_or_folder) : from_file(file_or_folder));
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  std::vector<std::int32_t> ids;
  model_->encode(text, options, ids);
  return ids;
}

void Tokenizer::encode_into(std::string_view text, const EncodeOptions& options, std::vector<std::int32_t>& ids) const {
  model_->encode(text, options, ids);
}

Encoding Tokenizer::encode_pair(std::string_view first, std::string_view second, const EncodeOptions& options) const {
  return model_->encode_pair(first, second, options);
}

bool Tokenizer::may_be_cut() const {
  return model_->may_be_cut();
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids, bool skip_special) const {
  return model_->decode(ids, skip_special);
}

std::int64_t Tokenizer::vocab_size() const {
  return model_->vocab_size();
}

std::optional<std::int32_t> Tokenizer::id(std::string_view token) const {
  return model_->id(token);
}

const SpecialTokens& Tokenizer::special() const {
  return model_->special();
}

const std::vector<std::int32_t>& Tokenizer::document_begin() const {
  return model_->document_begin();
}

std::string Tokenizer::kind() const {
  return model_->kind();
}

std::uint64_t Tokenizer::fingerprint() const {
  return model_->fingerprint();
}

}  // namespace orthant
