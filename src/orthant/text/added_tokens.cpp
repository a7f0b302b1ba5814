#include "orthant/text/added_tokens.h"

#include <algorithm>
#include <cstring>

#include "orthant/text/unicode.h"

namespace orthant {
namespace {

std::size_t begin_of_last(std::string_view text) {
  auto at = text.size() - 1;
  while (at > 0 && text.size() - at < 4 && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80) --at;
  return at;
}

bool starts_with_word(std::string_view text) {
  if (text.empty()) return false;
  const auto first = unicode::decode(text, 0);
  return first.length > 0 && unicode::is_word(first.character);
}

bool ends_with_word(std::string_view text) {
  return !text.empty() && starts_with_word(text.substr(begin_of_last(text)));
}

bool starts_with_space(std::string_view text) {
  const auto first = unicode::decode(text, 0);
  return first.length > 0 && unicode::is_space(first.character);
}

std::size_t begin_of_spaces_at_end(std::string_view text) {
  auto end = text.size();
  while (end > 0) {
    const auto last = begin_of_last(text.substr(0, end));
    if (!starts_with_space(text.substr(last, end - last))) break;
    end = last;
  }
  return end;
}

std::size_t end_of_spaces_at_begin(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size() && starts_with_space(text.substr(at))) {
    at += static_cast<std::size_t>(unicode::decode(text, at).length);
  }
  return at;
}

}  // namespace

AddedTokens::AddedTokens(const std::vector<AddedToken>& tokens, const Normalize& normalize) {
  for (const auto& token : tokens) {
    if (token.content.empty()) continue;
    const auto [place, is_new] = by_content_.try_emplace(token.content, tokens_.size());
    if (is_new) {
      tokens_.push_back(token);
    } else {
      by_id_.erase(tokens_[place->second].id);
      tokens_[place->second] = token;
    }
    by_id_[token.id] = place->second;
  }
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    const auto& token = tokens_[i];
    auto& trie = token.normalized ? normalized_ : raw_;
    trie.insert(token.normalized ? normalize(token.content) : token.content, static_cast<std::int32_t>(i));
  }
}

const AddedToken* AddedTokens::find(std::string_view content) const {
  const auto place = by_content_.find(content);
  return place == by_content_.end() ? nullptr : &tokens_[place->second];
}

const AddedToken* AddedTokens::find(std::int64_t id) const {
  const auto place = by_id_.find(id);
  return place == by_id_.end() ? nullptr : &tokens_[place->second];
}

void AddedTokens::Trie::insert(std::string_view content, std::int32_t token) {
  if (content.empty()) return;
  if (nodes.empty()) nodes.emplace_back();
  std::int32_t node = 0;
  for (const char letter : content) {
    const auto byte = static_cast<unsigned char>(letter);
    auto& edges = nodes[static_cast<std::size_t>(node)].next;
    const auto place = std::lower_bound(edges.begin(), edges.end(), std::pair(byte, std::int32_t{0}));
    if (place != edges.end() && place->first == byte) {
      node = place->second;
      continue;
    }
    node = static_cast<std::int32_t>(nodes.size());
    edges.insert(place, {byte, node});
    nodes.emplace_back();
  }
  auto& slot = nodes[static_cast<std::size_t>(node)].token;
  if (slot < 0) slot = token;
  starts[static_cast<unsigned char>(content[0])] = true;
  only_start = std::count(starts.begin(), starts.end(), true) == 1 ? static_cast<unsigned char>(content[0]) : -1;
}

std::size_t AddedTokens::Trie::next_start(std::string_view text, std::size_t from) const {
  if (only_start >= 0) {
    const auto* found = std::memchr(text.data() + from, only_start, text.size() - from);
    return found ? static_cast<std::size_t>(static_cast<const char*>(found) - text.data()) : text.size();
  }
  while (from < text.size() && !starts[static_cast<unsigned char>(text[from])]) ++from;
  return from;
}

std::optional<AddedTokens::Trie::Match> AddedTokens::Trie::search(std::string_view text, std::size_t from) const {
  for (auto begin = next_start(text, from); begin < text.size(); begin = next_start(text, begin + 1)) {
    Match longest;
    std::int32_t node = 0;
    for (auto at = begin; at < text.size(); ++at) {
      const auto byte = static_cast<unsigned char>(text[at]);
      const auto& edges = nodes[static_cast<std::size_t>(node)].next;
      const auto place = std::lower_bound(edges.begin(), edges.end(), std::pair(byte, std::int32_t{0}));
      if (place == edges.end() || place->first != byte) break;
      node = place->second;
      const auto token = nodes[static_cast<std::size_t>(node)].token;
      if (token >= 0) longest = {begin, at + 1, token};
    }
    if (longest.token >= 0) return longest;
  }
  return std::nullopt;
}

void AddedTokens::split(const Trie& trie, std::string_view text, const Sink& sink) const {
  std::size_t done = 0;
  auto match = trie.nodes.empty() ? std::nullopt : trie.search(text, 0);
  for (; match; match = trie.search(text, match->end)) {
    const auto& token = tokens_[static_cast<std::size_t>(match->token)];
    auto [begin, end, index] = *match;
    if (token.single_word && (ends_with_word(text.substr(0, begin)) || starts_with_word(text.substr(end)))) continue;
    if (token.lstrip) begin = std::max(begin_of_spaces_at_end(text.substr(0, begin)), done);
    if (token.rstrip) end += end_of_spaces_at_begin(text.substr(end));
    if (done < begin) sink(text.substr(done, begin - done), -1);
    sink(text.substr(begin, end - begin), token.id);
    done = end;
  }
  if (done < text.size()) sink(text.substr(done), -1);
}

}  // namespace orthant
