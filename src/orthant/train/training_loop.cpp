#include "orthant/train/training_loop.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "orthant/base/error.h"
#include "orthant/checkpoint/room.h"
#include "orthant/launch/activity_board.h"
#include "orthant/train/evaluation_pass.h"
#include "orthant/train/memory_use.h"
#include "orthant/train/step_rate.h"

namespace orthant {
namespace {

using Clock = std::chrono::steady_clock;

// So many steps in a row that are not finite are no accident.
constexpr std::int64_t kMostBadSteps = 20;

// The first steps find memory and files cold. Of those behind them a few tell how busy the stages are.
constexpr std::int64_t kColdSteps = 2;
constexpr std::int64_t kProfiledSteps = 8;
constexpr std::size_t kMostStepTimes = 4096;  // kept, for their median

// Ranks of one pp coordinate do the same work.
std::vector<int> same_work(const Trainer& trainer) {
  std::vector<int> groups;
  for (int r = 0; r < trainer.mesh().world_size(); ++r) groups.push_back(trainer.mesh().coordinate(r)[Axis::pp]);
  return groups;
}

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace

TrainingLoop::TrainingLoop(const RunConfig& config, const RunOptions& options, const RunData& data, Trainer& trainer,
                           LoopReports reports)
    : config_(config),
      options_(options),
      data_(data),
      trainer_(trainer),
      ranks_(control_group(config.trainer)),
      reports_(std::move(reports)),
      saver_(trainer, config.checkpoint.asynchronous),
      last_step_(std::min(options.stop_after.value_or(config.steps), config.steps)),
      step_seconds_(kMostStepTimes),
      speed_watch_(same_work(trainer), [&trainer](int rank) { return place_text(trainer.mesh(), rank); }),
      flops_per_sample_(model_flops_per_sample(config)) {}

std::int64_t TrainingLoop::peak_bytes() const {
  return peak_memory_bytes(trainer_.options().device) + trainer_.exchanged_bytes();
}

void TrainingLoop::tell(const char* destination, const std::function<void()>& report) {
  try {
    report();
    waiting_reports_.erase(destination);
  } catch (const DataError& error) {
    if (waiting_reports_.insert(destination).second) {
      reports_.note(fmt::format("{}; training goes on, and reports wait in memory", error.message()));
    }
  }
}

void TrainingLoop::make_step(Loader& loader) {
  auto& recorder = trainer_.recorder();
  recorder.begin_step(trainer_.steps_done() + 1);
  const trace::Span span(&recorder, trace::phase(&recorder, "step"));
  const auto began = Clock::now();
  const launch::ActivityMoment moment{launch::ActivityMoment::Kind::step, trainer_.steps_done() + 1};
  launch::Activity::of_process().say(moment, "reading its batch");
  const auto batch = [&] {
    const trace::Span reading(&recorder, trace::phase(&recorder, "data"));
    return loader.next();
  }();
  StepMetrics metrics;
  metrics.lr = trainer_.lr();
  auto pending = trainer_.step(batch, {.stop = asked_to_stop(),
                                       .saving = saver_.busy(),
                                       .save_due = save_is_due(),
                                       .peak_memory_bytes = peak_bytes(),
                                       .busy_seconds = busy_seconds_});
  settle_pending();
  if (ranks_.alone() && asked_to_stop()) outcome_.stopped = true;
  metrics.step = trainer_.steps_done();
  metrics.epoch = batch.epoch;
  metrics.samples = batch.samples;
  metrics.tokens = batch.tokens;
  metrics.step_seconds = seconds_since(began);
  if (++steps_made_ > kColdSteps) step_seconds_.add(metrics.step_seconds);
  metrics.samples_per_second = static_cast<double>(batch.samples) / metrics.step_seconds;
  metrics.tokens_per_second = static_cast<double>(batch.tokens) / metrics.step_seconds;
  metrics.peak_memory_bytes = peak_bytes();
  metrics.model_flops_per_second = flops_per_sample_ * metrics.samples_per_second;
  tell("samples", [&] { reports_.samples.step(metrics.step, batch); });
  pending_ = std::move(pending);
  pending_metrics_ = metrics;
  if (trainer_.options().device.is_cpu()) settle_pending();  // nothing runs ahead of the host there
  const auto waited = recorder.waited_ns();
  busy_seconds_ = std::max(0.0, seconds_since(began) - static_cast<double>(waited - waited_ns_) * 1e-9);
  waited_ns_ = waited;
}

// On a device every action would have to be waited for.
void TrainingLoop::watch_speed() {
  if (options_.profile.count > 0) return profile_steps();
  if (steps_made_ == kColdSteps && trainer_.options().device.is_cpu()) profiler_.emplace(trainer_);
  if (steps_made_ != kColdSteps + kProfiledSteps || !profiler_) return;
  outcome_.result.busy_seconds = profiler_->result(ranks_).busy;
  profiler_.reset();
}

// Evaluations and the copies of background saves are no part of a step.
void TrainingLoop::note_step_memory() {
  if (step_bytes_ == 0) step_bytes_ = peak_bytes();
}

// Asked for with --profile: before the step that begins it, and after the one that ends it.
void TrainingLoop::profile_steps() {
  const auto& wanted = options_.profile;
  const auto next = trainer_.steps_done() + 1;
  const bool begins = wanted.first < 0 ? steps_made_ == kColdSteps || next == last_step_ : next == wanted.first;
  if (begins && profile_ends_ < 0) {
    settle_pending();
    profile_ends_ = std::min(next + wanted.count - 1, last_step_);
    run_profiler_.emplace(trainer_);
  }
  if (run_profiler_ && next > profile_ends_) end_profile();
}

void TrainingLoop::end_profile() {
  if (!run_profiler_) return;
  settle_pending();
  outcome_.profile = run_profiler_->result(ranks_);
  outcome_.result.busy_seconds = outcome_.profile->stages.busy;
  run_profiler_.reset();
  if (reports_.folder == nullptr) return;
  const auto& path = reports_.folder->path();
  const auto trace = options_.trace.empty() ? path + "/trace.json" : options_.trace;
  tell("profile", [&] {
    reports_.fence.check();
    write_profile_file(path + "/profile.json", outcome_.profile->json());
    write_profile_file(trace, outcome_.profile->chrome_trace());
  });
  reports_.note(fmt::format("profile in {}/profile.json, trace in {}: open it in ui.perfetto.dev", path, trace));
}

void TrainingLoop::add_measurements() {
  auto& result = outcome_.result;
  if (steps_made_ == 0) return;
  note_step_memory();
  result.traffic = ranks_.counters();
  for (const auto& bytes : ranks_.gather(at::tensor({step_bytes_}, at::kLong))) {
    result.rank_memory_bytes.push_back(bytes.item<std::int64_t>());
  }
  if (steps_made_ <= kColdSteps) return;
  if (profiler_) result.busy_seconds = profiler_->result(ranks_).busy;
  profiler_.reset();
  result.step_seconds = quantile(step_seconds_.kept(), 0.5);
}

// Reads a step's numbers and does what follows from them: reports, the next stage of a save, a stop, a bad step. On a
// device that is when the next step is under way, so that it never waits for the host.
void TrainingLoop::settle_pending() {
  if (!pending_) return;
  const trace::Span span(&trainer_.recorder(), trace::phase(&trainer_.recorder(), "report"));
  const auto numbers = pending_->get();
  pending_.reset();
  outcome_.stopped |= numbers.stop;
  save_was_due_ |= numbers.save_due;
  pending_metrics_.loss = numbers.loss;
  pending_metrics_.grad_norm = numbers.grad_norm;
  // Others told theirs when the step began.
  pending_metrics_.peak_memory_bytes = std::max(pending_metrics_.peak_memory_bytes, numbers.peak_memory_bytes);
  if (!any_reported_) outcome_.result.first_loss = numbers.loss;
  any_reported_ = true;
  outcome_.result.final_loss = numbers.loss;
  pending_metrics_.auxiliary_loss = numbers.auxiliary_loss;
  pending_metrics_.expert_loads = layer_loads(trainer_.graph(), numbers.expert_loads);
  if (ranks_.is_first()) {
    for (const auto& text : expert_watch_.step(pending_metrics_.expert_loads)) reports_.note(text);
  }
  if (ranks_.is_first()) {
    const trace::WatchedStep watched{
        .step = pending_metrics_.step,
        .seconds = pending_metrics_.step_seconds,
        .peak_memory_bytes = pending_metrics_.peak_memory_bytes,
        .busy_seconds = trainer_.options().device.is_cpu() ? numbers.busy_seconds : std::vector<double>()};
    for (const auto& text : speed_watch_.step(watched)) reports_.note(text);
  }
  tell("log", [&] { reports_.log.step(pending_metrics_); });
  // Only a step that began after the stage of the save did knows of it.
  if (saver_.under_way() && !numbers.saving && pending_metrics_.step > save_stage_since_) {
    save_stage_since_ = trainer_.steps_done();
    if (const auto outcome = saver_.advance()) end_save(*outcome);
  }
  if (numbers.skipped) {
    reports_.rank_log(fmt::format("step {}: gradients overflowed, the update was left out and the loss scale lowered",
                                  pending_metrics_.step));
    return;
  }
  if (!numbers.bad()) {
    bad_steps_in_a_row_ = 0;
  } else {
    handle_bad_step(numbers);
  }
}

void TrainingLoop::handle_bad_step(const PendingStep::Numbers& numbers) {
  const auto cause = trainer_.explain_bad_step();
  const auto text = fmt::format("step {}: loss {}, gradient norm {}; the update was left out; {}",
                                pending_metrics_.step, numbers.loss, numbers.grad_norm, cause.text);
  ++bad_steps_in_a_row_;
  const bool go_on = config_.bad_steps == BadSteps::skip && !cause.lasting && bad_steps_in_a_row_ < kMostBadSteps;
  if (go_on) return reports_.note(text);
  if (const auto before = saver_.finish()) end_save(*before);
  tell("log", [&] { reports_.log.finish(); });
  auto remedy = std::string("lower optimizer.lr (or a fixed precision.loss_scale), or look for bad values in the data");
  if (cause.lasting) remedy = "resume from a checkpoint: the parameter itself is damaged on that rank";
  if (config_.bad_steps == BadSteps::skip && !cause.lasting) {
    remedy = fmt::format("{} steps in a row were left out: {}", bad_steps_in_a_row_, remedy);
  }
  throw DataError(text, {.remedy = remedy, .rank = cause.rank});
}

void TrainingLoop::evaluate() {
  if (!data_.eval || outcome_.stopped || evaluated_at_ == trainer_.steps_done()) return;
  note_step_memory();
  const trace::Span span(&trainer_.recorder(), trace::phase(&trainer_.recorder(), "evaluation"));
  const auto found = evaluate_dataset(
      trainer_, *data_.eval,
      {.num_labels = data_.num_labels, .rows = work_size(config_).rows, .stop_requested = options_.stop_requested});
  if (found.empty()) {
    outcome_.stopped = true;
    return;
  }
  evaluated_at_ = trainer_.steps_done();
  outcome_.result.eval = found;
  tell("log", [&] { reports_.log.eval(trainer_.steps_done(), found); });
  const bool least = found.at("loss") < least_eval_loss_;
  if (least) least_eval_loss_ = found.at("loss");
  evals_since_least_ = least ? 0 : evals_since_least_ + 1;
}

// All ranks have the same metrics, and so decide alike.
bool TrainingLoop::improves_no_more() {
  if (config_.early_stop == 0 || evals_since_least_ < config_.early_stop) return false;
  outcome_.ended_early = fmt::format("stopped early after step {}: {} evaluations in a row had no loss below {:.4f}",
                                     trainer_.steps_done(), evals_since_least_, least_eval_loss_);
  return true;
}

bool TrainingLoop::save_is_due() const {
  const auto minutes = config_.checkpoint.save_minutes;
  return ranks_.is_first() && minutes > 0 && !saver_.under_way() && seconds_since(last_save_) >= 60 * minutes;
}

// One save is under way at a time: a slow disk holds training up rather than piling up copies.
void TrainingLoop::save() {
  if (const auto before = saver_.finish()) end_save(*before);
  save_was_due_ = false;
  last_save_ = Clock::now();
  if (saved_at_ == trainer_.steps_done()) return;
  const trace::Span span(&trainer_.recorder(), trace::phase(&trainer_.recorder(), "save"));
  trainer_.check_replicas();
  note_step_memory();
  SavedBeside beside{cursor_after(make_sampler(config_, data_), trainer_.steps_done()), data_.saved_files};
  beside.key = reports_.key;
  beside.fence = reports_.fence;
  const bool evaluated = evaluated_at_ == trainer_.steps_done();
  if (evaluated && std::isfinite(outcome_.result.eval.at("loss"))) beside.eval_loss = outcome_.result.eval.at("loss");
  const auto* folder = reports_.folder;
  if (folder != nullptr) {
    beside.make_room = [folder, keep = config_.checkpoint.keep, step = trainer_.steps_done()](std::int64_t bytes,
                                                                                              bool quota) {
      folder->fence().check();
      folder->check_entries();  // a link in the place of checkpoints/ is followed by nobody
      const RoomRequest request{folder->checkpoints(), step, bytes, keep, quota, folder->resumed_from()};
      const auto made = make_room(request);
      return SaveRoom{made.enough, made.removed.empty() ? "" : room_note(request, made)};
    };
    beside.before_commit = [folder] { folder->sync_lines(); };
    beside.afterwards = [folder, keep = config_.checkpoint.keep, evaluates = data_.eval != nullptr] {
      folder->after_save(keep, evaluates);
    };
  }
  if (folder != nullptr) folder->flush_lines();
  save_stage_since_ = trainer_.steps_done();
  saver_.begin(folder != nullptr ? folder->checkpoint_path(trainer_.steps_done()) : "", std::move(beside));
  if (config_.checkpoint.asynchronous) return;
  if (const auto outcome = saver_.finish()) end_save(*outcome);
}

// A disk that is full now may not be so next time: training goes on, with what was saved before.
void TrainingLoop::end_save(const SaveOutcome& outcome) {
  last_save_ = Clock::now();  // a save that takes longer than the interval is not due again at once
  for (const auto& note : outcome.room_notes) reports_.note(note);
  if (outcome.failed) {
    outcome_.save_error = outcome.failed;
    if (outcome.step == trainer_.steps_done() && (ending_ || outcome.step == last_step_)) return;  // thrown at the end
    try {
      std::rethrow_exception(outcome.failed);
    } catch (const Error& error) {
      reports_.note(fmt::format("the checkpoint of step {} was not saved: {}{}; training goes on", outcome.step,
                                error.rank() > 0 ? fmt::format("rank {}: ", error.rank()) : "", error.message()));
    }
    return;
  }
  outcome_.save_error = nullptr;
  saved_at_ = outcome.step;
  if (!outcome.before_commit_failed.empty()) {
    reports_.note(fmt::format("lines of metrics may be lost with the power: {}", outcome.before_commit_failed));
  }
  if (!outcome.afterwards_failed.empty()) {
    reports_.note(fmt::format("old checkpoints were not removed: {}", outcome.afterwards_failed));
  }
  reports_.rank_log(fmt::format("saved the checkpoint of step {}", outcome.step));
}

void TrainingLoop::save_last() {
  ending_ = true;
  evaluate();  // so that the checkpoint is ranked, too
  save();
  if (const auto outcome = saver_.finish()) end_save(*outcome);
}

void TrainingLoop::throw_save_error() const {
  const auto named = [&](const Error& error) {
    return fmt::format(
        "the checkpoint of step {}, the last, was not saved: {}; {}, and {}", trainer_.steps_done(), error.message(),
        outcome_.stopped ? "training stopped on request" : "training finished",
        saved_at_ < 0 ? "no step was saved" : fmt::format("--resume auto goes on at step {}", saved_at_));
  };
  try {
    std::rethrow_exception(outcome_.save_error);
  } catch (const IoError& error) {
    throw IoError(named(error), error.error_number(), {error.remedy(), error.rank()}, error.where());
  } catch (const DataError& error) {
    throw DataError(named(error), {error.remedy(), error.rank()}, error.where());
  }
}

std::exception_ptr TrainingLoop::finish_reports() {
  try {
    ranks_.together([&] {
      IoPatience(config_.checkpoint.retry_seconds).retry([&] {
        reports_.log.finish();
        reports_.samples.flush();
      });
    });
  } catch (const CommError&) {
    throw;
  } catch (const Error&) {
    return std::current_exception();
  }
  return nullptr;
}

RunOutcome TrainingLoop::run() {
  const auto began = last_save_ = Clock::now();
  const auto loader = make_loader(config_, data_, trainer_.steps_done());
  outcome_.stopped = ranks_.any(asked_to_stop());  // while the ranks were still getting ready
  const auto* folder = reports_.folder;
  const bool resumed = trainer_.steps_done() > 0;
  bool saved = false;
  ranks_.together([&] {
    if (!resumed || folder == nullptr) return;
    saved = folder->patience().retry([&] { return is_checkpoint(folder->checkpoint_path(trainer_.steps_done())); });
  });
  if (ranks_.any(saved)) saved_at_ = trainer_.steps_done();
  if (resumed && trainer_.steps_done() >= last_step_) {
    reports_.note(fmt::format("nothing to train: the checkpoint is of step {} and the run ends at step {}",
                              trainer_.steps_done(), last_step_));
  }
  while (trainer_.steps_done() < last_step_ && !outcome_.stopped) {
    watch_speed();
    make_step(*loader);
    const auto step = trainer_.steps_done();
    const auto due = [&](std::int64_t every) { return every > 0 && step % every == 0; };
    if (due(config_.eval_every) || due(config_.checkpoint.save_every)) settle_pending();
    if (due(config_.eval_every)) evaluate();
    if (due(config_.checkpoint.save_every) || save_was_due_) {
      settle_pending();
      save();
      outcome_.stopped |= ranks_.any(asked_to_stop());
    }
    if (due(config_.eval_every) && improves_no_more()) break;
  }
  end_profile();
  settle_pending();
  add_measurements();
  save_last();
  evaluate();
  const auto unwritten = finish_reports();
  if (outcome_.save_error) throw_save_error();
  if (unwritten) std::rethrow_exception(unwritten);
  reports_.rank_log(
      fmt::format("{} after step {}", outcome_.stopped ? "stopped on request" : "done", trainer_.steps_done()));
  outcome_.result.steps = trainer_.steps_done();
  outcome_.result.seconds = seconds_since(began);
  outcome_.result.best_reachable_accuracy = data_.best_accuracy;
  outcome_.result.mesh = trainer_.mesh();
  outcome_.result.output_dir = reports_.folder != nullptr ? reports_.folder->path() : "";
  outcome_.result.parameters = trainer_.graph().num_parameters();
  outcome_.result.weights_hash = trainer_.weights_hash();
  return outcome_;
}

}  // namespace orthant
