// JSON to values and back, written as Python's json.dumps does.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "orthant/serve/jinja/builtins.h"
#include "orthant/serve/jinja/python_text.h"
#include "orthant/text/utf8.h"

namespace orthant::jinja {
namespace {

void add_escaped(std::string& out, std::uint32_t unit) {
  out += fmt::format("\\u{:04x}", unit);
}

void write_text(const std::string& text, bool ensure_ascii, std::string& out) {
  out += '"';
  for (std::size_t at = 0; at < text.size();) {
    const auto begin = at;
    const auto character = unicode::decode_replacing(text, at);
    switch (character) {
      case '"':
        out += "\\\"";
        continue;
      case '\\':
        out += "\\\\";
        continue;
      case '\n':
        out += "\\n";
        continue;
      case '\r':
        out += "\\r";
        continue;
      case '\t':
        out += "\\t";
        continue;
      case '\b':
        out += "\\b";
        continue;
      case '\f':
        out += "\\f";
        continue;
      default:
        break;
    }
    if (character < 0x20 || (ensure_ascii && character > 0x7e && character < 0x10000)) {
      add_escaped(out, character);
    } else if (ensure_ascii && character >= 0x10000) {
      add_escaped(out, 0xd800 + ((character - 0x10000) >> 10));
      add_escaped(out, 0xdc00 + ((character - 0x10000) & 0x3ff));
    } else {
      out.append(text, begin, at - begin);
    }
  }
  out += '"';
}

class JsonWriter {
 public:
  JsonWriter(const JsonStyle& style, Budget& budget) : style_(style), budget_(budget) {
    item_ = style.separators ? style.separators->first : style.indent ? "," : ", ";
    key_ = style.separators ? style.separators->second : ": ";
  }

  void write(const Value& value, int depth) {
    budget_.bytes(8);
    if (value.is_none()) {
      out += "null";
    } else if (const auto* flag = value.as_boolean()) {
      out += *flag ? "true" : "false";
    } else if (const auto* text = value.as_text()) {
      budget_.bytes(text->size());
      write_text(*text, style_.ensure_ascii, out);
    } else if (const auto* real = value.as_real()) {
      out += std::isnan(*real) ? "NaN" : std::isinf(*real) ? (*real > 0 ? "Infinity" : "-Infinity") : print_real(*real);
    } else if (value.integer()) {
      out += value.printed();
    } else if (const auto* list = value.as_list()) {
      write_items('[', ']', list->items.size(), depth, [&](std::size_t i) { write(list->items[i], depth + 1); });
    } else if (const auto* dict = value.as_dict()) {
      write_dict(*dict, depth);
    } else {
      throw Problem{fmt::format("tojson of a {}", value.kind())};
    }
  }

  std::string out;

 private:
  void write_dict(const Dict& dict, int depth) {
    std::vector<const std::pair<std::string, Value>*> entries;
    for (const auto& entry : dict.entries) entries.push_back(&entry);
    if (style_.sort_keys) {
      std::ranges::sort(entries, [](const auto* a, const auto* b) { return a->first < b->first; });  // keys differ
    }
    write_items('{', '}', entries.size(), depth, [&](std::size_t i) {
      budget_.bytes(entries[i]->first.size() + key_.size());
      write_text(entries[i]->first, style_.ensure_ascii, out);
      out += key_;
      write(entries[i]->second, depth + 1);
    });
  }

  template <class WriteItem>
  void write_items(char open, char close, std::size_t count, int depth, const WriteItem& write_item) {
    out += open;
    for (std::size_t i = 0; i < count; ++i) {
      budget_.bytes(item_.size());
      if (i > 0) out += item_;
      begin_line(depth + 1);
      write_item(i);
    }
    if (count > 0) begin_line(depth);
    out += close;
  }

  void begin_line(int depth) {
    if (!style_.indent) return;
    out += '\n';
    for (int i = 0; i < depth; ++i) {
      budget_.bytes(style_.indent->size());
      out += *style_.indent;
    }
  }

  const JsonStyle& style_;
  Budget& budget_;
  std::string item_;
  std::string key_;
};

}  // namespace

std::string to_json(const Value& value, const JsonStyle& style, Budget& budget) {
  JsonWriter writer(style, budget);
  writer.write(value, 0);
  return std::move(writer.out);
}

namespace {

Value made_value(const nlohmann::ordered_json& json, int depth) {
  if (depth > kDeepestValue) throw Problem{fmt::format("values are nested more than {} deep", kDeepestValue)};
  if (json.is_null()) return Value();
  if (json.is_boolean()) return Value::boolean(json.get<bool>());
  if (json.is_number_unsigned() && json.get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX)) {
    return Value::real(json.get<double>());
  }
  if (json.is_number_integer()) return Value::integer(json.get<std::int64_t>());
  if (json.is_number()) return Value::real(json.get<double>());
  if (json.is_string()) return Value::text(json.get<std::string>());
  if (json.is_array()) {
    std::vector<Value> items;
    for (const auto& item : json) items.push_back(made_value(item, depth + 1));
    return Value::list(std::move(items));
  }
  Dict dict;
  for (const auto& [key, item] : json.items()) dict.entries.emplace_back(key, made_value(item, depth + 1));
  return Value::dict(std::move(dict));
}

}  // namespace

Value from_json(const nlohmann::ordered_json& json) {
  return made_value(json, 0);
}

}  // namespace orthant::jinja
