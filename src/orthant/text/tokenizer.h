// Text to token ids and back: WordPiece, BPE over bytes or characters and Unigram, from the files that Hugging Face
// models bring, SentencePiece's own among them. One handle for every kind; what a file asks for and we do not have is
// refused by name when it is loaded, never approximated.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace orthant {

struct EncodeOptions {
  bool special = true;          // add [CLS], [SEP], <s> and the like, as the file's post-processor says
  std::int64_t max_length = 0;  // ids at most, special ones included; 0: no limit. Text loses its end
  bool continues = false;       // the text goes on where an earlier one was cut: no space is put before it
};

// One text, or two: `types` is the segment of each id (0, or 1 for the second text and its end).
struct Encoding {
  std::vector<std::int32_t> ids;
  std::vector<std::int32_t> types;
};

// The ids of tokens with a role; nothing where the tokenizer has no such token.
struct SpecialTokens {
  std::optional<std::int32_t> pad, unknown, begin, end, mask;  // begin: [CLS], <s>, <|begin_of_text|>; end: [SEP], </s>
};

// A handle: copies share what was loaded, which never changes. All methods are Local and safe from several threads.
class Tokenizer {
 public:
  // A tokenizer.json, a vocab.txt or a SentencePiece .model, or a folder with tokenizer.json; else vocab.txt
  // (tokenizer_config.json says whether it is cased); else vocab.json and merges.txt; else tokenizer.model. DataError
  // for files that are missing, damaged, or of a kind that is not read, with what to do.
  static Tokenizer load(const std::filesystem::path& file_or_folder);

  // Whether this build can load any: PCRE2 and utf8proc were there.
  static bool available();

  // Invalid UTF-8 passes through byte by byte in byte-level BPE; elsewhere it becomes U+FFFD.
  std::vector<std::int32_t> encode(std::string_view text, const EncodeOptions& options = {}) const;
  // As encode(), added to the end of `ids`.
  void encode_into(std::string_view text, const EncodeOptions& options, std::vector<std::int32_t>& ids) const;
  // Without a post-processor the second text follows the first. The longer text loses its end first.
  Encoding encode_pair(std::string_view first, std::string_view second, const EncodeOptions& options = {}) const;

  // Whether a text may be cut and its parts encoded one by one: see Note [Safe cuts] in safe_cut.h.
  bool may_be_cut() const;

  // DataError for an id outside of the vocabulary. Byte-level: the exact bytes.
  std::string decode(std::span<const std::int32_t> ids, bool skip_special = false) const;

  std::int64_t vocab_size() const;  // largest id + 1
  std::optional<std::int32_t> id(std::string_view token) const;
  const SpecialTokens& special() const;
  // What a document of a corpus begins with, as transformers has it: the ids that the post-processor puts before a
  // text; of files without one the begin token, where tokenizer_config.json has add_bos_token. Else nothing.
  const std::vector<std::int32_t>& document_begin() const;
  std::string kind() const;           // "WordPiece", "BPE", "Unigram"
  std::uint64_t fingerprint() const;  // of everything that decides ids and roles: equal for equal tokenizers

  class Model;  // an implementation: wordpiece.h, byte_bpe.h, unigram.h, ...
  explicit Tokenizer(std::shared_ptr<const Model> model) : model_(std::move(model)) {}

 private:
  std::shared_ptr<const Model> model_;
};

}  // namespace orthant
