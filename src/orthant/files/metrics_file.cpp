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
#include "orthant/base/human.h"
#include "orthant/files/beneath.h"
#include "orthant/files/name_suffixes.h"
#include "orthant/files/path_facts.h"
#include "orthant/files/whole_file.h"

namespace orthant {
namespace {

using nlohmann::json;

constexpr int kAppending = O_RDWR | O_CREAT | O_APPEND;
constexpr std::int64_t kMaxLinesBytes = std::int64_t{16} << 30;  // of any such file: a hundred million steps

namespace fs = std::filesystem;

// The place after the last line break before `end`.
std::int64_t after_last_break(const FileHandle& file, std::int64_t end) {
  std::array<char, 4096> block;
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

// The length of the file up to and including its last line break.
std::int64_t whole_lines_bytes(const FileHandle& file) {
  return after_last_break(file, file.size());
}

std::optional<FileHandle> open_lines(const fs::path& folder, const fs::path& name) {
  if (!is_taken(folder / name)) return std::nullopt;
  auto file = open_beneath(folder, name, O_RDONLY);
  if (file.size() <= kMaxLinesBytes) return file;
  throw DataError(fmt::format("{}: it has {}, and such a file has at most {}", file.path().string(),
                              format_bytes(file.size()), format_bytes(kMaxLinesBytes)),
                  {.remedy = "move the file away"});
}

// Empty when there is no such file.
std::string text_of(const fs::path& folder, const fs::path& name) {
  const auto file = open_lines(folder, name);
  std::string text(file ? static_cast<std::size_t>(file->size()) : 0, '\0');
  if (file) file->read_exactly(0, std::as_writable_bytes(std::span(text)));
  return text;
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

struct SplitLines {
  std::string kept;
  std::string cut;
  bool torn = false;
};

SplitLines split_after_step(const fs::path& folder, const fs::path& name, std::int64_t step) {
  const std::string text = text_of(folder, name);
  SplitLines split;
  std::int64_t number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    split.torn = end == std::string::npos;
    if (split.torn) break;
    const std::string_view line(text.data() + begin, end - begin);
    auto& place = step_of(line, folder / name, ++number).value_or(step) <= step ? split.kept : split.cut;
    place.append(line).append(1, '\n');
    begin = end + 1;
  }
  return split;
}

}  // namespace

LineFile::LineFile(const std::filesystem::path& path) : LineFile(FileHandle(path, kAppending | O_NOFOLLOW), {}) {}

LineFile::LineFile(const std::filesystem::path& folder, const std::filesystem::path& name, const WriteFence& fence)
    : LineFile(open_beneath(folder, name, kAppending), fence) {}

LineFile::LineFile(FileHandle file, WriteFence fence) : file_(std::move(file)), fence_(std::move(fence)) {
  fence_.check();
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
  fence_.check();
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
  } catch (const Error&) {
    // Who must know calls flush().
  }
}

void set_aside_lines_after_step(const fs::path& folder, const fs::path& name, std::int64_t step) {
  const auto [kept, cut, torn] = split_after_step(folder, name, step);
  if (cut.empty()) return;
  const fs::path aside = name.string().append(kSupersededSuffix);
  const std::string before = text_of(folder, aside);
  if (!before.ends_with(cut)) write_file_atomically(folder / aside, before + cut);
}

void cut_lines_after_step(const fs::path& folder, const fs::path& name, std::int64_t step) {
  const auto [kept, cut, torn] = split_after_step(folder, name, step);
  if (!cut.empty() || torn) write_file_atomically(folder / name, kept);
}

void replace_lines(const fs::path& folder, const fs::path& name) {
  if (is_taken(folder / name)) write_file_atomically(folder / name, text_of(folder, name));
}

bool holds_lines(const fs::path& folder, const fs::path& name) {
  const auto file = open_lines(folder, name);
  return file && whole_lines_bytes(*file) > 0;
}

std::string last_line(const fs::path& folder, const fs::path& name) {
  const auto file = open_lines(folder, name);
  const std::int64_t end = file ? whole_lines_bytes(*file) : 0;
  if (end == 0) return {};
  const std::int64_t begin = after_last_break(*file, end - 1);
  std::string line(static_cast<std::size_t>(end - 1 - begin), '\0');
  file->read_exactly(begin, std::as_writable_bytes(std::span(line)));
  return line;
}

}  // namespace orthant
