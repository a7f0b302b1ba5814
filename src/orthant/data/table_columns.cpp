// table_columns(): the names in a file's header, or the keys of its first rows.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "orthant/base/error.h"
#include "orthant/data/inspect_table.h"
#include "orthant/text/table_rows.h"

namespace orthant {
namespace {

constexpr int kRows = 1000;

// The fields of the first line, which may go on over line ends in quotes. What is wrong with it, the reader tells.
std::vector<std::string> header_of(ChunkedInput input, char separator) {
  while (!input.at_end() && input.window().find('\n') == std::string_view::npos) input.load_more();
  std::vector<std::string> names(1);
  bool quoted = false;
  const auto text = input.window();
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char letter = text[i];
    if (letter == '"' && quoted && text.substr(i + 1, 1) == "\"") {
      names.back() += text[++i];
    } else if (letter == '"') {
      quoted = !quoted;
    } else if (quoted || (letter != separator && letter != '\n' && letter != '\r')) {
      names.back() += letter;
    } else if (letter == separator) {
      names.emplace_back();
    } else {
      break;
    }
  }
  return names;
}

std::vector<std::string> keys_of(ChunkedInput input, bool may_be_array) {
  const auto rows = make_json_rows(std::move(input), may_be_array, {});
  std::vector<std::string> names;
  TableRow row;
  for (int i = 0; i < kRows; ++i) {
    const auto outcome = rows->next(row);
    if (outcome == TableRows::Outcome::kEnd) break;
    if (outcome == TableRows::Outcome::kBad) continue;
    const auto object = nlohmann::ordered_json::parse(row.text, nullptr, false);
    for (const auto& [key, value] : object.items()) {
      if (object.is_object() && std::ranges::find(names, key) == names.end()) names.push_back(key);
    }
  }
  return names;
}

}  // namespace

std::vector<std::string> table_columns(const std::string& path) {
  // Opening it as a table refuses what is none.
  TableReader::open(path, {.columns = {}, .bad_rows = BadRows::kSkip});
  const auto ending = std::filesystem::path(path).extension();
  auto input = ChunkedInput::of_file(path);
  auto names = ending == ".csv"   ? header_of(std::move(input), ',')
               : ending == ".tsv" ? header_of(std::move(input), '\t')
                                  : keys_of(std::move(input), ending == ".json");
  if (!names.empty()) return names;
  throw DataError(fmt::format("{}: no rows with columns", path), {.remedy = "name a file with one object per row"});
}

}  // namespace orthant
