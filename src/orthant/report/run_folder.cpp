#include "orthant/report/run_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <type_traits>
#include <utility>

#include "orthant/base/error.h"

namespace orthant::report {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr int kDeepestDocument = 64;
constexpr std::size_t kTimeBytes = 20;  // "2026-01-31T12:00:00Z"

std::string text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Whole lines; a torn last one is left out.
template <typename Act>
void for_each_line(std::string_view text, const Act& act) {
  for (std::size_t begin = 0; begin < text.size();) {
    const auto end = text.find('\n', begin);
    if (end == std::string_view::npos) return;
    act(text.substr(begin, end - begin));
    begin = end + 1;
  }
}

// Discarded for what is no JSON, or deeper than anything that a run writes: what shows a document calls itself
// as often as it is deep.
ordered_json parse_document(std::string_view text) {
  bool fits = true;
  auto document = ordered_json::parse(
      text,
      [&](int depth, auto, auto&) {
        fits = fits && depth <= kDeepestDocument;
        return fits;
      },
      /*allow_exceptions=*/false);
  return fits ? document : ordered_json(ordered_json::value_t::discarded);
}

// Of an object; the fallback where it has no such entry, or one of another kind.
template <typename T>
T entry_or(const ordered_json& object, const char* name, T fallback) {
  const auto found = object.find(name);
  if (found == object.end()) return fallback;
  if constexpr (std::is_same_v<T, int>) {
    if (!found->is_number_integer()) return fallback;
    const auto number = found->template get<std::int64_t>();
    return std::in_range<int>(number) ? static_cast<int>(number) : fallback;
  } else if constexpr (std::is_same_v<T, bool>) {
    return found->is_boolean() ? found->template get<bool>() : fallback;
  } else {
    return found->is_string() ? found->template get<T>() : fallback;
  }
}

std::vector<ordered_json> json_lines(const fs::path& path, std::vector<std::string>& complaints) {
  std::vector<ordered_json> lines;
  bool damaged = false;
  for_each_line(text_of(path), [&](std::string_view line) {
    auto document = parse_document(line);
    if (document.is_object()) {
      lines.push_back(std::move(document));
    } else {
      damaged = true;
    }
  });
  if (damaged) complaints.push_back(path.string() + " has lines that are no JSON objects");
  return lines;
}

ordered_json json_file(const fs::path& path, std::vector<std::string>& complaints) {
  if (!fs::exists(path)) return nullptr;
  auto document = parse_document(text_of(path));
  if (!document.is_discarded()) return document;
  complaints.push_back(path.string() + " is no JSON document");
  return nullptr;
}

// One line's top-level numbers: {"step":1,"loss":2.5,...}. What is neither a number nor null is passed over.
class NumberScanner {
 public:
  explicit NumberScanner(std::string_view line) : line_(line) {}

  // The next name and its number; false at the end.
  bool next(std::string_view& name, double& number) {
    while (at_ < line_.size()) {
      const char c = line_[at_];
      if (c == '"' && depth_ == 1) {
        const auto end = line_.find('"', at_ + 1);
        if (end == std::string_view::npos) return false;
        name = line_.substr(at_ + 1, end - at_ - 1);
        at_ = end + 1;
        if (at_ < line_.size() && line_[at_] == ':' && value(number)) return true;
        continue;
      }
      if (c == '{' || c == '[') ++depth_;
      if (c == '}' || c == ']') --depth_;
      ++at_;
    }
    return false;
  }

 private:
  bool value(double& number) {
    ++at_;
    if (line_.substr(at_, 4) == "null") {
      number = kNone;
      at_ += 4;
      return true;
    }
    const auto [end, error] = std::from_chars(line_.data() + at_, line_.data() + line_.size(), number);
    if (error != std::errc()) return false;
    at_ = static_cast<std::size_t>(end - line_.data());
    return true;
  }

  std::string_view line_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

void read_log(const fs::path& path, int rank, std::vector<LogLine>& log) {
  for_each_line(text_of(path), [&](std::string_view line) {
    if (line.size() <= kTimeBytes || line[kTimeBytes - 1] != 'Z') return;
    log.push_back({rank, std::string(line.substr(0, kTimeBytes)), std::string(line.substr(kTimeBytes + 1))});
  });
}

void read_logs(RunFolder& run) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(run.path + "/log", error)) {
    const auto name = entry.path().filename().string();
    int rank = 0;
    if (std::sscanf(name.c_str(), "rank-%d.log", &rank) == 1) read_log(entry.path(), rank, run.log);
  }
  std::ranges::stable_sort(run.log, [](const auto& a, const auto& b) { return a.time < b.time; });
  for (const auto& line : json_lines(run.path + "/log/launcher.jsonl", run.complaints)) {
    run.verdicts.push_back({entry_or(line, "exit_code", 0), entry_or(line, "failed_rank", -1),
                            entry_or(line, "stop_asked", false), entry_or(line, "report", std::string())});
  }
}

void read_checkpoints(RunFolder& run) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(run.path + "/checkpoints", error)) {
    const auto name = entry.path().filename().string();
    std::int64_t step = 0;
    if (!name.starts_with("step-")) continue;
    const auto [end, bad] = std::from_chars(name.data() + 5, name.data() + name.size(), step);
    if (bad == std::errc() && end == name.data() + name.size()) run.checkpoints.push_back(step);
  }
  std::ranges::sort(run.checkpoints);
}

}  // namespace

MetricTable read_metrics(const std::string& file) {
  MetricTable table;
  std::vector<std::pair<std::string, std::vector<double>*>> order;  // as lines have them
  for_each_line(text_of(file), [&](std::string_view line) {
    NumberScanner numbers(line);
    std::string_view name;
    double number = 0;
    const auto row = table.steps.size();
    bool has_step = false;
    std::size_t place = 0;
    while (numbers.next(name, number)) {
      if (name == "step") {
        if (!(std::fabs(number) < 9e18)) break;  // no step: the line is left out
        table.steps.push_back(static_cast<std::int64_t>(number));
        has_step = true;
        continue;
      }
      if (place >= order.size() || order[place].first != name) {
        const auto found = std::ranges::find(order, name, [](const auto& entry) { return entry.first; });
        place = static_cast<std::size_t>(found - order.begin());
        if (found == order.end()) order.emplace_back(name, &table.columns[std::string(name)]);
      }
      auto& column = *order[place++].second;
      column.resize(row, kNone);
      column.push_back(number);
    }
    if (has_step) return;
    for (auto& [column_name, column] : table.columns) column.resize(std::min(column.size(), row));
  });
  for (auto& [name, column] : table.columns) column.resize(table.steps.size(), kNone);
  return table;
}

RunFolder read_run_folder(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    throw ConfigError(fmt::format("{} is no folder of a run", path),
                      {.remedy = "name the folder that orthant train printed behind \"output\""});
  }
  RunFolder run;
  run.path = path;
  run.config = json_file(fs::path(path) / "config.json", run.complaints);
  run.profile = json_file(fs::path(path) / "profile.json", run.complaints);
  run.result = json_file(fs::path(path) / "result.json", run.complaints);
  run.metrics = read_metrics(path + "/metrics.jsonl");
  run.evals = json_lines(fs::path(path) / "eval.jsonl", run.complaints);
  read_logs(run);
  read_checkpoints(run);
  run.ranks = trace::read_flight(path, &run.complaints);
  if (run.config.is_null() && run.ranks.empty() && run.log.empty() && run.metrics.steps.empty()) {
    throw ConfigError(fmt::format("{} holds nothing of a run: no config.json, log, metrics.jsonl or flight", path),
                      {.remedy = "name the folder that orthant train printed behind \"output\""});
  }
  return run;
}

}  // namespace orthant::report
