#include "orthant/train/sample_log.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>

namespace orthant {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPrefix = "samples-";

}  // namespace

SampleLog::SampleLog(const std::string& run, const Mesh& mesh, int rank) {
  const auto at = mesh.coordinate(rank);
  if (at[Axis::pp] != 0 || at[Axis::tp] != 0 || at[Axis::cp] != 0) return;
  file_ = std::make_unique<LineFile>(fs::path(run) / "log" / fmt::format("{}{}.jsonl", kPrefix, rank));
}

void SampleLog::step(std::int64_t step, const Batch& batch) {
  if (!file_) return;
  file_->append(fmt::format("{{\"step\":{},\"epoch\":{},\"first_row\":{},\"samples\":[{}]}}", step, batch.epoch,
                            batch.first_row, fmt::join(batch.ids, ",")));
}

void cut_sample_logs(const std::string& run, std::int64_t step) {
  std::error_code error;
  for (const auto& item : fs::directory_iterator(fs::path(run) / "log", error)) {
    const auto name = item.path().filename().string();
    if (name.starts_with(kPrefix) && name.ends_with(".jsonl")) drop_lines_after_step(item.path(), step);
  }
}

}  // namespace orthant
