#include "orthant/data/open_table.h"

#include <fmt/format.h>

#include <filesystem>

#include "orthant/base/error.h"
#include "orthant/base/shell_quote.h"

namespace orthant {
namespace {

struct Separator {
  char letter;
  const char* name;
  const char* remedy;
  const char* in_python;  // empty: there is a simpler way than a converted file
};

constexpr Separator kSeparators[] = {
    {';', "semicolons", "save it with commas between columns and points in numbers", ";"},
    {'\t', "tabs", "name it .tsv", ""},
    {'|', "bars", "save it with commas between columns", "|"},
};

// A line that writes the same columns with commas between them.
std::string converting_line(const std::string& path, const Separator& separator) {
  std::filesystem::path made = path;
  made.replace_filename(made.stem().string() + "-commas" + made.extension().string());
  const auto script = fmt::format(
      "import csv, sys; csv.writer(sys.stdout).writerows(csv.reader(open(sys.argv[1], newline=\"\"), "
      "delimiter=\"{}\"))",
      separator.in_python);
  return fmt::format("python3 -c {} {} > {}", shell_quote(script), shell_quote(path), shell_quote(made.string()));
}

// The separator that the only column of a file has in its name; null when it has several columns, or none of those.
const Separator* other_separator(const std::string& path) {
  if (!path.ends_with(".csv") && !path.ends_with(".CSV")) return nullptr;
  const auto columns = TableReader::open(path, {.columns = {}, .bad_rows = BadRows::kSkip}).columns();
  if (columns.size() != 1) return nullptr;
  for (const auto& separator : kSeparators) {
    if (columns.front().find(separator.letter) != std::string::npos) return &separator;
  }
  return nullptr;
}

}  // namespace

void refuse_other_separator(const std::string& path) {
  const auto* separator = other_separator(path);
  if (separator == nullptr) return;
  throw ConfigError(
      fmt::format("{}: its columns are separated by {}, and those of a .csv file by commas", path, separator->name),
      {.remedy = *separator->in_python == '\0'
                     ? separator->remedy
                     : fmt::format("{}: {}", separator->remedy, converting_line(path, *separator))});
}

TableReader open_table(const std::string& path, TableOptions options) {
  try {
    return TableReader::open(path, std::move(options));
  } catch (const ConfigError&) {
    refuse_other_separator(path);
    throw;
  }
}

}  // namespace orthant
