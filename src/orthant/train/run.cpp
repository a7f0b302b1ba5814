#include "orthant/train/run.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <limits>
#include <ostream>
#include <span>

#include "orthant/base/error.h"
#include "orthant/base/human.h"
#include "orthant/data/loader.h"
#include "orthant/files/xxhash.h"
#include "orthant/models/build.h"
#include "orthant/schedule/stage_lines.h"
#include "orthant/train/checkpoint.h"
#include "orthant/train/control_group.h"
#include "orthant/train/evaluation_pass.h"
#include "orthant/train/memory_use.h"
#include "orthant/train/output_folder.h"
#include "orthant/train/pretrained.h"
#include "orthant/train/rank_log.h"
#include "orthant/train/resume.h"
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
  // `folder` is null on all ranks but the first.
  Loop(const RunConfig& config, const RunOptions& options, const RunData& data, Trainer& trainer,
       const OutputFolder* folder, RunLog log, RankLog& rank_log)
      : config_(config),
        options_(options),
        data_(data),
        trainer_(trainer),
        ranks_(config.trainer),
        folder_(folder),
        log_(std::move(log)),
        rank_log_(rank_log),
        last_step_(std::min(options.stop_after.value_or(config.steps), config.steps)) {}

  RunOutcome run();

 private:
  bool asked_to_stop() const { return options_.stop_requested && options_.stop_requested(); }
  std::int64_t peak_bytes() const { return peak_memory_bytes(trainer_.options().device) + trainer_.exchanged_bytes(); }
  void make_step(Loader& loader);
  void report_pending();
  void evaluate();
  bool improves_no_more();
  void save();

  const RunConfig& config_;
  const RunOptions& options_;
  const RunData& data_;
  Trainer& trainer_;
  ControlGroup ranks_;
  const OutputFolder* folder_;
  RunLog log_;
  RankLog& rank_log_;
  std::int64_t last_step_;
  RunOutcome outcome_;  // `stopped` is alike on all ranks
  std::optional<PendingStep> pending_;
  StepMetrics pending_metrics_;
  bool any_reported_ = false;
  std::int64_t evaluated_at_ = -1;
  double least_eval_loss_ = std::numeric_limits<double>::infinity();
  std::int64_t evals_since_least_ = 0;
  std::int64_t saved_at_ = -1;
};

void Loop::make_step(Loader& loader) {
  const auto began = Clock::now();
  const auto batch = loader.next();
  StepMetrics metrics;
  metrics.lr = trainer_.lr();
  auto pending = trainer_.step(batch, {.stop = asked_to_stop(), .peak_memory_bytes = peak_bytes()});
  report_pending();
  if (ranks_.alone() && asked_to_stop()) outcome_.stopped = true;
  metrics.step = trainer_.steps_done();
  metrics.epoch = batch.epoch;
  metrics.samples = batch.samples;
  metrics.tokens = batch.tokens;
  metrics.step_seconds = seconds_since(began);
  metrics.samples_per_second = static_cast<double>(batch.samples) / metrics.step_seconds;
  metrics.tokens_per_second = static_cast<double>(batch.tokens) / metrics.step_seconds;
  metrics.peak_memory_bytes = peak_bytes();
  pending_ = std::move(pending);
  pending_metrics_ = metrics;
}

// A step's numbers are read when the next one is under way, so that a device never waits for the host.
void Loop::report_pending() {
  if (!pending_) return;
  const auto numbers = pending_->get();
  pending_.reset();
  outcome_.stopped |= numbers.stop;
  pending_metrics_.loss = numbers.loss;
  pending_metrics_.grad_norm = numbers.grad_norm;
  // Others told theirs when the step began.
  pending_metrics_.peak_memory_bytes = std::max(pending_metrics_.peak_memory_bytes, numbers.peak_memory_bytes);
  if (!any_reported_) outcome_.result.first_loss = numbers.loss;
  any_reported_ = true;
  outcome_.result.final_loss = numbers.loss;
  log_.step(pending_metrics_);
  if (numbers.skipped) {
    rank_log_.say(fmt::format("step {}: gradients overflowed, the update was left out and the loss scale lowered",
                              pending_metrics_.step));
  }
  if (!numbers.skipped && (!std::isfinite(numbers.loss) || !std::isfinite(numbers.grad_norm))) {
    log_.finish();
    throw DataError(
        fmt::format("step {}: loss {}, gradient norm {}; the update was left out", pending_metrics_.step, numbers.loss,
                    numbers.grad_norm),
        ranks_.alike("lower optimizer.lr (or a fixed precision.loss_scale), or look for bad values in the data"));
  }
}

void Loop::evaluate() {
  if (!data_.eval || outcome_.stopped || evaluated_at_ == trainer_.steps_done()) return;
  evaluated_at_ = trainer_.steps_done();
  const auto found = evaluate_dataset(
      trainer_, *data_.eval,
      {.num_labels = data_.num_labels, .rows = work_size(config_).rows, .stop_requested = options_.stop_requested});
  if (found.empty()) {
    outcome_.stopped = true;
    return;
  }
  outcome_.result.eval = found;
  log_.eval(trainer_.steps_done(), found);
  const bool least = found.at("loss") < least_eval_loss_;
  if (least) least_eval_loss_ = found.at("loss");
  evals_since_least_ = least ? 0 : evals_since_least_ + 1;
}

// All ranks have the same metrics, and so decide alike.
bool Loop::improves_no_more() {
  if (config_.early_stop == 0 || evals_since_least_ < config_.early_stop) return false;
  outcome_.ended_early = fmt::format("stopped early after step {}: {} evaluations in a row had no loss below {:.4f}",
                                     trainer_.steps_done(), evals_since_least_, least_eval_loss_);
  return true;
}

void Loop::save() {
  if (saved_at_ == trainer_.steps_done()) return;
  saved_at_ = trainer_.steps_done();
  save_checkpoint(trainer_, cursor_after(make_sampler(config_, data_), trainer_.steps_done()),
                  folder_ != nullptr ? folder_->checkpoint_path(trainer_.steps_done()) : "", data_.saved_files);
  if (folder_ != nullptr) prune_checkpoints(folder_->checkpoints(), config_.checkpoint.keep_last);
  rank_log_.say(fmt::format("saved the checkpoint of step {}", trainer_.steps_done()));
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
    if (due(config_.eval_every) && improves_no_more()) break;
  }
  report_pending();
  save();
  evaluate();
  log_.finish();
  rank_log_.say(
      fmt::format("{} after step {}", outcome_.stopped ? "stopped on request" : "done", trainer_.steps_done()));
  outcome_.result.steps = trainer_.steps_done();
  outcome_.result.seconds = seconds_since(began);
  outcome_.result.best_reachable_accuracy = data_.best_accuracy;
  outcome_.result.mesh = trainer_.mesh();
  outcome_.result.output_dir = folder_ != nullptr ? folder_->path() : "";
  outcome_.result.parameters = trainer_.graph().num_parameters();
  outcome_.result.weights_hash = trainer_.weights_hash();
  return outcome_;
}

// Ranks that train on different samples would not even make the same number of steps.
void check_same_data(const RunData& data, const ControlGroup& ranks) {
  auto found = fmt::format("{} samples to train on and {} to evaluate on", data.train->size(),
                           data.eval ? data.eval->size() : 0);
  for (const auto& [name, text] : data.saved_files) {
    found += fmt::format(", {} {:016x}", name, xxh64(std::as_bytes(std::span(text))));
  }
  const auto all = ranks.gather_texts(found);
  for (std::size_t r = 1; r < all.size(); ++r) {
    if (all[r] == all[0]) continue;
    throw DataError(fmt::format("found other data than rank 0: {} instead of {}", all[r], all[0]),
                    {.remedy = "let every rank read the same files", .rank = static_cast<int>(r)});
  }
}

// What the mesh leaves of the summary's whole to one rank.
std::string rank_share(const Trainer& trainer) {
  std::int64_t elements = 0;
  std::int64_t state_bytes = 0;
  const auto& buffers = trainer.parameters().buffers();
  for (std::size_t b = 0; b < buffers.size(); ++b) {
    if (!buffers[b]->trainable()) continue;
    elements += buffers[b]->owned().size();
    for (std::size_t s = 0; s < trainer.optimizer().state_names().size(); ++s) {
      state_bytes += static_cast<std::int64_t>(trainer.optimizer().state(s, b).nbytes());
    }
  }
  return fmt::format("mesh {}, zero {}: this rank updates {} parameters with {} of optimizer state",
                     trainer.mesh().to_string(), trainer.parameters().policy().zero, format_count(elements),
                     format_bytes(state_bytes));
}

RunOutcome run_on_this_rank(RunConfig& config, const std::string& resolved_config, const RunOptions& options,
                            std::ostream& out, RankLog& rank_log) {
  const ControlGroup ranks(config.trainer);
  const auto note = [&](const std::string& text) {
    out << text << '\n';
    rank_log.say(text);
  };
  RunData data;
  std::optional<OutputFolder> folder;  // rank 0's
  ranks.together([&] {
    if (!options.resume.empty() && !options.output_dir.empty()) use_kept_tokenizers(config, options.output_dir);
    data = make_run_data(config);
    make_sampler(config, data);
    if (ranks.is_first()) folder.emplace(options.output_dir, config.name, options.resume);
  });
  check_same_data(data, ranks);
  if (config.early_stop > 0 && !data.eval) {
    throw ConfigError("train.early_stop without data to evaluate on",
                      ranks.alike("set data.eval_fraction or data.eval_path, or train.early_stop=0"));
  }
  for (const auto& text : data.notes) note(text);
  // A resumed run has its weights in the checkpoint.
  PretrainedWeights weights;
  const bool resuming = ranks.any(folder && folder->resumes());
  if (!resuming) weights = PretrainedWeights(run_spec(config), pretrained_sources(config.model), ranks);
  for (const auto& text : weights.notes()) note(text);
  const auto trainer = make_trainer(config, weights);
  if (weights.bytes_read() > 0) note(fmt::format("read {} of weights", format_bytes(weights.bytes_read())));
  ranks.together([&] {
    if (folder) folder->open();
  });
  const auto path = ranks.from_first(folder ? std::filesystem::absolute(folder->path()).string() : "");
  ranks.together([&] { rank_log.open(path, ranks.rank()); });
  resume_run(*trainer, make_sampler(config, data), folder ? &*folder : nullptr,
             {options.resume, folder ? folder->path() : path, resolved_config, data.saved_files, note});
  RunLog log;
  ranks.together([&] {
    if (!folder) return;
    folder->write(resolved_config, data.saved_files);
    keep_tokenizers(config, folder->path());
    log = folder->open_log(config, trainer->steps_done() + 1, options.color, out);
  });
  out << summary_text(declared_spec(config), summary_options(config)) << std::flush;
  if (config.mesh.degree(Axis::pp) > 1) note(stage_lines(trainer->pipeline(), trainer->graph()));
  if (!ranks.alone()) note(rank_share(*trainer));
  const auto outcome =
      Loop(config, options, data, *trainer, folder ? &*folder : nullptr, std::move(log), rank_log).run();
  if (!outcome.ended_early.empty()) note(outcome.ended_early);
  return outcome;
}

}  // namespace

SummaryOptions summary_options(const RunConfig& config) {
  SummaryOptions options;
  options.parameters = config.trainer.precision.params;
  options.compute = config.trainer.precision.compute;
  options.gradients = config.trainer.precision.reduce;
  options.optimizer_copies = num_states(config.trainer.optimizer);
  options.recompute = config.trainer.recompute;
  return options;
}

void check_trainable(const RunConfig& config) {
  check_mesh(config.mesh);
  const auto spec = run_spec(config);
  check_trains(spec);
  check_generated_data(config);
  rank_plans(trainer_pipeline(spec, config.mesh, config.trainer), spec, config.mesh, config.trainer);
}

std::unique_ptr<Trainer> make_trainer(const RunConfig& config) {
  return make_trainer(
      config, PretrainedWeights(run_spec(config), pretrained_sources(config.model), ControlGroup(config.trainer)));
}

std::unique_ptr<Trainer> make_trainer(const RunConfig& config, const PretrainedWeights& weights) {
  auto options = config.trainer;
  options.drawn = [&](std::string_view parameter) { return !weights.reads(parameter); };
  auto trainer = std::make_unique<Trainer>(
      run_spec(config), [&](ParameterStore& store, Tables& tables) { return build_units(config.model, store, tables); },
      config.mesh, options);
  weights.load(trainer->parameters(), ControlGroup(config.trainer));
  return trainer;
}

RunOutcome run_training(RunConfig config, const std::string& resolved_config, const RunOptions& options,
                        std::ostream& out) {
  RankLog rank_log;
  rank_log.say(start_line(config.mesh, ControlGroup(config.trainer).rank(), config.trainer.device.str()));
  try {
    return run_on_this_rank(config, resolved_config, options, out, rank_log);
  } catch (const std::exception& error) {
    try {
      rank_log.say(fmt::format("error: {}", error.what()));
    } catch (const DataError&) {
      // The error itself matters more than that the log cannot be written.
    }
    throw;
  }
}

}  // namespace orthant
