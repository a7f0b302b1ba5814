// What a run left in its folder, also one that was killed: its numbers, logs, the launcher's verdicts and the last
// events of every rank. Nothing here is written, and what is missing or damaged is left out and said.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "orthant/files/file_handle.h"
#include "orthant/trace/flight_file.h"

namespace orthant::report {

// A line of log/rank-R.log.
struct LogLine {
  int rank = 0;
  std::string time;  // "2026-01-31T12:00:00Z"
  std::string text;
};

// How an attempt to run the ranks of a host ended, as its launcher saw it.
struct Verdict {
  int exit_code = 0;
  int failed_rank = -1;
  bool stop_asked = false;
  std::string report;
};

// The numbers of metrics.jsonl by name; a number that is null is NaN.
struct MetricTable {
  std::vector<std::int64_t> steps;
  std::map<std::string, std::vector<double>> columns;  // each as long as `steps`; NaN where a line lacks it
};

struct RunFolder {
  std::string path;
  nlohmann::ordered_json config;   // null when there is none
  nlohmann::ordered_json profile;  // of --profile; null when there is none
  nlohmann::ordered_json result;   // of a run that came to its end; likewise
  MetricTable metrics;
  std::vector<nlohmann::ordered_json> evals;
  std::vector<LogLine> log;  // of all ranks, by time
  std::vector<Verdict> verdicts;
  std::vector<std::int64_t> checkpoints;  // their steps, ascending
  std::vector<trace::RankRecord> ranks;
  std::vector<std::string> complaints;  // what could not be read
};

// ConfigError when there is no such folder.
void check_run_folder(const std::string& path);
// That there is nothing of a run in it: a ConfigError.
[[noreturn]] void refuse_empty_run(const std::string& path);

// The same, and when there is nothing of a run in it. Local.
RunFolder read_run_folder(const std::string& path);

// Numbers of lines of JSON objects, of a file that may grow: a million lines in about a second, and then only those
// that have come.
class MetricReader {
 public:
  // Adds whole lines behind those that were read; anew where the file was replaced, or cut by a run that was resumed.
  // DataError when it cannot be read.
  void read(const std::string& path, MetricTable& table);

 private:
  void take(std::string_view line, MetricTable& table);
  bool goes_on(const FileHandle& file, std::uint64_t inode) const;

  std::uint64_t inode_ = 0;
  std::uint64_t read_bytes_ = 0;  // up to the end of the last whole line
  std::string last_line_;         // with its end, to see that the file goes on behind it
  std::vector<std::pair<std::string, std::vector<double>*>> order_;  // columns as lines have them
};

// The same of a run that goes on: every look reads what has changed.
class RunReader {
 public:
  // Of the run at `run.path`; nothing is refused: one that has not begun leaves everything empty. Always the same
  // `run`. Local.
  void look(RunFolder& run);

 private:
  MetricReader metrics_;
};

// Nothing of a run is there.
bool is_empty(const RunFolder& run);

}  // namespace orthant::report
