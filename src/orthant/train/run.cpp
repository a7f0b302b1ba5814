#include "orthant/train/run.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <ostream>
#include <span>

#include "orthant/base/error.h"
#include "orthant/base/error_report.h"
#include "orthant/base/human.h"
#include "orthant/base/printable.h"
#include "orthant/checkpoint/checkpoint.h"
#include "orthant/checkpoint/original_files.h"
#include "orthant/checkpoint/pretrained.h"
#include "orthant/comm/control_group.h"
#include "orthant/files/xxhash.h"
#include "orthant/launch/activity_board.h"
#include "orthant/runtime/unit.h"
#include "orthant/schedule/stage_lines.h"
#include "orthant/train/clock_alignment.h"
#include "orthant/train/kept_plans.h"
#include "orthant/train/out_of_memory.h"
#include "orthant/train/output_folder.h"
#include "orthant/train/poison.h"
#include "orthant/train/rank_log.h"
#include "orthant/train/resume.h"
#include "orthant/train/run_tokenizers.h"
#include "orthant/train/summary.h"
#include "orthant/train/training_loop.h"

namespace orthant {
namespace {

// Sizes of the data and hashes of its files.
std::string found_data(const RunData& data) {
  auto found = fmt::format("{} samples to train on and {} to evaluate on", data.train->size(),
                           data.eval ? data.eval->size() : 0);
  for (const auto& [name, text] : data.saved_files) {
    found += fmt::format(", {} {:016x}", name, xxh64(std::as_bytes(std::span(text))));
  }
  return found;
}

// Ranks with other keys would write a checkpoint that nobody can read: the last one shows that it is so.
void check_same_key(const std::shared_ptr<const TagKey>& key, const ControlGroup& ranks) {
  const auto all = ranks.gather_texts(key ? manifest_tag(*key, "orthant: is it the same key?") : "");
  for (std::size_t r = 1; r < all.size(); ++r) {
    if (equal_tags(all[r], all[0])) continue;
    throw ConfigError("checkpoint.key_file: has another key than on rank 0",
                      {.remedy = "give every rank the same key", .rank = static_cast<int>(r)});
  }
}

// What the mesh leaves of the summary's whole to one rank.
std::string rank_share(const Trainer& trainer) {
  std::int64_t elements = 0;
  for (const auto& buffer : trainer.parameters().buffers()) {
    if (buffer->trainable()) elements += buffer->owned().size();
  }
  return fmt::format("mesh {}, zero {}: this rank updates {} parameters with {} of optimizer state",
                     trainer.mesh().to_string(), trainer.parameters().policy().zero, format_count(elements),
                     format_bytes(trainer.optimizer().state_bytes()));
}

// Calls `act`. Where there is no memory for it, the log gets what libtorch says, and the error says what the rank held.
// The trainer may be null.
template <typename Act>
auto naming_memory(const RunConfig& config, const Trainer* trainer, RankLog& rank_log, const Act& act) {
  try {
    return act();
  } catch (const std::exception& error) {
    if (!is_out_of_memory(error)) throw;
    const auto action = launch::Activity::of_process().last();
    const auto in_use = memory_in_use(trainer, config.trainer.device);
    rank_log.say(error.what());
    throw out_of_memory(config, control_group(config.trainer).rank(), action, in_use);
  }
}

// Says at its end how the rank ended: with an error unless it was told otherwise. A rank that is killed says nothing.
class EndMark {
 public:
  explicit EndMark(trace::Recorder& recorder) : recorder_(recorder) {}
  ~EndMark() { recorder_.ended(end_); }
  EndMark(const EndMark&) = delete;
  EndMark& operator=(const EndMark&) = delete;
  void set(trace::RankEnd end) { end_ = end; }

 private:
  trace::Recorder& recorder_;
  trace::RankEnd end_ = trace::RankEnd::failed;
};

// The last events of this rank lie in the run's folder from now on. Where there is no room training goes on without.
// Collective over the world: ranks tell one another how their clocks differ.
void keep_events(trace::Recorder& recorder, const std::string& path, const ControlGroup& ranks,
                 const std::function<void(const std::string&)>& say) {
  const auto clock = align_clock(ranks, kQuickClockRounds);
  try {
    recorder.keep_in(path);
  } catch (const DataError& error) {
    say(fmt::format("{}; they are kept in memory alone", error.message()));
  }
  recorder.set_clock(clock.offset_ns, clock.error_ns);
  recorder.set_threads(at::get_num_threads());
}

// Hosts have gone or come between two attempts of a job. Local.
void tell_mesh_change(const OutputFolder& folder, const std::string& checkpoint, const Mesh& mesh,
                      const std::optional<double>& predicted_step_seconds,
                      const std::function<void(const std::string&)>& note) {
  const auto manifest = folder.patience().retry([&] { return read_manifest(checkpoint); });
  const auto now = mesh.to_string();
  if (manifest.mesh == now) return;
  note(fmt::format("mesh {} becomes {} after step {}: the job goes on with other hosts", manifest.mesh, now,
                   manifest.step));
  folder.write_mesh_change(manifest.step, manifest.mesh, now, predicted_step_seconds);
}

RunOutcome run_on_this_rank(RunConfig& config, const std::string& resolved_config, const RunOptions& options,
                            std::ostream& out, RankLog& rank_log) {
  const ControlGroup ranks = control_group(config.trainer);
  const auto note = [&](const std::string& text) {
    out << printable(text, /*keep_lines=*/true) << '\n';
    rank_log.say(text);
  };
  std::shared_ptr<const TagKey> key;
  std::optional<OutputFolder> folder;  // rank 0's
  SavedFiles originals;                // rank 0's
  auto& activity = launch::Activity::of_process();
  activity.say("reading the data");
  ranks.together([&] {
    key = checkpoint_key(config);
    if ((!options.resume.empty() || options.restarted) && !options.output_dir.empty())
      use_kept_tokenizers(config, options.output_dir);
  });
  RunData data = make_run_data(config, ranks);
  ranks.together([&] {
    make_sampler(config, data);
    if (ranks.is_first()) folder.emplace(options.output_dir, config.name, folder_use(config, options));
    if (folder && !folder->resumes()) originals = original_files(config.model);
  });
  check_same_key(key, ranks);
  check_same_data(found_data(data), ranks);
  check_evaluated(config, data, ranks.alike(""));
  for (const auto& text : data.notes) note(text);
  activity.say("making parameters, gradients and optimizer state");
  // A resumed run has its weights in the checkpoint.
  PretrainedWeights weights;
  const bool resuming = ranks.any(folder && folder->resumes());
  if (!resuming) weights = PretrainedWeights(run_spec(config), pretrained_sources(config.model), ranks);
  for (const auto& text : weights.notes()) note(text);
  const auto trainer = make_trainer(config, weights);
  if (weights.bytes_read() > 0) note(fmt::format("read {} of weights", format_bytes(weights.bytes_read())));
  activity.hold_besides(trainer->exchanged_bytes());
  ranks.together([&] {
    if (folder) folder->open();
  });
  const auto path = ranks.from_first(folder ? std::filesystem::absolute(folder->path()).string() : "");
  const IoPatience patience(config.checkpoint.retry_seconds);
  const WriteFence fence(path, options.writer);
  ranks.together([&] { patience.retry([&] { rank_log.open(path, ranks.rank(), fence); }); });
  activity.keep_run_in(path);
  keep_events(trainer->recorder(), path, ranks, [&](const std::string& text) { rank_log.say(text); });
  const auto resumed =
      resume_run(*trainer, make_sampler(config, data), folder ? &*folder : nullptr,
                 {folder ? folder->path() : path, resolved_config, data.saved_files, note, {patience, key}});
  use_kept_plans(*trainer, folder ? &*folder : nullptr, note);
  RunLog log;
  SampleLog samples;
  ranks.together([&] {
    if (config.data.log_samples) samples = SampleLog(path, config.mesh, ranks.rank(), fence);
    if (!folder) return;
    if (!resumed.empty()) originals = patience.retry([&] { return original_files(resumed); });
    folder->write(resolved_config, data.saved_files);
    data.saved_files.merge(originals);
    keep_tokenizers(config, folder->path(), resumed);
    if (options.restarted && !resumed.empty())
      tell_mesh_change(*folder, resumed, trainer->mesh(), options.predicted_step_seconds, note);
    log = folder->open_log(config, trainer->steps_done() + 1, options.color, out);
  });
  out << summary_text(declared_spec(config), summary_options(config)) << std::flush;
  if (config.mesh.degree(Axis::pp) > 1) note(stage_lines(trainer->pipeline(), trainer->graph()));
  if (!ranks.alone()) note(rank_share(*trainer));
  LoopReports reports{folder ? &*folder : nullptr,
                      std::move(log),
                      std::move(samples),
                      note,
                      [&](const std::string& text) { rank_log.say(text); },
                      key,
                      fence};
  EndMark mark(trainer->recorder());
  const auto outcome = naming_memory(config, trainer.get(), rank_log, [&] {
    return TrainingLoop(config, options, data, *trainer, std::move(reports)).run();
  });
  if (!outcome.ended_early.empty()) note(outcome.ended_early);
  mark.set(outcome.stopped ? trace::RankEnd::stopped : trace::RankEnd::done);
  return outcome;
}

}  // namespace

FolderUse folder_use(const RunConfig& config, const RunOptions& options) {
  return {options.resume, options.restarted, options.from_scratch, options.writer,
          IoPatience(config.checkpoint.retry_seconds)};
}

void check_evaluated(const RunConfig& config, const RunData& data, ErrorDetails details) {
  if (config.early_stop == 0 || data.eval) return;
  details.remedy = "set data.eval_fraction or data.eval_path, or train.early_stop=0";
  throw ConfigError("train.early_stop without data to evaluate on", std::move(details));
}

SummaryOptions summary_options(const RunConfig& config) {
  SummaryOptions options;
  options.parameters = config.trainer.precision.params;
  options.compute = config.trainer.precision.compute;
  options.gradients = config.trainer.precision.reduce;
  options.optimizer_copies = num_states(config.trainer.optimizer);
  options.recompute = config.trainer.recompute;
  options.remade = config.trainer.remade;
  return options;
}

std::shared_ptr<const TagKey> checkpoint_key(const RunConfig& config) {
  return config.checkpoint.key_file.empty() ? nullptr : TagKey::load(config.checkpoint.key_file);
}

void check_trainable(const RunConfig& config) {
  checkpoint_key(config);
  const auto spec = run_spec(config);
  check_trains(spec);
  check_generated_data(config);
  const auto pipeline = trainer_pipeline(spec, config.mesh, config.trainer);
  check_lists(pipeline, spec, config.mesh, config.trainer);
  locate_poison(config.trainer.poison, spec, config.mesh, pipeline.unit_pp_coordinates(),
                effective_policy(config.trainer.policy, config.mesh), config.trainer.microbatches);
}

std::unique_ptr<Trainer> make_trainer(const RunConfig& config) {
  return make_trainer(
      config, PretrainedWeights(run_spec(config), pretrained_sources(config.model), control_group(config.trainer)));
}

std::unique_ptr<Trainer> make_trainer(const RunConfig& config, const PretrainedWeights& weights) {
  auto options = config.trainer;
  options.drawn = [&](std::string_view parameter) { return !weights.reads(parameter); };
  auto trainer = std::make_unique<Trainer>(
      run_spec(config), [&](ParameterStore& store, Tables& tables) { return build_units(store, tables); }, config.mesh,
      options);
  weights.load(trainer->parameters(), control_group(config.trainer));
  return trainer;
}

RunOutcome run_training(RunConfig config, const std::string& resolved_config, const RunOptions& options,
                        std::ostream& out) {
  RankLog rank_log;
  rank_log.say(start_line(config.mesh, control_group(config.trainer).rank(), config.trainer.device.str()));
  try {
    return naming_memory(config, nullptr, rank_log,
                         [&] { return run_on_this_rank(config, resolved_config, options, out, rank_log); });
  } catch (const std::exception& error) {
    rank_log.say(fmt::format("error: {}", error.what()));
    throw;
  }
}

}  // namespace orthant
