#include "orthant/report/run_folder.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <span>
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

bool MetricReader::goes_on(const FileHandle& file, std::uint64_t inode) const {
  if (inode != inode_ || static_cast<std::uint64_t>(file.size()) < read_bytes_) return false;
  std::string there(last_line_.size(), '\0');
  file.read_exactly(static_cast<std::int64_t>(read_bytes_ - last_line_.size()),
                    std::as_writable_bytes(std::span(there)));
  return there == last_line_;
}

void MetricReader::take(std::string_view line, MetricTable& table) {
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
    if (place >= order_.size() || order_[place].first != name) {
      const auto found = std::ranges::find(order_, name, [](const auto& entry) { return entry.first; });
      place = static_cast<std::size_t>(found - order_.begin());
      if (found == order_.end()) order_.emplace_back(name, &table.columns[std::string(name)]);
    }
    auto& column = *order_[place++].second;
    column.resize(row, kNone);
    column.push_back(number);
  }
  if (has_step) return;
  for (auto& [column_name, column] : table.columns) column.resize(std::min(column.size(), row));
}

void MetricReader::read(const std::string& path, MetricTable& table) {
  constexpr std::size_t kChunk = std::size_t{4} << 20;
  const auto file = FileHandle::open_regular(path);
  struct stat status{};
  if (fstat(file.fd(), &status) != 0) throw_io_error(path, "stat", errno);
  if (!goes_on(file, status.st_ino)) {
    *this = {};
    table = {};
    inode_ = status.st_ino;
  }
  std::string text;
  for (auto left = static_cast<std::uint64_t>(file.size()) - read_bytes_; left > 0;) {
    const auto from = text.size();
    text.resize(from + std::min<std::uint64_t>(kChunk, left));
    const auto chunk = std::as_writable_bytes(std::span(text)).subspan(from);
    file.read_exactly(static_cast<std::int64_t>(read_bytes_ + from), chunk);
    left -= chunk.size();
    for_each_line(text, [&](std::string_view line) { take(line, table); });
    const auto whole = text.rfind('\n') + 1;  // 0 when there is none
    if (whole == 0) continue;
    const auto last = whole < 2 ? std::string::npos : text.rfind('\n', whole - 2);
    last_line_ = text.substr(last + 1, whole - last - 1);
    read_bytes_ += whole;
    text.erase(0, whole);
  }
  for (auto& [name, column] : table.columns) column.resize(table.steps.size(), kNone);
}

void RunReader::look(RunFolder& run) {
  const fs::path folder(run.path);
  auto& complaints = run.complaints;
  complaints.clear();
  run.config = json_file(folder / "config.json", complaints);
  run.profile = json_file(folder / "profile.json", complaints);
  run.result = json_file(folder / "result.json", complaints);
  try {
    if (fs::exists(folder / "metrics.jsonl")) metrics_.read(run.path + "/metrics.jsonl", run.metrics);
  } catch (const DataError& error) {
    complaints.push_back(error.message());
  }
  run.evals = json_lines(folder / "eval.jsonl", complaints);
  run.log.clear();
  run.verdicts.clear();
  run.checkpoints.clear();
  read_logs(run);
  read_checkpoints(run);
  run.ranks = trace::read_flight(run.path, &complaints);
}

bool is_empty(const RunFolder& run) {
  return run.config.is_null() && run.ranks.empty() && run.log.empty() && run.metrics.steps.empty();
}

void check_run_folder(const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return;
  throw ConfigError(fmt::format("{} is no folder of a run", path),
                    {.remedy = "name the folder that orthant train printed behind \"output\""});
}

void refuse_empty_run(const std::string& path) {
  throw ConfigError(fmt::format("{} holds nothing of a run: no config.json, log, metrics.jsonl or flight", path),
                    {.remedy = "name the folder that orthant train printed behind \"output\""});
}

RunFolder read_run_folder(const std::string& path) {
  check_run_folder(path);
  RunFolder run;
  run.path = path;
  RunReader().look(run);
  if (is_empty(run)) refuse_empty_run(path);
  return run;
}

}  // namespace orthant::report
