#include "orthant/train/run_log.h"

#include <fmt/format.h>

#include <cmath>
#include <exception>

#include "orthant/base/error.h"

namespace orthant {

RunLogSink metrics_sink(LineWriter write, std::function<void()> finish) {
  return {.step = [write = std::move(write)](const StepMetrics& metrics) { write(metrics_line(metrics)); },
          .finish = std::move(finish)};
}

RunLogSink eval_sink(LineWriter write, std::function<void()> finish) {
  return {.eval = [write = std::move(write)](std::int64_t step,
                                             const EvalMetrics& metrics) { write(eval_line(step, metrics)); },
          .finish = std::move(finish)};
}

RunLogSink scalar_sink(ScalarWriter write, std::function<void()> finish) {
  const auto finite = [write = std::move(write)](const std::string& tag, std::int64_t step, double value) {
    if (std::isfinite(value)) write(tag, step, value);
  };
  RunLogSink sink;
  sink.step = [finite](const StepMetrics& metrics) {
    finite("train/loss", metrics.step, metrics.loss);
    finite("train/grad_norm", metrics.step, metrics.grad_norm);
    finite("train/lr", metrics.step, metrics.lr);
    finite("speed/step_seconds", metrics.step, metrics.step_seconds);
    finite("speed/samples_per_second", metrics.step, metrics.samples_per_second);
    finite("speed/tokens_per_second", metrics.step, metrics.tokens_per_second);
    finite("memory/peak_bytes", metrics.step, static_cast<double>(metrics.peak_memory_bytes));
    if (!metrics.expert_loads.empty()) finite("train/auxiliary_loss", metrics.step, metrics.auxiliary_loss);
    for (const auto& layer : metrics.expert_loads) {
      for (std::size_t e = 0; e < layer.shares.size(); ++e) {
        finite(fmt::format("experts/{}.{}", layer.layer, e), metrics.step, layer.shares[e]);
      }
      finite(fmt::format("experts/{}.dropped", layer.layer), metrics.step, layer.dropped);
    }
  };
  sink.eval = [finite](std::int64_t step, const EvalMetrics& metrics) {
    for (const auto& [name, value] : metrics) finite("eval/" + name, step, value);
  };
  sink.finish = std::move(finish);
  return sink;
}

RunLogSink progress_sink(std::shared_ptr<Progress> progress) {
  RunLogSink sink;
  sink.step = [progress](const StepMetrics& metrics) { progress->step(metrics); };
  sink.eval = [progress](std::int64_t step, const EvalMetrics& metrics) {
    std::string text = fmt::format("evaluation after step {}:", step);
    for (const auto& [name, value] : metrics) text += fmt::format(" {} {:.4g}", name, value);
    progress->message(text);
  };
  sink.finish = [progress] { progress->finish(); };
  return sink;
}

void RunLog::for_each_sink(const std::function<void(const RunLogSink&)>& tell) const {
  std::exception_ptr first;
  for (const RunLogSink& sink : sinks_) {
    try {
      tell(sink);
    } catch (const Error&) {
      if (!first) first = std::current_exception();
    }
  }
  if (first) std::rethrow_exception(first);
}

void RunLog::step(const StepMetrics& metrics) {
  for_each_sink([&](const RunLogSink& sink) {
    if (sink.step) sink.step(metrics);
  });
}

void RunLog::eval(std::int64_t step, const EvalMetrics& metrics) {
  for_each_sink([&](const RunLogSink& sink) {
    if (sink.eval) sink.eval(step, metrics);
  });
}

void RunLog::finish() {
  std::exception_ptr first;
  std::erase_if(sinks_, [&](const RunLogSink& sink) {
    try {
      if (sink.finish) sink.finish();
      return true;
    } catch (const Error&) {
      if (!first) first = std::current_exception();
      return false;
    }
  });
  if (first) std::rethrow_exception(first);
}

}  // namespace orthant
