#include "orthant/train/output_folder.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <ostream>

#include "orthant/base/error.h"
#include "orthant/files/event_file.h"
#include "orthant/files/metrics_file.h"
#include "orthant/files/whole_file.h"
#include "orthant/train/progress.h"
#include "orthant/train/trainer.h"

namespace orthant {
namespace {

namespace fs = std::filesystem;

constexpr int kMostRuns = 100000;

bool holds_run(const std::string& path) {
  return fs::exists(path + "/config.json");
}

std::string first_free(const std::string& name) {
  for (int n = 1; n < kMostRuns; ++n) {
    auto path = fmt::format("runs/{}-{}", name, n);
    if (!fs::exists(path)) return path;
  }
  throw ConfigError(fmt::format("runs/{}-1 to -{} exist", name, kMostRuns), {.remedy = "use --output_dir"});
}

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

RunLogSink tensorboard_sink(const std::string& folder) {
  std::array<char, 256> host = {};
  gethostname(host.data(), host.size() - 1);
  fs::create_directories(folder);
  auto file = std::make_shared<EventFile>(folder, host.data(), getpid(), wall_seconds());
  return scalar_sink(
      [file](const std::string& tag, std::int64_t step, double value) {
        const std::pair<std::string_view, double> scalar(tag, value);
        file->add_scalars(step, wall_seconds(), {&scalar, 1});
      },
      [file] { file->flush(); });
}

}  // namespace

OutputFolder::OutputFolder(const std::string& wanted, const std::string& run_name, const std::string& resume)
    : path_(wanted.empty() ? first_free(run_name) : wanted), resume_(resume) {
  if (wanted.empty() && resume == "auto") {
    throw ConfigError("--resume auto without a folder to look in",
                      {.remedy = "give --output_dir of the run to resume"});
  }
  if (fs::exists(path_) && !fs::is_directory(path_)) {
    throw ConfigError(fmt::format("--output_dir {}: is not a folder", path_), {.remedy = "name another folder"});
  }
  if (resume.empty() && holds_run(path_)) {
    throw ConfigError(fmt::format("output folder {} holds a run", path_),
                      {.remedy = "continue it with --resume auto, or name another --output_dir"});
  }
}

std::string OutputFolder::checkpoint_path(std::int64_t step) const {
  return fmt::format("{}/step-{}", checkpoints(), step);
}

void OutputFolder::resume_from(const std::string& checkpoint, Trainer& trainer, std::ostream& out) {
  const auto manifest = load_checkpoint(trainer, checkpoint);
  cursor_ = {manifest.epoch, manifest.position, manifest.samples_seen};
  for (const char* file : {"/metrics.jsonl", "/eval.jsonl"}) drop_lines_after_step(path_ + file, manifest.step);
  out << fmt::format("resumed from {} at step {}\n", checkpoint, manifest.step);
}

void OutputFolder::prepare(Trainer& trainer, const std::string& resolved_config, std::ostream& out) {
  std::error_code error;
  fs::create_directories(path_, error);
  if (error) {
    throw DataError(fmt::format("output folder {} cannot be made: {}", path_, error.message()),
                    {.remedy = "name another --output_dir"});
  }
  lock_ = std::make_unique<FolderLock>(path_);
  if (resume_ == "auto") {
    std::vector<std::string> refused;
    const auto found = newest_valid_checkpoint(checkpoints(), refused);
    for (const auto& reason : refused) out << fmt::format("not resumed from {}\n", reason);
    if (found) {
      resume_from(found->path, trainer, out);
    } else {
      out << fmt::format("{} holds no valid checkpoint: starting at step 0\n", path_);
    }
  } else if (!resume_.empty()) {
    resume_from(resume_, trainer, out);
  }
  write_file_atomically(path_ + "/config.json", resolved_config);
}

RunLog OutputFolder::open_log(const RunConfig& config, std::int64_t first_step, bool color, std::ostream& out) {
  const auto lines = [](const std::string& path) {
    auto file = std::make_shared<LineFile>(path);
    return [file](const std::string& line) { file->append(line); };
  };
  ProgressOptions progress;
  progress.total_steps = config.steps;
  progress.first_step = first_step;
  progress.rate = config.data.kind == "tokens" ? ProgressRate::tokens : ProgressRate::samples;
  progress.color = color;
  progress.terminal_width = terminal_width_of(STDERR_FILENO);
  return RunLog({metrics_sink(lines(path_ + "/metrics.jsonl")), eval_sink(lines(path_ + "/eval.jsonl")),
                 tensorboard_sink(path_ + "/tensorboard"), progress_sink(std::make_shared<Progress>(out, progress))});
}

}  // namespace orthant
