#include "orthant/cli/run_ending.h"

#include <fmt/format.h>

#include "orthant/base/error.h"
#include "orthant/base/printable.h"
#include "orthant/checkpoint/pointers.h"
#include "orthant/checkpoint/pretrained.h"

namespace orthant::cli {

std::vector<ResultRow> rows_of_best(const RunConfig& config, const RunResult& result) {
  if (result.output_dir.empty()) return {};
  const auto checkpoints = result.output_dir + "/checkpoints";
  std::vector<ResultRow> rows;
  const char* pointer = kLatestPointer;
  try {
    if (const auto best = best_checkpoint(checkpoints); best && best->eval_loss) {
      pointer = kBestPointer;
      rows.emplace_back("best eval loss", fmt::format("{:.4f} at step {}: {}/{}", *best->eval_loss, best->step,
                                                      printable(checkpoints), pointer));
    }
  } catch (const DataError&) {
    return {};
  }
  const auto sources = pretrained_sources(config.model);
  if (sources.size() == 1 && sources[0].names != nullptr && sources[0].prefix.empty()) {
    rows.emplace_back("export", fmt::format("orthant checkpoint export {}/{} --format huggingface FOLDER",
                                            printable(checkpoints), pointer));
  }
  if (config.data.kind == "trimodal") {
    rows.emplace_back("predict", fmt::format("orthant predict --model {}/{} --data TABLE --out scores.csv",
                                             printable(checkpoints), pointer));
  }
  return rows;
}

std::string resume_command(const RunResult& result) {
  return fmt::format("orthant train --config {0}/config.json --output-dir {0} --resume auto",
                     printable(result.output_dir));
}

}  // namespace orthant::cli
