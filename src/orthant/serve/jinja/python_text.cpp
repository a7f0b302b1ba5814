#include "orthant/serve/jinja/python_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "orthant/text/utf8.h"

namespace orthant::jinja {
namespace {

bool is_white(char32_t c) {
  return (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

bool ends_line(char32_t c) {
  return (c >= 10 && c <= 13) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

char32_t code_of(std::string_view character) {
  std::size_t at = 0;
  return unicode::decode_replacing(character, at);
}

void append_code(std::string& out, char32_t code) {
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else {  // cases are mapped only below U+0800
    out += static_cast<char>(0xc0 | code >> 6);
    out += static_cast<char>(0x80 | (code & 0x3f));
  }
}

bool is_lower(char32_t c) {
  return (c >= 'a' && c <= 'z') || (c >= 0xe0 && c <= 0xfe && c != 0xf7) || (c >= 0x3b1 && c <= 0x3c9 && c != 0x3c2) ||
         (c >= 0x430 && c <= 0x45f);
}

bool is_upper(char32_t c) {
  return (c >= 'A' && c <= 'Z') || (c >= 0xc0 && c <= 0xde && c != 0xd7) || (c >= 0x391 && c <= 0x3a9 && c != 0x3a2) ||
         (c >= 0x400 && c <= 0x42f);
}

char32_t to_upper(char32_t c) {
  if (!is_lower(c)) return c;
  return c - (c >= 0x450 ? 0x50 : 0x20);
}

char32_t to_lower(char32_t c) {
  if (!is_upper(c)) return c;
  return c + (c >= 0x400 && c < 0x410 ? 0x50 : 0x20);
}

// act(character, code) for each; a list of the characters would take many times the text's memory.
template <class Act>
void each_character(std::string_view text, const Act& act) {
  for (std::size_t at = 0; at < text.size();) {
    const auto begin = at;
    const auto code = unicode::decode_replacing(text, at);
    act(text.substr(begin, at - begin), code);
  }
}

template <class Map>
std::string map_characters(std::string_view text, const Map& map) {
  std::string out;
  each_character(text, [&](std::string_view character, char32_t code) {
    const auto mapped = map(code);
    if (mapped == code) {
      out += character;
    } else {
      append_code(out, mapped);
    }
  });
  return out;
}

// Bytes of the character at the begin or the end of a text that is not empty.
std::size_t first_bytes(std::string_view text) {
  std::size_t bytes = 0;
  unicode::decode_replacing(text, bytes);
  return bytes;
}

std::size_t last_bytes(std::string_view text) {
  std::size_t bytes = 1;
  while (bytes < text.size() && bytes < 4 && (static_cast<unsigned char>(text[text.size() - bytes]) & 0xc0) == 0x80) {
    ++bytes;
  }
  return bytes;
}

}  // namespace

std::vector<std::string_view> characters_of(std::string_view text) {
  std::vector<std::string_view> characters;
  each_character(text, [&](std::string_view character, char32_t) { characters.push_back(character); });
  return characters;
}

std::int64_t num_characters(std::string_view text) {
  return std::ranges::count_if(text, [](char letter) { return (static_cast<unsigned char>(letter) & 0xc0) != 0x80; });
}

std::string_view character_at(std::string_view text, std::int64_t place) {
  for (; place > 0; --place) text.remove_prefix(first_bytes(text));
  return text.substr(0, first_bytes(text));
}

std::string_view strip(std::string_view text, Ends ends, const std::string* characters) {
  const auto goes = [&](std::string_view character) {
    return characters ? characters->find(character) != std::string::npos : is_white(code_of(character));
  };
  if (ends != Ends::right) {
    while (!text.empty() && goes(text.substr(0, first_bytes(text)))) text.remove_prefix(first_bytes(text));
  }
  if (ends != Ends::left) {
    while (!text.empty() && goes(text.substr(text.size() - last_bytes(text)))) text.remove_suffix(last_bytes(text));
  }
  return text;
}

namespace {

// Bytes up to the first white space, or with `reverse` behind the last.
std::size_t word_bytes(std::string_view text, bool reverse) {
  std::size_t bytes = 0;
  while (bytes < text.size()) {
    const auto rest = reverse ? text.substr(0, text.size() - bytes) : text.substr(bytes);
    const auto one = reverse ? last_bytes(rest) : first_bytes(rest);
    if (is_white(code_of(reverse ? rest.substr(rest.size() - one) : rest.substr(0, one)))) break;
    bytes += one;
  }
  return bytes;
}

std::vector<std::string_view> split_white(std::string_view text, std::int64_t most, bool reverse) {
  std::vector<std::string_view> parts;
  const auto other_end = reverse ? Ends::right : Ends::left;
  auto rest = strip(text, Ends::both);
  while (!rest.empty()) {
    if (most >= 0 && static_cast<std::int64_t>(parts.size()) == most) {
      parts.push_back(strip(reverse ? text.substr(0, static_cast<std::size_t>(rest.end() - text.begin()))
                                    : text.substr(static_cast<std::size_t>(rest.begin() - text.begin())),
                            other_end));
      break;
    }
    const auto length = word_bytes(rest, reverse);
    parts.push_back(reverse ? rest.substr(rest.size() - length) : rest.substr(0, length));
    rest = strip(reverse ? rest.substr(0, rest.size() - length) : rest.substr(length), other_end);
  }
  return parts;
}

}  // namespace

std::vector<std::string_view> split(std::string_view text, const std::string* separator, std::int64_t most,
                                    bool reverse) {
  std::vector<std::string_view> parts;
  if (!separator) {
    parts = split_white(text, most, reverse);
  } else {
    auto rest = text;
    while (most < 0 || static_cast<std::int64_t>(parts.size()) < most) {
      const auto at = reverse ? rest.rfind(*separator) : rest.find(*separator);
      if (at == std::string_view::npos) break;
      parts.push_back(reverse ? rest.substr(at + separator->size()) : rest.substr(0, at));
      rest = reverse ? rest.substr(0, at) : rest.substr(at + separator->size());
    }
    parts.push_back(rest);
  }
  if (reverse) std::ranges::reverse(parts);
  return parts;
}

std::vector<std::string_view> split_lines(std::string_view text) {
  std::vector<std::string_view> lines;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    const auto end = at;
    const auto code = unicode::decode_replacing(text, at);
    if (!ends_line(code)) continue;
    if (code == '\r' && at < text.size() && text[at] == '\n') ++at;
    lines.push_back(text.substr(begin, end - begin));
    begin = at;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

std::int64_t count_of(std::string_view text, std::string_view part) {
  if (part.empty()) return num_characters(text) + 1;
  std::int64_t count = 0;
  for (auto at = text.find(part); at != std::string_view::npos; at = text.find(part, at + part.size())) ++count;
  return count;
}

std::string replace_parts(std::string_view text, std::string_view from, std::string_view to, std::int64_t most) {
  std::string out;
  if (from.empty()) {
    std::int64_t done = 0;
    each_character(text, [&](std::string_view character, char32_t) {
      if (most < 0 || done++ < most) out += to;
      out += character;
    });
    return most < 0 || done < most ? out + std::string(to) : out;
  }
  std::size_t begin = 0;
  for (std::int64_t done = 0; most < 0 || done < most; ++done) {
    const auto at = text.find(from, begin);
    if (at == std::string_view::npos) break;
    out += text.substr(begin, at - begin);
    out += to;
    begin = at + from.size();
  }
  return out += text.substr(begin);
}

std::string upper(std::string_view text) {
  return map_characters(text, to_upper);
}

std::string lower(std::string_view text) {
  return map_characters(text, to_lower);
}

std::string capitalize(std::string_view text) {
  bool first = true;
  return map_characters(text,
                        [&](char32_t code) { return std::exchange(first, false) ? to_upper(code) : to_lower(code); });
}

std::string title(std::string_view text) {
  bool in_word = false;
  return map_characters(text, [&](char32_t code) {
    const bool letter = is_lower(code) || is_upper(code);
    return std::exchange(in_word, letter) ? to_lower(code) : to_upper(code);
  });
}

std::string quote_text(std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string out(1, quote);
  each_character(text, [&](std::string_view character, char32_t code) {
    if (code == '\n') {
      out += "\\n";
    } else if (code == '\r') {
      out += "\\r";
    } else if (code == '\t') {
      out += "\\t";
    } else if (code == '\\' || code == static_cast<char32_t>(quote)) {
      out += '\\';
      out += character;
    } else if (code < 0x20 || (code >= 0x7f && code < 0xa1) || code == 0xad) {
      out += fmt::format("\\x{:02x}", static_cast<std::uint32_t>(code));
    } else if ((is_white(code) && code != ' ') || (code >= 0x200b && code <= 0x200f) || code == 0xfeff) {
      out += fmt::format("\\u{:04x}", static_cast<std::uint32_t>(code));
    } else {
      out += character;
    }
  });
  return out + quote;
}

std::string print_real(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  auto text = fmt::format("{}", value);  // the shortest digits that read back, as Python takes them
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

Slice slice_of(std::int64_t length, const std::int64_t* begin, const std::int64_t* end, std::int64_t step) {
  const auto clamp = [&](std::int64_t at, std::int64_t low, std::int64_t high) {
    if (at < 0) at += length;
    return std::clamp(at, low, high);
  };
  Slice slice;
  slice.step = step;
  if (step > 0) {
    slice.begin = begin ? clamp(*begin, 0, length) : 0;
    const auto stop = end ? clamp(*end, 0, length) : length;
    slice.count = std::max<std::int64_t>(0, (stop - slice.begin + step - 1) / step);
  } else {
    slice.begin = begin ? clamp(*begin, -1, length - 1) : length - 1;
    const auto stop = end ? clamp(*end, -1, length - 1) : -1;
    slice.count = std::max<std::int64_t>(0, (slice.begin - stop - step - 1) / -step);
  }
  return slice;
}

}  // namespace orthant::jinja
