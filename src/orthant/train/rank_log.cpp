#include "orthant/train/rank_log.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <filesystem>

#include "orthant/base/error.h"
#include "orthant/base/printable.h"
#include "orthant/files/beneath.h"

namespace orthant {

namespace fs = std::filesystem;

void RankLog::open(const std::string& run, int rank, const WriteFence& fence) {
  try {
    make_folder_beneath(run, "log");
  } catch (const IoError& error) {
    throw IoError(error.message(), error.error_number(),
                  {.remedy = "name an --output-dir that every rank can write", .rank = rank});
  }
  file_ = std::make_unique<LineFile>(run, fmt::format("log/rank-{}.log", rank), fence);
  // One that throws has the line and writes it later.
  for (const auto& line : std::exchange(waiting_, {})) {
    try {
      file_->append(line);
    } catch (const DataError&) {
    }
  }
}

void RankLog::say(std::string_view text) {
  const auto time = fmt::format("{:%FT%TZ}", fmt::gmtime(std::time(nullptr)));
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    auto line = fmt::format("{} {}", time, printable(text.substr(0, end)));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!file_) {
      waiting_.push_back(std::move(line));
      continue;
    }
    try {
      file_->append(line);
    } catch (const Error&) {
      // A log that finds no room holds nobody up; the file keeps the line until it does.
    }
  }
}

std::string place_text(const Mesh& mesh, int rank) {
  const auto coordinate = mesh.coordinate(rank);
  std::vector<std::string> place;
  for (const auto axis : mesh.active_axes()) {
    if (axis != Axis::ep) place.push_back(fmt::format("{}={}", axis_name(axis), coordinate[axis]));
  }
  return place.empty() ? "dp=0" : fmt::format("{}", fmt::join(place, ","));
}

std::string start_line(const Mesh& mesh, int rank, const std::string& device) {
  std::array<char, 256> host = {};
  gethostname(host.data(), host.size() - 1);
  return fmt::format("rank {} of {} started: host {}, process {}, at {} of mesh {}, device {}", rank, mesh.world_size(),
                     host.data(), getpid(), place_text(mesh, rank), mesh.to_string(), device);
}

}  // namespace orthant
