#include "orthant/train/resume.h"

#include <fmt/format.h>

#include <filesystem>
#include <optional>

#include "orthant/base/error.h"
#include "orthant/base/printable.h"
#include "orthant/train/kept_plans.h"
#include "orthant/train/trainer.h"

namespace orthant {
namespace {

// The best checkpoint that is whole; nothing when there is none to choose from. When `choose`, damaged ones are passed
// over, else refused.
std::optional<CheckpointReader> first_whole(const std::vector<std::string>& candidates, bool choose,
                                            const ControlGroup& ranks, const ResumeOptions& options,
                                            std::vector<std::string>& refused) {
  std::string newest_refusal;
  auto checkpoint =
      open_first_whole(candidates, ranks, options.access, [&](const std::string& path, const DataError& error) {
        if (!choose) throw;
        if (newest_refusal.empty()) newest_refusal = error.message();
        options.notes(fmt::format("not resumed from {}", error.message()));
        refused.push_back(path);
      });
  if (checkpoint || newest_refusal.empty()) return checkpoint;
  throw DataError(fmt::format("{}/checkpoints: none of its {} checkpoints can be resumed; the newest: {}",
                              options.output_dir, refused.size(), newest_refusal),
                  ranks.alike(fmt::format("move {}/checkpoints away and begin at step 0 with --resume auto "
                                          "--from-scratch, or start anew in another --output-dir",
                                          options.output_dir)));
}

void check_cursor(const std::string& checkpoint, const Manifest& manifest, const Sampler& sampler, std::uint64_t seed) {
  const auto expected = cursor_after(sampler, manifest.step);
  const DataCursor found{manifest.epoch, manifest.position, manifest.samples_seen};
  // Before the first step nothing was drawn that has to go on: an imported model has no seed.
  if (found == expected && (manifest.step == 0 || manifest.seed == seed)) return;
  throw ConfigError(
      fmt::format("{} was written with seed {} after {} samples; with seed {}, this batch size and this data step {} "
                  "comes after {}: other samples would follow",
                  checkpoint, manifest.seed, found.samples_seen, seed, manifest.step, expected.samples_seen),
      {.remedy = "resume with the seed, train.global_batch_size and data of that run (its config.json)"});
}

}  // namespace

void check_resume(const OutputFolder& folder, const Sampler& sampler, const TrainerOptions& trainer,
                  const ControlGroup& ranks, const ResumeOptions& options) {
  std::vector<std::string> refused;
  const bool choose = folder.resume() == "auto";
  const auto checkpoint = first_whole(folder.checkpoints_to_resume(), choose, ranks, options, refused);
  if (!checkpoint) return;
  const auto path = checkpoint->folder().string();
  folder.check_same_run(path, options.resolved_config, options.files);
  check_cursor(path, checkpoint->manifest(), sampler, trainer.seed);
  check_kept_plans(folder, trainer, nullptr, checkpoint->manifest().step);
}

std::string resume_run(Trainer& trainer, const Sampler& sampler, const OutputFolder* folder,
                       const ResumeOptions& options) {
  const ControlGroup ranks = control_group(trainer.options());
  const auto resume = ranks.from_first(folder != nullptr ? folder->resume() : "");
  const auto candidates = folder != nullptr ? folder->checkpoints_to_resume() : std::vector<std::string>{};
  std::vector<std::string> refused;
  const auto checkpoint = first_whole(candidates, /*choose=*/resume == "auto", ranks, options, refused);
  if (!checkpoint) {
    // What an attempt before the first checkpoint has written is made anew.
    ranks.together([&] {
      if (folder == nullptr) return;
      folder->supersede_after(0);
      folder->begin_unsaved();
    });
    if (!resume.empty()) options.notes(fmt::format("{} holds no checkpoint: starting at step 0", options.output_dir));
    return {};
  }
  const auto path = checkpoint->folder().string();
  ranks.together([&] {
    if (folder == nullptr) return;
    folder->check_same_run(path, options.resolved_config, options.files);
    check_kept_plans(*folder, trainer.options(), trainer.measured_plans(), checkpoint->manifest().step);
  });
  const auto [manifest, notes] = load_checkpoint(trainer, *checkpoint, options.access.patience);
  std::vector<std::string> set_aside;
  ranks.together([&] {
    if (folder == nullptr) return;
    check_cursor(path, manifest, sampler, trainer.options().seed);
    for (const auto& bad : refused) {
      const auto aside = options.access.patience.retry([&] { return set_aside_refused(bad); });
      set_aside.push_back(fmt::format("{} is kept as {}", bad, std::filesystem::path(aside).filename().string()));
    }
    for (auto& note : folder->supersede_after(manifest.step)) set_aside.push_back(std::move(note));
    folder->none_unsaved();
  });
  options.notes(fmt::format("resumed from {} at step {}", printable(path), manifest.step));
  if (folder != nullptr && folder->from_scratch()) {
    options.notes("--from-scratch had no effect: a checkpoint was there to resume from");
  }
  if (const auto note = unchecked_tags_note(path, manifest, options.access); !note.empty()) {
    options.notes(
        fmt::format("WARNING: {}, and new checkpoints of this run have no tags; set checkpoint.key_file to "
                    "check them and to tag new ones",
                    note));
  }
  for (const auto& note : notes) options.notes(note);
  for (const auto& note : set_aside) options.notes(note);
  return path;
}

}  // namespace orthant
