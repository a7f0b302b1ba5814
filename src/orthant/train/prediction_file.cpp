#include "orthant/train/prediction_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <system_error>

#include "orthant/base/error.h"
#include "orthant/base/json_text.h"
#include "orthant/files/partial.h"
#include "orthant/files/path_facts.h"
#include "orthant/files/whole_file.h"
#include "orthant/text/csv.h"

namespace orthant {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kFlushBytes = std::size_t{1} << 18;

// Without what a killed process left beside it.
fs::path cleared_path(const fs::path& path) {
  remove_left_partials(path);
  return final_path_of(path);
}

std::string number_text(double value) {
  return std::isfinite(value) ? fmt::format("{:.9g}", value) : std::string();
}

// Empty for nothing.
std::string cell_text(const PredictionCell& cell) {
  if (const auto* count = std::get_if<std::int64_t>(&cell)) return std::to_string(*count);
  if (const auto* number = std::get_if<double>(&cell)) return number_text(*number);
  if (const auto* text = std::get_if<std::string>(&cell)) return *text;
  return {};
}

std::string json_value(const PredictionCell& cell) {
  if (const auto* text = std::get_if<std::string>(&cell)) return json_text(nlohmann::json(*text), -1);
  const auto text = cell_text(cell);
  return text.empty() ? "null" : text;
}

// As csv_field(), for tabs instead of commas.
std::string tsv_field(const std::string& text) {
  if (text.find_first_of("\t\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char letter : text) quoted += letter == '"' ? std::string("\"\"") : std::string(1, letter);
  return quoted += '"';
}

std::string tsv_line(std::span<const std::string> fields) {
  std::string line;
  for (std::size_t i = 0; i < fields.size(); ++i) line += (i == 0 ? "" : "\t") + tsv_field(fields[i]);
  return line += '\n';
}

std::string delimited_line(PredictionFormat format, std::span<const std::string> fields) {
  return format == PredictionFormat::csv ? csv_line(fields) : tsv_line(fields);
}

}  // namespace

PredictionFormat prediction_format(const fs::path& path) {
  const auto ending = path.extension().string();
  if (ending == ".csv") return PredictionFormat::csv;
  if (ending == ".tsv") return PredictionFormat::tsv;
  if (ending == ".jsonl") return PredictionFormat::jsonl;
  throw ConfigError(
      fmt::format("{}: the ending says how rows are written, and \"{}\" says nothing", path.string(), ending),
      {.remedy = "name a file that ends in .csv, .tsv or .jsonl"});
}

void check_prediction_path(const std::string& option, const fs::path& path, const fs::path& read) {
  const auto refuse = [&](const std::string& why, const std::string& remedy) {
    throw ConfigError(fmt::format("{} {}: {}", option, path.string(), why), {.remedy = remedy});
  };
  prediction_format(path);
  const auto folder = final_path_of(path).parent_path();
  if (!is_folder(folder))
    refuse(fmt::format("there is no folder {}", folder.string()), "make it, or name another file");
  if (is_folder(path)) refuse("is a folder", "name a file in it");
  if (is_there(path) && real_path(path) == real_path(read)) {
    refuse("is the file that the rows are read from", "name another file");
  }
}

std::string prediction_line(PredictionFormat format, std::span<const std::string> columns,
                            std::span<const PredictionCell> cells) {
  if (cells.size() != columns.size())
    throw InternalError(fmt::format("a row of {} cells for {} columns", cells.size(), columns.size()));
  if (format != PredictionFormat::jsonl) {
    std::vector<std::string> fields;
    for (const auto& cell : cells) fields.push_back(cell_text(cell));
    return delimited_line(format, fields);
  }
  std::string line;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    line += fmt::format("{}{}:{}", i == 0 ? "{" : ",", json_text(nlohmann::json(columns[i]), -1), json_value(cells[i]));
  }
  return line + "}\n";
}

PredictionFile::PredictionFile(const fs::path& path, std::vector<std::string> columns)
    : path_(cleared_path(path)),
      format_(prediction_format(path)),
      columns_(std::move(columns)),
      file_(make_partial_file(path_)) {
  if (format_ != PredictionFormat::jsonl) waiting_ = delimited_line(format_, columns_);
}

PredictionFile::~PredictionFile() {
  std::error_code ignored;
  if (!finished_) fs::remove(file_.path(), ignored);
}

void PredictionFile::add(std::span<const PredictionCell> cells) {
  waiting_ += prediction_line(format_, columns_, cells);
  ++rows_;
  if (waiting_.size() >= kFlushBytes) flush();
}

void PredictionFile::flush() {
  file_.write_all(std::as_bytes(std::span(waiting_)));
  waiting_.clear();
}

void PredictionFile::finish() {
  flush();
  file_.sync();
  if (std::rename(file_.path().c_str(), path_.c_str()) != 0) {
    throw_io_error(file_.path(), fmt::format("rename to {}", path_.string()), errno);
  }
  finished_ = true;
  file_.close();
  fsync_path(path_.parent_path());
}

}  // namespace orthant
