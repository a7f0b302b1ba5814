#include "orthant/text/token_decoder.h"

#include <fmt/format.h>

#include <charconv>

#include "orthant/text/unicode.h"

namespace orthant {
namespace {

// What a run of bytes says.
void add_bytes(std::string& bytes, TokenDecoder::Tokens& out) {
  if (bytes.empty()) return;
  if (unicode::valid_length(bytes, 0) == bytes.size()) {
    out.push_back(bytes);
  } else {
    out.insert(out.end(), bytes.size(), "\xef\xbf\xbd");
  }
  bytes.clear();
}

void strip_token(std::string& token, std::string_view character, std::size_t begin, std::size_t end) {
  std::string_view rest = token;
  for (std::size_t i = 0; i < begin && rest.starts_with(character); ++i) rest.remove_prefix(character.size());
  for (std::size_t i = 0; i < end && rest.ends_with(character); ++i) rest.remove_suffix(character.size());
  token = std::string(rest);
}

}  // namespace

std::string TokenDecoder::decode(Tokens tokens) const {
  for (const auto& step : steps_) step.apply(tokens);
  std::string text;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (steps_.empty() && i > 0) text += ' ';
    text += tokens[i];
  }
  return text;
}

std::string TokenDecoder::describe() const {
  std::string text = "decoder";
  for (const auto& step : steps_) text += " " + step.description;
  return text;
}

TokenDecoder::Step metaspace_decoder(std::string space, bool prefixed) {
  auto description = fmt::format("Metaspace {} {}", space, prefixed);
  const auto apply = [space = std::move(space), prefixed](TokenDecoder::Tokens& tokens) {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      std::string out;
      std::size_t done = 0;
      for (auto at = tokens[i].find(space); at != std::string::npos; at = tokens[i].find(space, done)) {
        out.append(tokens[i], done, at - done);
        if (i > 0 || !prefixed) out += ' ';
        done = at + space.size();
      }
      tokens[i] = out.append(tokens[i], done, std::string::npos);
    }
  };
  return {apply, std::move(description)};
}

TokenDecoder::Step byte_fallback_decoder() {
  const auto apply = [](TokenDecoder::Tokens& tokens) {
    TokenDecoder::Tokens out;
    std::string bytes;
    for (auto& token : tokens) {
      if (const int byte = byte_of_token(token); byte >= 0) {
        bytes += static_cast<char>(byte);
        continue;
      }
      add_bytes(bytes, out);
      out.push_back(std::move(token));
    }
    add_bytes(bytes, out);
    tokens = std::move(out);
  };
  return {apply, "ByteFallback"};
}

TokenDecoder::Step fuse_decoder() {
  const auto apply = [](TokenDecoder::Tokens& tokens) {
    std::string all;
    for (const auto& token : tokens) all += token;
    tokens.assign(1, std::move(all));
  };
  return {apply, "Fuse"};
}

TokenDecoder::Step strip_decoder(std::string character, std::size_t begin, std::size_t end) {
  auto description = fmt::format("Strip {} {} {}", character, begin, end);
  const auto apply = [character = std::move(character), begin, end](TokenDecoder::Tokens& tokens) {
    for (auto& token : tokens) strip_token(token, character, begin, end);
  };
  return {apply, std::move(description)};
}

int byte_of_token(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  int byte = -1;
  const auto [end, error] = std::from_chars(token.data() + 3, token.data() + 5, byte, 16);
  return error == std::errc() && end == token.data() + 5 && token[3] != '-' ? byte : -1;
}

std::string token_of_byte(unsigned char byte) {
  return fmt::format("<0x{:02X}>", byte);
}

}  // namespace orthant
