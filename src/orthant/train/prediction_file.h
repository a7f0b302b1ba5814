// The file that scores of rows are written to as they come: one line a row, in CSV, TSV or JSON lines by the ending of
// its name. It takes its name when it is whole: a file of that name is the old one until then, and stays it when
// something goes wrong.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "orthant/files/file_handle.h"

namespace orthant {

// Nothing, a count, a number, a text. Numbers have nine significant digits, as many as a float32 has; one that is not
// finite is nothing.
using PredictionCell = std::variant<std::monostate, std::int64_t, double, std::string>;

enum class PredictionFormat { csv, tsv, jsonl };

// ConfigError for another ending than .csv, .tsv and .jsonl.
PredictionFormat prediction_format(const std::filesystem::path& path);

// ConfigError, which begins with `option`, for a path that cannot be written: its ending, a folder that is not there, a
// folder of that name, or the file `read` that the rows come from.
void check_prediction_path(const std::string& option, const std::filesystem::path& path,
                           const std::filesystem::path& read);

// "1,Drama,0.5\n" or {"row":1,"prediction":"Drama","probability_Drama":0.5}. InternalError unless there are as many
// cells as columns.
std::string prediction_line(PredictionFormat format, std::span<const std::string> columns,
                            std::span<const PredictionCell> cells);

class PredictionFile {
 public:
  // Begins a file beside the final name, and removes those that killed processes left there. ConfigError as
  // prediction_format(); IoError, here and below.
  PredictionFile(const std::filesystem::path& path, std::vector<std::string> columns);
  ~PredictionFile();
  PredictionFile(const PredictionFile&) = delete;
  PredictionFile& operator=(const PredictionFile&) = delete;

  void add(std::span<const PredictionCell> cells);
  std::int64_t rows() const { return rows_; }

  // Brings it to the device and gives it its name.
  void finish();

 private:
  void flush();

  std::filesystem::path path_;
  PredictionFormat format_;
  std::vector<std::string> columns_;
  FileHandle file_;
  std::string waiting_;
  std::int64_t rows_ = 0;
  bool finished_ = false;
};

}  // namespace orthant
