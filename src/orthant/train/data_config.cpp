#include "orthant/train/data_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "orthant/base/nearest.h"
#include "orthant/train/count_key.h"

namespace orthant {
namespace {

const std::vector<std::string> kKinds = {"tokens", "text", kTableKind, kTableDemoKind, "random"};

// One of two words.
// A path or a list of them.
std::vector<std::string> read_paths(JsonReader& section, std::string_view key) {
  if (!section.has(key)) return {};
  const auto& value = section.require_raw(key);
  if (value.is_null()) return {};
  if (value.is_string()) return {value.get<std::string>()};
  const bool texts = value.is_array() && !value.empty() &&
                     std::ranges::all_of(value, [](const auto& element) { return element.is_string(); });
  if (!texts) section.fail(key, fmt::format("found {}", value.dump()), "use a path, or a list of paths");
  return value.get<std::vector<std::string>>();
}

TextSource read_text(JsonReader& section) {
  TextSource text;
  text.path = read_paths(section, "path");
  if (text.path.empty()) {
    section.fail("path", "is missing: data.kind text reads files",
                 "name text files, or a folder that `orthant data prepare-text` made");
  }
  text.eval_path = read_paths(section, "eval_path");
  text.tokenizer = section.find<std::string>("tokenizer").value_or("");
  text.separator = section.get<std::string>("separator", text.separator);
  text.text_column = section.get<std::string>("text_column", text.text_column);
  text.begin_token = section.find<bool>("begin_token");
  text.keep_invalid_utf8 = section.get<bool>("keep_invalid_utf8", text.keep_invalid_utf8);
  text.token_type = section.find<std::string>("token_type").value_or("");
  text.ids_column = section.find<std::string>("ids_column").value_or("");
  text.packing = section.get<bool>("packing", text.packing);
  text.pack = section.get<bool>("pack", text.pack);
  if (text.pack && !text.packing) {
    section.fail("pack", "is true beside data.packing false, where a sample is one document",
                 "set data.packing=true, or data.pack=false");
  }
  return text;
}

// null stands for no text.
std::string read_optional_text(JsonReader& section, std::string_view key) {
  return section.find<std::string>(key).value_or("");
}

void read_class_weights(JsonReader& section, TableSource& table) {
  constexpr std::string_view kKey = "class_weights";
  if (!section.has(kKey)) return;
  const auto& value = section.require_raw(kKey);
  table.balanced_class_weights = value == "balanced";
  if (value.is_null() || table.balanced_class_weights) return;
  const bool numbers =
      value.is_array() && std::ranges::all_of(value, [](const auto& element) { return element.is_number(); });
  if (!numbers) section.fail(kKey, fmt::format("found {}", value.dump()), "use a list of numbers, or \"balanced\"");
  table.class_weights = value.get<std::vector<double>>();
}

TableSource read_table(JsonReader& section) {
  TableSource table;
  table.path = read_optional_text(section, "path");
  if (table.path.empty()) {
    section.fail("path", fmt::format("is missing: data.kind {} reads a file", kTableKind),
                 "name a .csv, .tsv, .jsonl or .json file (--data_path FILE, or data.path)");
  }
  table.eval_path = read_optional_text(section, "eval_path");
  table.primary_text = section.require<std::string>("primary_text");
  table.secondary_text = read_optional_text(section, "secondary_text");
  table.tabular = section.get<std::vector<std::string>>("tabular", {});
  table.label = section.require<std::string>("label");
  table.labels = section.get<std::vector<std::string>>("labels", {});
  read_class_weights(section, table);
  const auto tokenizer = section.find<std::string>("tokenizer");
  const auto primary = section.find<std::string>("primary_tokenizer");
  const auto secondary = section.find<std::string>("secondary_tokenizer");
  table.primary_tokenizer = primary.value_or(tokenizer.value_or(""));
  table.secondary_tokenizer = secondary.value_or(tokenizer.value_or(""));
  if (tokenizer && primary && secondary) {
    section.fail("tokenizer", "has no effect beside primary_tokenizer and secondary_tokenizer", "set those two");
  }
  table.skip_bad_rows = read_switch(section, "bad_rows", "stop", "skip", table.skip_bad_rows);
  return table;
}

void read_padding(JsonReader& section, DataConfig& data) {
  const std::vector<std::string> words = {"longest", "full", "none"};
  const auto word = section.get<std::string>("padding", words[0]);
  if (std::ranges::find(words, word) == words.end()) {
    section.fail("padding", fmt::format("found \"{}\"", word), "use longest, full or none");
  }
  data.pad_to_longest = word != "full";
  data.unpadded = word == "none";
}

}  // namespace

DataConfig read_data(JsonReader section) {
  DataConfig data;
  data.kind = section.get<std::string>("kind", data.kind);
  if (std::ranges::find(kKinds, data.kind) == kKinds.end()) {
    section.fail("kind", fmt::format("unknown data \"{}\"", data.kind), did_you_mean(data.kind, kKinds));
  }
  for (const char* key : {"path", "eval_path", "tokenizer", "token_type", "ids_column"}) {
    if (data.from_files() || !section.has(key)) continue;
    section.fail(key, fmt::format("is given, but data.kind {} is generated", data.kind),
                 fmt::format("set data.kind=text for texts and ids, or data.kind={} for a table", kTableKind));
  }
  if (data.kind != "text" && section.has("pack") && section.get<bool>("pack", false)) {
    section.fail("pack", fmt::format("is true, but data.kind {} has no documents", data.kind),
                 "set data.kind=text, or leave data.pack out");
  }
  data.sequence_length = read_count(section, "sequence_length", data.sequence_length, 1);
  if (data.kind != "tokens" && data.kind != "text") {
    data.secondary_length = read_count(section, "secondary_length", 0, 0);
  }
  if (data.from_files()) {
    read_padding(section, data);
  } else {
    data.samples = read_count(section, "samples", data.samples, 1);
  }
  if (data.kind == "text") data.text = read_text(section);
  if (data.unpadded && data.text.pack) {
    section.fail("padding", "is none beside data.pack, whose rows have no padding", "leave data.padding out");
  }
  if (data.kind == kTableKind) data.table = read_table(section);
  data.eval_fraction = section.get<double>("eval_fraction", data.eval_fraction);
  const double most = data.from_files() ? 0.9 : 1;  // of a file, something must be left to train on
  if (!(data.eval_fraction >= 0 && data.eval_fraction <= most)) {
    section.fail("eval_fraction", fmt::format("is {}; it must lie in [0, {}]", data.eval_fraction, most), "use 0.1");
  }
  data.log_samples = section.get<bool>("log_samples", false);
  if (data.eval_fraction > 0 && (!data.text.eval_path.empty() || !data.table.eval_path.empty())) {
    section.fail("eval_fraction", "is given beside data.eval_path",
                 "set data.eval_fraction=0, or leave data.eval_path out");
  }
  return data;
}

}  // namespace orthant
