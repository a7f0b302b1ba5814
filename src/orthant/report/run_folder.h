// What a run left in its folder, also one that was killed: its numbers, logs, the launcher's verdicts and the last
// events of every rank. Nothing here is written, and what is missing or damaged is left out and said.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

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

// ConfigError when there is no such folder, or nothing of a run in it. Local.
RunFolder read_run_folder(const std::string& path);

// Numbers of lines of JSON objects, read in one sweep: a million lines in about a second.
MetricTable read_metrics(const std::string& file);

}  // namespace orthant::report
