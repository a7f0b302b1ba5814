// Where a run's numbers go: metrics.jsonl, the evaluations, the progress display, TensorBoard. Each destination is a
// sink of three small callables, so ranks that report nothing have none and a program may add its own.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "orthant/train/metrics.h"
#include "orthant/train/progress.h"

namespace orthant {

// Callables may be empty.
struct RunLogSink {
  std::function<void(const StepMetrics&)> step = {};
  std::function<void(std::int64_t step, const EvalMetrics&)> eval = {};
  std::function<void()> finish = {};
};

// Receives one line without its end.
using LineWriter = std::function<void(const std::string& line)>;

// Receives one point of a curve, as TensorBoard takes it: ("train/loss", 12, 0.5).
using ScalarWriter = std::function<void(const std::string& tag, std::int64_t step, double value)>;

// One line per step; `finish` is called at the end.
RunLogSink metrics_sink(LineWriter write, std::function<void()> finish = {});

// One line per evaluation: a file beside metrics.jsonl, whose every line is a step.
RunLogSink eval_sink(LineWriter write, std::function<void()> finish = {});

// train/loss, train/grad_norm, train/lr, speed/..., memory/peak_bytes, eval/<name>, and of models
// with experts train/auxiliary_loss and experts/<layer>.<expert>. Numbers that are not finite are
// left out: a curve has no place for them.
RunLogSink scalar_sink(ScalarWriter write, std::function<void()> finish = {});

RunLogSink progress_sink(std::shared_ptr<Progress> progress);

// Sinks are called in the order given, all of them, also when one throws: a full disk must not pass in silence, nor
// keep the others from their numbers. The first error reaches the caller then.
class RunLog {
 public:
  RunLog() = default;  // reports nowhere
  explicit RunLog(std::vector<RunLogSink> sinks) : sinks_(std::move(sinks)) {}

  void step(const StepMetrics& metrics);
  void eval(std::int64_t step, const EvalMetrics& metrics);

  // Ends every sink, each once: those that fail are asked again by the next call.
  void finish();

 private:
  void for_each_sink(const std::function<void(const RunLogSink&)>& tell) const;

  std::vector<RunLogSink> sinks_;
};

}  // namespace orthant
