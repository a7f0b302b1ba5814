// The text of an answer while its tokens come: what is certain leaves at once, what the next token may change is held
// back. All pieces together are the text of all tokens decoded at once, whatever the tokenizer, and no piece ends
// within a character. Texts that end an answer are found across tokens, and no part of one leaves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "orthant/text/tokenizer.h"

namespace orthant {

struct TextStreamOptions {
  std::vector<std::string> stop_texts = {};  // the answer ends before the first one of these; none may be empty
  // The tokens before the answer, when its text is to go on with theirs: a space at its begin stays then. Else the
  // answer is decoded by itself.
  std::span<const std::int64_t> context = {};
  bool skip_special = true;  // special tokens have no text
};

// Of one answer; not for several threads at once. Ids that the tokenizer does not know have no text: vocabularies of
// models are padded.
class TextStream {
 public:
  explicit TextStream(Tokenizer tokenizer, const TextStreamOptions& options = {});

  // What is certain now; often empty. Nothing comes after stopped().
  std::string add(std::int64_t token);
  // The rest, when no more tokens come.
  std::string finish();

  // A stop text was found. It and what follows it are no part of the answer.
  bool stopped() const { return stopped_; }

  // Where the text of the token that was added last begins, in characters of the answer. Tokens that make a character
  // together begin where it does.
  std::int64_t token_begin() const { return token_begin_; }

 private:
  bool is_byte_token(std::int64_t token) const;
  bool has_text(std::int32_t token) const;
  std::string decoded(std::size_t count) const;  // of the first tokens of the window
  void drop_old_tokens();
  std::string decode_window(bool last);
  std::string release(std::string text, bool last);

  Tokenizer tokenizer_;
  std::vector<std::string> stop_texts_;
  bool skip_special_;
  std::vector<std::int64_t> byte_tokens_;  // of <0x00> to <0xFF>, sorted: what a run of them says is known at its end
  std::vector<std::int32_t> window_;       // the last tokens, as many as decide how the next one is decoded
  std::string window_text_;                // of those whose text was taken
  std::string tail_;                       // bytes that may be the begin of a character
  std::string held_;                       // text that may be the begin of a stop text
  std::int64_t num_characters_ = 0;        // decoded so far
  std::int64_t token_begin_ = 0;
  bool stopped_ = false;
};

// The text with U+FFFD for what is no UTF-8, as Python's errors="replace" has it. Local.
std::string replace_invalid_utf8(std::string_view text);

}  // namespace orthant
