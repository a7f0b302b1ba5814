#include "orthant/train/run.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <numeric>
#include <ostream>

#include "orthant/base/error.h"
#include "orthant/data/loader.h"
#include "orthant/models/build.h"
#include "orthant/train/checkpoint.h"
#include "orthant/train/evaluation.h"
#include "orthant/train/memory_use.h"
#include "orthant/train/output_folder.h"
#include "orthant/train/pretrained.h"
#include "orthant/train/run_tokenizers.h"
#include "orthant/train/summary.h"

namespace orthant {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// What the loop carries from step to step.
class Loop {
 public:
  Loop(const RunConfig& config, const RunOptions& options, const RunData& data, Trainer& trainer, OutputFolder& folder,
       std::ostream& out)
      : config_(config),
        options_(options),
        data_(data),
        trainer_(trainer),
        folder_(folder),
        log_(folder.open_log(config, trainer.steps_done() + 1, options.color, out)),
        last_step_(std::min(options.stop_after.value_or(config.steps), config.steps)) {}

  RunOutcome run();

 private:
  void make_step(Loader& loader);
  void report_pending();
  void evaluate();
  void save();

  const RunConfig& config_;
  const RunOptions& options_;
  const RunData& data_;
  Trainer& trainer_;
  OutputFolder& folder_;
  RunLog log_;
  std::int64_t last_step_;
  RunOutcome outcome_;
  std::optional<PendingStep> pending_;
  StepMetrics pending_metrics_;
  bool any_reported_ = false;
  std::int64_t evaluated_at_ = -1;
  std::int64_t saved_at_ = -1;
};

void Loop::make_step(Loader& loader) {
  const auto began = Clock::now();
  const auto batch = loader.next();
  StepMetrics metrics;
  metrics.lr = trainer_.lr();
  auto pending = trainer_.step(batch);
  report_pending();
  if (options_.stop_requested && options_.stop_requested()) outcome_.stopped = true;
  metrics.step = trainer_.steps_done();
  metrics.epoch = batch.epoch;
  metrics.samples = batch.samples;
  metrics.tokens = batch.tokens;
  metrics.step_seconds = seconds_since(began);
  metrics.samples_per_second = static_cast<double>(batch.samples) / metrics.step_seconds;
  metrics.tokens_per_second = static_cast<double>(batch.tokens) / metrics.step_seconds;
  metrics.peak_memory_bytes = peak_memory_bytes(trainer_.options().device);
  pending_ = std::move(pending);
  pending_metrics_ = metrics;
}

// A step's numbers are read when the next one is under way, so that a device never waits for the host.
void Loop::report_pending() {
  if (!pending_) return;
  const auto numbers = pending_->get();
  pending_.reset();
  pending_metrics_.loss = numbers.loss;
  pending_metrics_.grad_norm = numbers.grad_norm;
  if (!any_reported_) outcome_.result.first_loss = numbers.loss;
  any_reported_ = true;
  outcome_.result.final_loss = numbers.loss;
  log_.step(pending_metrics_);
  if (!std::isfinite(numbers.loss) || !std::isfinite(numbers.grad_norm)) {
    log_.finish();
    throw DataError(fmt::format("step {}: loss {}, gradient norm {}; the update was left out", pending_metrics_.step,
                                numbers.loss, numbers.grad_norm),
                    {.remedy = "lower optimizer.lr, or look for bad values in the data"});
  }
}

void Loop::evaluate() {
  if (!data_.eval || evaluated_at_ == trainer_.steps_done()) return;
  evaluated_at_ = trainer_.steps_done();
  const auto found =
      evaluate_dataset(trainer_, *data_.eval, data_.num_labels, work_size(config_).rows, options_.stop_requested);
  if (found.empty()) {
    outcome_.stopped = true;
    return;
  }
  outcome_.result.eval = found;
  log_.eval(trainer_.steps_done(), found);
}

void Loop::save() {
  if (saved_at_ == trainer_.steps_done()) return;
  saved_at_ = trainer_.steps_done();
  save_checkpoint(trainer_, cursor_after(make_sampler(config_, data_), trainer_.steps_done()),
                  folder_.checkpoint_path(trainer_.steps_done()), data_.saved_files);
  prune_checkpoints(folder_.checkpoints(), config_.checkpoint.keep_last);
}

RunOutcome Loop::run() {
  const auto began = Clock::now();
  const auto loader = make_loader(config_, data_, trainer_.steps_done());
  while (trainer_.steps_done() < last_step_ && !outcome_.stopped) {
    make_step(*loader);
    const auto step = trainer_.steps_done();
    const auto due = [&](std::int64_t every) { return every > 0 && step % every == 0; };
    if (due(config_.eval_every) || due(config_.checkpoint.save_every)) report_pending();
    if (due(config_.eval_every)) evaluate();
    if (due(config_.checkpoint.save_every)) save();
  }
  report_pending();
  save();
  if (!outcome_.stopped) evaluate();
  log_.finish();
  outcome_.result.steps = trainer_.steps_done();
  outcome_.result.seconds = seconds_since(began);
  outcome_.result.best_reachable_accuracy = data_.best_accuracy;
  outcome_.result.mesh = trainer_.mesh();
  outcome_.result.output_dir = folder_.path();
  outcome_.result.parameters = trainer_.graph().num_parameters();
  outcome_.result.weights_hash = trainer_.weights_hash();
  return outcome_;
}

}  // namespace

SummaryOptions summary_options(const RunConfig& config) {
  SummaryOptions options;
  options.parameters = config.trainer.precision.params;
  options.compute = config.trainer.precision.compute;
  options.gradients = config.trainer.precision.reduce;
  options.optimizer_copies = config.trainer.optimizer.kind == "adamw" ? 2
                             : config.trainer.optimizer.momentum > 0  ? 1
                                                                      : 0;
  options.recompute = config.trainer.recompute;
  return options;
}

void check_trainable(const RunConfig& config) {
  check_mesh(config.mesh);
  step_actions(run_spec(config), config.trainer);
}

std::unique_ptr<Trainer> make_trainer(const RunConfig& config) {
  return make_trainer(config, PretrainedWeights(run_spec(config), pretrained_sources(config.model)));
}

std::unique_ptr<Trainer> make_trainer(const RunConfig& config, const PretrainedWeights& weights) {
  auto options = config.trainer;
  options.drawn = [&](std::string_view parameter) { return !weights.reads(parameter); };
  auto trainer = std::make_unique<Trainer>(
      run_spec(config), [&](ParameterStore& store, Tables& tables) { return build_units(config.model, store, tables); },
      config.mesh, options);
  weights.load(trainer->parameters());
  return trainer;
}

EvalMetrics evaluate_dataset(Trainer& trainer, const Dataset& dataset, std::int64_t num_labels, std::int64_t rows,
                             const std::function<bool()>& stop_requested) {
  ClassificationTally classes(std::max<std::int64_t>(num_labels, 2));
  LanguageTally language;
  for (std::int64_t first = 0; first < dataset.size(); first += rows) {
    if (stop_requested && stop_requested()) return {};
    std::vector<std::int64_t> indices(static_cast<std::size_t>(std::min(rows, dataset.size() - first)));
    std::iota(indices.begin(), indices.end(), first);
    const auto fields = dataset.rows(indices);
    if (num_labels > 0) {
      classes.add(trainer.evaluate(fields, {"logits"}).at("logits"), fields.at(kLabelsField));
    } else {
      language.add(trainer.evaluate(fields, {"loss"}).at("loss").to(at::kDouble).item<double>(),
                   dataset.weight_sum(fields));
    }
  }
  return num_labels > 0 ? classes.result() : language.result();
}

RunOutcome run_training(RunConfig config, const std::string& resolved_config, const RunOptions& options,
                        std::ostream& out) {
  if (!options.resume.empty() && !options.output_dir.empty()) use_kept_tokenizers(config, options.output_dir);
  const auto data = make_run_data(config);
  for (const auto& note : data.notes) out << note << '\n';
  const auto sampler = make_sampler(config, data);
  OutputFolder folder(options.output_dir, config.name, options.resume);
  // A resumed run has its weights in the checkpoint.
  const bool resuming =
      options.resume == "auto" ? !list_checkpoints(folder.checkpoints()).empty() : !options.resume.empty();
  const auto weights =
      resuming ? PretrainedWeights() : PretrainedWeights(run_spec(config), pretrained_sources(config.model));
  for (const auto& note : weights.notes()) out << note << '\n';
  const auto trainer = make_trainer(config, weights);
  folder.prepare(*trainer, sampler, resolved_config, data.saved_files, out);
  keep_tokenizers(config, folder.path());
  out << summary_text(trainer->graph(), summary_options(config)) << std::flush;
  return Loop(config, options, data, *trainer, folder, out).run();
}

}  // namespace orthant
