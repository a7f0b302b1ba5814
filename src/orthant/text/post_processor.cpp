#include "orthant/text/post_processor.h"

#include <fmt/format.h>

#include <algorithm>

#include "orthant/base/error.h"

namespace orthant {
namespace {

using Source = PostProcessor::Source;

// What options.max_length leaves for text.
std::int64_t room_for_text(const std::vector<PostProcessor::Part>& parts, const EncodeOptions& options) {
  const auto num_special = options.special ? std::count_if(parts.begin(), parts.end(),
                                                           [](const auto& p) { return p.source == Source::token; })
                                           : 0;
  if (options.max_length < num_special) {
    throw ConfigError(fmt::format("a maximum length of {} ids has no room for the {} special tokens of a text",
                                  options.max_length, num_special),
                      {.remedy = fmt::format("use at least {}, or encode without special tokens", num_special + 1)});
  }
  return options.max_length - num_special;
}

void cut(std::vector<std::int32_t>& ids, std::int64_t length) {
  if (static_cast<std::int64_t>(ids.size()) > length) ids.resize(static_cast<std::size_t>(length));
}

}  // namespace

PostProcessor PostProcessor::bert(std::int32_t cls, std::int32_t sep) {
  const Part begin{Source::token, cls, 0};
  const Part end{Source::token, sep, 0};
  return {{begin, {Source::first, 0, 0}, end},
          {begin, {Source::first, 0, 0}, end, {Source::second, 0, 1}, {Source::token, sep, 1}}};
}

PostProcessor PostProcessor::roberta(std::int32_t cls, std::int32_t sep) {
  const Part begin{Source::token, cls, 0};
  const Part end{Source::token, sep, 0};
  return {{begin, {Source::first, 0, 0}, end}, {begin, {Source::first, 0, 0}, end, end, {Source::second, 0, 0}, end}};
}

std::vector<std::int32_t> PostProcessor::begin() const {
  std::vector<std::int32_t> ids;
  for (const auto& part : single) {
    if (part.source != Source::token) break;
    ids.push_back(part.id);
  }
  return ids;
}

void PostProcessor::apply(std::vector<std::int32_t> text, const EncodeOptions& options,
                          std::vector<std::int32_t>& ids) const {
  if (options.max_length > 0) cut(text, room_for_text(single, options));
  for (const auto& part : single) {
    if (part.source == Source::first) ids.insert(ids.end(), text.begin(), text.end());
    if (part.source == Source::token && options.special) ids.push_back(part.id);
  }
}

Encoding PostProcessor::apply_pair(std::vector<std::int32_t> first, std::vector<std::int32_t> second,
                                   const EncodeOptions& options) const {
  if (options.max_length > 0) {
    const auto lengths = truncated_lengths(static_cast<std::int64_t>(first.size()),
                                           static_cast<std::int64_t>(second.size()), room_for_text(pair, options));
    cut(first, lengths.first);
    cut(second, lengths.second);
  }
  Encoding encoding;
  for (const auto& part : pair) {
    if (part.source == Source::token) {
      if (options.special) encoding.ids.push_back(part.id);
    } else {
      const auto& text = part.source == Source::first ? first : second;
      encoding.ids.insert(encoding.ids.end(), text.begin(), text.end());
    }
    encoding.types.resize(encoding.ids.size(), part.type);
  }
  return encoding;
}

PairLengths truncated_lengths(std::int64_t first, std::int64_t second, std::int64_t room) {
  if (first + second <= room) return {first, second};
  const bool swapped = first > second;
  auto shorter = std::min(first, second);
  auto longer = std::max(shorter, room - shorter);
  if (shorter + longer > room) {
    shorter = room / 2;
    longer = room - shorter;
  }
  return swapped ? PairLengths{longer, shorter} : PairLengths{shorter, longer};
}

}  // namespace orthant
