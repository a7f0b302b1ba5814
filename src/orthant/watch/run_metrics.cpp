#include "orthant/watch/run_metrics.h"

#include "orthant/http/metric_text.h"
#include "orthant/report/figures.h"
#include "orthant/report/marks.h"

namespace orthant::watch {
namespace {

struct Told {
  const char* column;  // of metrics.jsonl
  const char* help;
};

constexpr Told kTold[] = {
    {"loss", "Loss of the last step."},
    {"grad_norm", "Gradient norm of the last step, before clipping."},
    {"lr", "Learning rate of the last step."},
    {"step_seconds", "Seconds of the last step."},
    {"tokens_per_second", "Tokens a second of the last step."},
    {"samples_per_second", "Samples a second of the last step."},
    {"peak_memory_bytes", "Peak memory of the largest rank."},
    {"model_flops_per_second", "Model FLOP/s of the last step, of all ranks."},
};

}  // namespace

std::string run_metrics(const report::RunFolder& run, report::RunState state) {
  const auto marks = report::marks_of(run);
  const auto count = [&](const char* kind) { return std::int64_t{report::count_of(marks, kind)}; };
  auto text = http::metric_text("train_running", "gauge", "1 while a rank of the run is there.",
                                std::int64_t{state == report::RunState::runs});
  text += http::metric_text("train_step", "gauge", "The last step.",
                            run.metrics.steps.empty() ? std::int64_t{0} : run.metrics.steps.back());
  for (const auto& [column, help] : kTold) {
    if (!run.metrics.columns.contains(column)) continue;
    text += http::metric_text(std::string("train_") + column, "gauge", help, report::last_of(run, column));
  }
  text +=
      http::metric_text("train_restarts_total", "counter", "How often all ranks were started again.", count("restart"));
  text += http::metric_text("train_bad_steps_total", "counter", "Steps whose update was left out.", count("bad step"));
  text += http::metric_text("train_checkpoints", "gauge", "Checkpoints in the run's folder.", count("checkpoint"));
  return text;
}

}  // namespace orthant::watch
