// What one training step reports, and its line in metrics.jsonl. Loss and gradient norm are global: they do not depend
// on the mesh. Readers of the file rely on the names and their order.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace orthant {

// Of the slots of a layer's tokens, the share that chose each expert, and the share for which there was no room.
struct LayerLoads {
  std::string layer;
  std::vector<double> shares;
  double dropped = 0;
};

struct StepMetrics {
  std::int64_t step = 0;
  std::int64_t epoch = 0;
  double loss = 0;
  double grad_norm = 0;  // before clipping
  double lr = 0;
  std::int64_t samples = 0;
  std::int64_t tokens = 0;
  double step_seconds = 0;  // from reading its batch until its work is done, or begun where a device runs behind
  double samples_per_second = 0;
  double tokens_per_second = 0;
  std::int64_t peak_memory_bytes = 0;  // of the largest rank
  double model_flops_per_second = 0;   // products and attention, recompute not counted; 0: not known, and left out
  // Of models with experts alone.
  double auxiliary_loss = 0;  // part of the loss
  std::vector<LayerLoads> expert_loads = {};
};

// What an evaluation reports: "loss", "accuracy", "roc_auc", ...
using EvalMetrics = std::map<std::string, double>;

// One JSON object without a line end. Numbers are the shortest text that reads back to the same bits; NaN and
// infinities, which JSON cannot write, are null.
std::string metrics_line(const StepMetrics& metrics);
std::string eval_line(std::int64_t step, const EvalMetrics& metrics);  // {"step":5,"accuracy":...,...}

}  // namespace orthant
