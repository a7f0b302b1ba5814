#include "orthant/train/sample_log.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>

#include "orthant/files/path_facts.h"

namespace orthant {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPrefix = "samples-";

}  // namespace

SampleLog::SampleLog(const std::string& run, const Mesh& mesh, int rank, const WriteFence& fence) {
  const auto at = mesh.coordinate(rank);
  if (at[Axis::pp] != 0 || at[Axis::tp] != 0 || at[Axis::cp] != 0) return;
  file_ = std::make_unique<LineFile>(run, fmt::format("log/{}{}.jsonl", kPrefix, rank), fence);
}

void SampleLog::step(std::int64_t step, const Batch& batch) {
  if (!file_) return;
  file_->append(fmt::format("{{\"step\":{},\"epoch\":{},\"first_row\":{},\"samples\":[{}]}}", step, batch.epoch,
                            batch.first_row, fmt::join(batch.ids, ",")));
}

void SampleLog::flush() {
  if (file_) file_->flush();
}

std::vector<std::string> sample_logs(const std::string& run) {
  std::vector<std::string> files;
  for (const auto& name : names_in_folder(fs::path(run) / "log")) {
    if (name.starts_with(kPrefix) && name.ends_with(".jsonl")) files.push_back("log/" + name);
  }
  return files;
}

}  // namespace orthant
