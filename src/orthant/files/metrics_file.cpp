#include "orthant/files/metrics_file.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "orthant/base/error.h"
#include "orthant/files/beneath.h"
#include "orthant/files/name_suffixes.h"
#include "orthant/files/path_facts.h"
#include "orthant/files/whole_file.h"

namespace orthant {
namespace {

using nlohmann::json;

constexpr int kAppending = O_RDWR | O_CREAT | O_APPEND;
constexpr std::int64_t kMaxLinesBytes = std::int64_t{16} << 30;  // a hundred million steps

// The length of the file up to and including its last line break.
std::int64_t whole_lines_bytes(const FileHandle& file) {
  std::array<char, 4096> block;
  std::int64_t end = file.size();
  while (end > 0) {
    const std::int64_t begin = std::max<std::int64_t>(0, end - static_cast<std::int64_t>(block.size()));
    const auto part = std::span(block).first(static_cast<std::size_t>(end - begin));
    file.read_exactly(begin, std::as_writable_bytes(part));
    const auto found = std::string_view(part.data(), part.size()).rfind('\n');
    if (found != std::string_view::npos) return begin + static_cast<std::int64_t>(found) + 1;
    end = begin;
  }
  return 0;
}

// The line's step; nothing when it has none.
std::optional<std::int64_t> step_of(std::string_view line, const std::filesystem::path& path, std::int64_t number) {
  const json value = json::parse(line, nullptr, false);
  const auto fail = [&](std::string_view what) {
    throw DataError(fmt::format("{}:{}: {}", path.string(), number, what),
                    {.remedy = "remove that line, or move the file away"});
  };
  if (!value.is_object()) fail("not a JSON object");
  const auto step = value.find("step");
  if (step == value.end()) return std::nullopt;
  constexpr auto kLargest = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (!step->is_number_integer() || (step->is_number_unsigned() && step->get<std::uint64_t>() > kLargest))
    fail("\"step\" is not a whole number");
  return step->get<std::int64_t>();
}

}  // namespace

LineFile::LineFile(const std::filesystem::path& path) : LineFile(FileHandle(path, kAppending | O_NOFOLLOW)) {}

LineFile::LineFile(const std::filesystem::path& folder, const std::filesystem::path& name)
    : LineFile(open_beneath(folder, name, kAppending)) {}

LineFile::LineFile(FileHandle file) : file_(std::move(file)) {
  if (!file_.is_regular()) return;
  const std::int64_t whole = whole_lines_bytes(file_);
  if (whole < file_.size()) file_.truncate(whole);
}

void LineFile::append(std::string_view line) {
  if (line.find('\n') != std::string_view::npos) {
    throw InternalError(fmt::format("{}: a line of {} bytes holds a line break", file_.path().string(), line.size()));
  }
  waiting_ += line;
  waiting_ += '\n';
  flush();
}

void LineFile::flush() {
  if (waiting_.empty()) return;
  if (whole_bytes_ && file_.size() > *whole_bytes_) file_.truncate(*whole_bytes_);
  whole_bytes_.reset();
  if (file_.is_regular()) whole_bytes_ = file_.size();
  file_.append_all(std::as_bytes(std::span(waiting_)));
  whole_bytes_.reset();
  waiting_.clear();
}

LineFile::~LineFile() {
  try {
    flush();
  } catch (const DataError&) {
    // Who must know calls flush().
  }
}

void supersede_lines_after_step(const std::filesystem::path& path, std::int64_t step) {
  if (!is_there(path)) return;
  const std::string text = read_file(path, kMaxLinesBytes);
  std::string kept;
  std::string cut;
  std::int64_t number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    if (end == std::string::npos) break;  // torn
    const std::string_view line(text.data() + begin, end - begin);
    auto& place = step_of(line, path, ++number).value_or(step) <= step ? kept : cut;
    place.append(line).append(1, '\n');
    begin = end + 1;
  }
  if (kept.size() == text.size()) return;
  const std::filesystem::path beside = path.string().append(kSupersededSuffix);
  if (!cut.empty()) write_file_atomically(beside, (is_there(beside) ? read_file(beside) : "") + cut);
  write_file_atomically(path, kept);
}

bool holds_lines(const std::filesystem::path& path) {
  return is_there(path) && whole_lines_bytes(FileHandle(path, O_RDONLY)) > 0;
}

}  // namespace orthant
