#include "orthant/serve/text_stream.h"

#include <fmt/format.h>

#include <algorithm>

#include "orthant/base/error.h"
#include "orthant/text/utf8.h"

namespace orthant {
namespace {

// Decoders look at the token before, and treat the first one of all differently: so many decide what the next one says.
constexpr std::size_t kContextTokens = 8;
constexpr std::size_t kLongWindow = 32;
constexpr std::string_view kReplacement = "\xef\xbf\xbd";

// Bytes of a character by its first one; 1 for bytes that begin none.
std::size_t character_length(unsigned char first) {
  if (first >= 0xc2 && first <= 0xdf) return 2;
  if (first >= 0xe0 && first <= 0xef) return 3;
  if (first >= 0xf0 && first <= 0xf4) return 4;
  return 1;
}

// Whether a character may go on so: the second byte of some is bounded further.
bool may_follow(std::string_view begin, std::size_t at) {
  const auto first = static_cast<unsigned char>(begin[0]);
  const auto byte = static_cast<unsigned char>(begin[at]);
  if (byte < 0x80 || byte > 0xbf) return false;
  if (at > 1) return true;
  if (first == 0xe0) return byte >= 0xa0;
  if (first == 0xed) return byte <= 0x9f;
  if (first == 0xf0) return byte >= 0x90;
  return first != 0xf4 || byte <= 0x8f;
}

// Bytes at the end that are the begin of a character.
std::size_t unfinished_bytes(std::string_view text) {
  for (std::size_t count = 1; count <= std::min<std::size_t>(3, text.size()); ++count) {
    const auto begin = text.substr(text.size() - count);
    if (character_length(static_cast<unsigned char>(begin[0])) <= count) continue;
    std::size_t at = 1;
    while (at < count && may_follow(begin, at)) ++at;
    if (at == count) return count;
  }
  return 0;
}

void add_character(char32_t character, std::string& text) {
  const auto add = [&](char32_t bits) { text += static_cast<char>(bits); };
  if (character < 0x80) return add(character);
  if (character < 0x800) {
    add(0xc0 | character >> 6);
  } else {
    if (character < 0x10000) {
      add(0xe0 | character >> 12);
    } else {
      add(0xf0 | character >> 18);
      add(0x80 | (character >> 12 & 0x3f));
    }
    add(0x80 | (character >> 6 & 0x3f));
  }
  add(0x80 | (character & 0x3f));
}

std::int64_t count_characters(std::string_view text) {
  return std::ranges::count_if(text, [](char letter) { return (static_cast<unsigned char>(letter) & 0xc0) != 0x80; });
}

// Bytes at the end of `text` that may be the begin of one of the texts.
std::size_t begun_stop_text(std::string_view text, const std::vector<std::string>& stop_texts) {
  std::size_t longest = 0;
  for (const auto& stop : stop_texts) {
    for (auto count = std::min(stop.size() - 1, text.size()); count > longest; --count) {
      if (text.ends_with(std::string_view(stop).substr(0, count))) longest = count;
    }
  }
  return longest;
}

}  // namespace

std::string replace_invalid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) add_character(unicode::decode_replacing(text, at), out);
  return out;
}

TextStream::TextStream(Tokenizer tokenizer, const TextStreamOptions& options)
    : tokenizer_(std::move(tokenizer)), stop_texts_(options.stop_texts), skip_special_(options.skip_special) {
  for (const auto& stop : stop_texts_) {
    if (stop.empty()) throw ConfigError("a stop text is empty", {.remedy = "leave it out"});
  }
  for (int byte = 0; byte < 256; ++byte) {
    if (const auto id = tokenizer_.id(fmt::format("<0x{:02X}>", byte))) byte_tokens_.push_back(*id);
  }
  std::ranges::sort(byte_tokens_);
  const auto context = options.context.last(std::min(options.context.size(), kLongWindow));
  for (const auto token : context) {
    if (token < 0 || token > INT32_MAX) continue;
    if (has_text(static_cast<std::int32_t>(token))) window_.push_back(static_cast<std::int32_t>(token));
  }
  window_text_ = decoded(window_.size());
}

bool TextStream::is_byte_token(std::int64_t token) const {
  return std::ranges::binary_search(byte_tokens_, token);
}

// Special tokens are left out here, so that the window holds only tokens that decide something.
bool TextStream::has_text(std::int32_t token) const {
  try {
    return !skip_special_ || !tokenizer_.decode({&token, 1}, /*skip_special=*/true).empty() ||
           tokenizer_.decode({&token, 1}).empty();
  } catch (const DataError&) {
    return false;
  }
}

std::string TextStream::decoded(std::size_t count) const {
  return tokenizer_.decode(std::span(window_).first(count));
}

void TextStream::drop_old_tokens() {
  if (window_.size() < kLongWindow) return;
  const auto rest = tokenizer_.decode(std::span(window_).last(kContextTokens));
  if (rest.find_first_not_of(' ') == std::string::npos) return;  // it would be decoded as at the begin of a text
  window_.erase(window_.begin(), window_.end() - kContextTokens);
  window_text_ = rest;
}

std::string TextStream::decode_window(bool last) {
  auto all = decoded(window_.size());
  const auto same = static_cast<std::size_t>(std::ranges::mismatch(all, window_text_).in1 - all.begin());
  auto bytes = tail_ + all.substr(same);
  window_text_ = std::move(all);
  const auto unfinished = last ? 0 : unfinished_bytes(bytes);
  tail_ = bytes.substr(bytes.size() - unfinished);
  bytes.resize(bytes.size() - unfinished);
  return replace_invalid_utf8(bytes);
}

std::string TextStream::release(std::string text, bool last) {
  num_characters_ += count_characters(text);
  held_ += text;
  auto end = std::string::npos;
  for (const auto& stop : stop_texts_) end = std::min(end, held_.find(stop));
  stopped_ = end != std::string::npos;
  if (!stopped_) end = last ? held_.size() : held_.size() - begun_stop_text(held_, stop_texts_);
  auto certain = held_.substr(0, end);
  held_.erase(0, stopped_ ? held_.size() : end);
  return certain;
}

std::string TextStream::add(std::int64_t token) {
  token_begin_ = num_characters_;
  if (stopped_ || token < 0 || token > INT32_MAX || !has_text(static_cast<std::int32_t>(token))) return "";
  window_.push_back(static_cast<std::int32_t>(token));
  if (is_byte_token(token)) return "";
  auto text = release(decode_window(/*last=*/false), /*last=*/false);
  drop_old_tokens();
  return text;
}

std::string TextStream::finish() {
  return stopped_ ? "" : release(decode_window(/*last=*/true), /*last=*/true);
}

}  // namespace orthant
