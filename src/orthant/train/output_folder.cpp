#include "orthant/train/output_folder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "orthant/base/error.h"
#include "orthant/checkpoint/pointers.h"
#include "orthant/checkpoint/retention.h"
#include "orthant/files/beneath.h"
#include "orthant/files/event_file.h"
#include "orthant/files/metrics_file.h"
#include "orthant/files/name_suffixes.h"
#include "orthant/files/partial.h"
#include "orthant/files/path_facts.h"
#include "orthant/files/whole_file.h"
#include "orthant/train/file_data.h"
#include "orthant/train/progress.h"
#include "orthant/train/same_run.h"
#include "orthant/train/sample_log.h"

namespace orthant {
namespace {

namespace fs = std::filesystem;

constexpr int kMostRuns = 100000;

constexpr const char* kUnsavedMark = ".unsaved";
constexpr const char* kMetricsFile = "metrics.jsonl";
constexpr const char* kEvaluationsFile = "eval.jsonl";
constexpr const char* kProductPlansFile = "product_plans.json";

std::string first_free(const std::string& name) {
  for (int n = 1; n < kMostRuns; ++n) {
    auto path = fmt::format("runs/{}-{}", name, n);
    if (!is_taken(path)) return path;
  }
  throw ConfigError(fmt::format("runs/{}-1 to -{} exist", name, kMostRuns), {.remedy = "use --output-dir"});
}

// What a run writes by name. The links of somebody else must not lead it elsewhere.
const std::vector<FolderEntry> kEntries = {
    {".lock"},          {kUnsavedMark},       {"config.json"},       {kMetricsFile},        {kEvaluationsFile},
    {kDataFile},        {kPreprocessingFile}, {"log", true},         {"flight", true},      {"profile.json"},
    {"result.json"},    {"trace.json"},       {"checkpoints", true}, {"tensorboard", true}, {"tokenizers", true},
    {kProductPlansFile}};

// The nearest folder above that exists must take a new one.
void check_writable(const fs::path& path) {
  auto place = fs::absolute(path).lexically_normal();
  while (!is_there(place) && place.has_relative_path()) place = place.parent_path();
  if (::access(place.c_str(), W_OK | X_OK) == 0) return;
  const auto error_number = errno;
  throw IoError(fmt::format("output folder {} cannot be written: {}: {}", path.string(), place.string(),
                            std::generic_category().message(error_number)),
                error_number, {.remedy = "check its permissions, or name another --output-dir"});
}

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Of a line that a run wrote; 0 without one.
std::int64_t step_in(const std::string& line) {
  const auto value = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  const auto step = value.is_object() ? value.value("step", nlohmann::json()) : nlohmann::json();
  return step.is_number_integer() ? step.get<std::int64_t>() : 0;
}

RunLogSink fenced(RunLogSink sink, const WriteFence& fence) {
  sink.step = [write = std::move(sink.step), fence](const StepMetrics& metrics) {
    fence.check();
    write(metrics);
  };
  sink.eval = [write = std::move(sink.eval), fence](std::int64_t step, const EvalMetrics& metrics) {
    fence.check();
    write(step, metrics);
  };
  sink.finish = [write = std::move(sink.finish), fence] {
    fence.check();
    write();
  };
  return sink;
}

RunLogSink tensorboard_sink(const std::string& folder) {
  std::array<char, 256> host = {};
  gethostname(host.data(), host.size() - 1);
  make_folder_beneath(folder, "tensorboard");
  auto file = std::make_shared<EventFile>(folder + "/tensorboard", host.data(), getpid(), wall_seconds());
  return scalar_sink(
      [file](const std::string& tag, std::int64_t step, double value) {
        const std::pair<std::string_view, double> scalar(tag, value);
        file->add_scalars(step, wall_seconds(), {&scalar, 1});
      },
      [file] { file->flush(); });
}

}  // namespace

OutputFolder::OutputFolder(const std::string& wanted, const std::string& run_name, FolderUse use)
    : path_(wanted.empty() ? first_free(run_name) : wanted),
      unclaimed_(wanted.empty() ? run_name : ""),
      use_(std::move(use)) {
  if (wanted.empty() && use_.resume == "auto") {
    throw ConfigError("--resume auto without a folder to look in",
                      {.remedy = "give --output-dir of the run to resume"});
  }
  use_.patience.retry([&] {
    if (!resumed_from().empty()) use_.resume = pointed_checkpoint(use_.resume);
    if (is_there(path_) && !is_folder(path_)) {
      throw ConfigError(fmt::format("--output-dir {}: is not a folder", path_), {.remedy = "name another folder"});
    }
    check_entries();
    if (use_.restarted) restore_checkpoints(checkpoints());
    look();
    if (use_.restarted && !found_.empty()) use_.resume = "auto";
    if (!use_.resume.empty() && use_.resume != "auto") read_manifest(use_.resume);  // throws when it is no checkpoint
    check_free();
    check_not_lost();
    check_writable(path_);
  });
}

// A number that was free is only ours once mkdir says so: another start may have looked at the same moment.
void OutputFolder::claim() {
  const auto refuse = [&](int error_number) {
    throw IoError(
        fmt::format("output folder {} cannot be made: {}", path_, std::generic_category().message(error_number)),
        error_number, {.remedy = "name another --output-dir"});
  };
  std::error_code error;
  fs::create_directories(unclaimed_.empty() ? fs::path(path_) : fs::path(path_).parent_path(), error);
  if (error) refuse(error.value());
  constexpr mode_t kMode = 0777;
  while (!unclaimed_.empty()) {
    if (::mkdir(path_.c_str(), kMode) == 0) {
      unclaimed_.clear();
    } else if (errno != EEXIST) {
      refuse(errno);
    } else {
      path_ = first_free(unclaimed_);
    }
  }
}

void OutputFolder::check_not_in_use() const {
  if (is_folder(path_)) FolderLock::check_free(path_, use_.writer);
}

void OutputFolder::look() {
  found_ = list_checkpoints(checkpoints());
}

// A checkpoint is continued in its own run's folder, or in one that holds no run.
void OutputFolder::check_free() const {
  const bool has_steps = holds_lines(path_, kMetricsFile);
  const bool holds_run = !found_.empty() || is_there(path_ + "/config.json") || has_steps;
  if (!holds_run || use_.resume == "auto" || use_.restarted) return;
  if (!use_.resume.empty()) {
    const auto inside = real_path(use_.resume).parent_path();
    if (inside == real_path(checkpoints())) return;
    throw ConfigError(fmt::format("output folder {} holds another run than the checkpoint {}", path_, use_.resume),
                      {.remedy = "name another --output-dir, or a checkpoint of that run"});
  }
  const bool none_saved = found_.empty() && has_steps;
  throw ConfigError(fmt::format("output folder {} holds a run{}", path_, none_saved ? " without a checkpoint" : ""),
                    {.remedy = fmt::format("{}, or name another --output-dir",
                                           none_saved ? "begin it again at step 0 with --resume auto --from-scratch"
                                                      : "continue it with --resume auto")});
}

// A run that has made steps has checkpoints, unless it died before its first save: only the job itself knows that.
void OutputFolder::check_not_lost() const {
  if (resumes() || (use_.resume.empty() && !use_.restarted)) return;
  if (use_.from_scratch && !use_.restarted) return;  // a job begins anew once
  if (!holds_lines(path_, kMetricsFile)) return;
  const bool none_saved = is_there(path_ + "/" + kUnsavedMark);
  if (use_.restarted && none_saved) return;
  throw DataError(fmt::format("{}: holds no checkpoint, but {}/metrics.jsonl tells of steps{}", checkpoints(), path_,
                              none_saved ? ": the run ended before its first save" : ""),
                  {.remedy = fmt::format(
                       "{}begin at step 0 with --resume auto --from-scratch; what is there is kept as .superseded "
                       "until the next save",
                       none_saved ? "" : "bring the checkpoints back, or ")});
}

std::string OutputFolder::checkpoint_path(std::int64_t step) const {
  return fmt::format("{}/step-{}", checkpoints(), step);
}

void OutputFolder::open() {
  use_.patience.retry([&] {
    claim();
    check_entries();
    lock_ = std::make_unique<FolderLock>(path_, use_.writer);
  });
  fence_ = WriteFence(path_, use_.writer);
  if (lock_->follows_earlier_attempt()) use_.patience.retry([&] { shut_out_earlier_attempts(); });
  const bool resumed = resumes();
  use_.patience.retry([&] {
    restore_checkpoints(checkpoints());
    look();
    check_free();
    if (!resumed || resumes()) return check_not_lost();
    throw DataError(fmt::format("{}: its checkpoints went away while the run was started", checkpoints()),
                    {.remedy = "bring them back and start again"});
  });
}

// A process of an earlier attempt may be stopped between asking the fence and writing. Then what it appends to is no
// longer the file, and what it gives its name has gone.
void OutputFolder::shut_out_earlier_attempts() const {
  for (const auto& file : line_files()) replace_lines(path_, file);
  for (const auto& name : names_in_folder(checkpoints())) {
    if (name.find(kPartialMark) != std::string::npos) remove_checkpoint(checkpoints() + "/" + name);
  }
}

std::vector<std::string> OutputFolder::checkpoints_to_resume() const {
  if (use_.resume != "auto") {
    return use_.resume.empty() ? std::vector<std::string>{} : std::vector<std::string>{use_.resume};
  }
  std::vector<std::string> paths;
  for (const auto& checkpoint : found_) paths.push_back(checkpoint.path);
  return paths;
}

void OutputFolder::check_same_run(const std::string& checkpoint, const std::string& resolved_config,
                                  const SavedFiles& files) const {
  use_.patience.retry([&] { compare_with_run(checkpoint, resolved_config, files); });
}

std::vector<std::string> OutputFolder::line_files() const {
  std::vector<std::string> files = {kMetricsFile, kEvaluationsFile};
  for (auto& file : sample_logs(path_)) files.push_back(std::move(file));
  return files;
}

std::vector<std::string> OutputFolder::last_lines() const {
  std::vector<std::string> lines;
  for (const auto& file : line_files()) lines.push_back(last_line(path_, file));
  return lines;
}

// Lines are copied first: what cannot be read or written shows before anything has lost its name. Then checkpoints,
// then lines: until the lines are gone, too, a run that begins again finds lines to set aside, and none missing.
std::vector<std::string> OutputFolder::supersede_after(std::int64_t step) const {
  fence_.check();
  std::vector<std::string> aside;
  std::optional<std::vector<std::string>> ends;  // of the lines before anything was cut
  try {
    use_.patience.retry([&] {
      for (const auto& file : line_files()) set_aside_lines_after_step(path_, file, step);
      supersede_checkpoints_after(checkpoints(), step, aside);
      if (!ends) ends = last_lines();
      try {
        for (const auto& file : line_files()) cut_lines_after_step(path_, file, step);
      } catch (const DataError&) {
        // There is a way back only while no line is gone: a checkpoint has the lines of all steps before it.
        if (last_lines() == ends) restore_superseded(aside);
        throw;
      }
    });
  } catch (const IoError& error) {
    if (aside.empty()) throw;
    throw IoError(fmt::format("{}; set aside by then: {}", error.message(), fmt::join(aside, ", ")),
                  error.error_number(), {.remedy = error.remedy()});
  }
  if (!aside.empty()) repoint();
  std::vector<std::string> notes;
  for (const auto& path : aside) {
    notes.push_back(fmt::format("{} stays until the next save: this run takes another way from here", path));
  }
  return notes;
}

// Checkpoints have lost their names: pointers name what is left. Nobody goes by them, and the next save mends them.
void OutputFolder::repoint() const {
  try {
    const bool evaluates = is_there(fs::path(checkpoints()) / kBestPointer);
    write_pointers(checkpoints(), {.last = std::numeric_limits<std::int64_t>::max()}, evaluates);
  } catch (const DataError&) {
  }
}

void OutputFolder::begin_unsaved() const {
  fence_.check();
  use_.patience.retry([&] { write_file_atomically(path_ + "/" + kUnsavedMark, ""); });
}

void OutputFolder::none_unsaved() const {
  fence_.check();
  use_.patience.retry([&] { remove_file(path_ + "/" + kUnsavedMark); });
}

void OutputFolder::check_entries() const {
  check_run_entries(path_, kEntries);
}

void OutputFolder::after_save(const KeepRules& keep, bool evaluates) const {
  fence_.check();
  check_entries();
  remove_file(path_ + "/" + kUnsavedMark);
  bool pointed = false;
  try {
    write_pointers(checkpoints(), keep, evaluates);
    pointed = true;
  } catch (const IoError&) {
    // A full disk has room for them once what is not kept is gone.
  }
  prune_checkpoints(checkpoints(), keep);
  if (!pointed) write_pointers(checkpoints(), keep, evaluates);
  for (const auto& file : line_files()) remove_file(fmt::format("{}/{}{}", path_, file, kSupersededSuffix));
  for (const auto& folder : {path_, path_ + "/log"}) {
    if (!is_there(folder)) continue;
    for (const auto& left : stale_partials(folder)) {
      if (orthant::is_regular_file(left)) remove_file(left);  // a run makes no folders there
    }
  }
}

void OutputFolder::flush_lines() const {
  for (const auto& file : lines_) {
    try {
      use_.patience.retry([&] { file->flush(); });
    } catch (const DataError&) {
      // Whoever appended it has told that it waits.
    }
  }
}

void OutputFolder::sync_lines() const {
  for (const auto& file : lines_) file->sync();
}

void OutputFolder::write(const std::string& resolved_config, const SavedFiles& files) const {
  fence_.check();
  use_.patience.retry([&] {
    write_file_atomically(path_ + "/config.json", resolved_config);
    for (const auto& [name, text] : files) write_file_atomically(fs::path(path_) / name, text);
  });
}

std::string OutputFolder::product_plans() const {
  return use_.patience.retry([&]() -> std::string {
    std::vector<fs::path> folders = {path_};
    if (!resumed_from().empty()) folders.push_back(real_path(resumed_from()).parent_path().parent_path());
    for (const auto& folder : folders) {
      if (is_there(folder / kProductPlansFile)) {
        return read_text_file(folder / kProductPlansFile, JsonOptions().max_bytes);
      }
    }
    return {};
  });
}

void OutputFolder::write_product_plans(const std::string& text) const {
  fence_.check();
  use_.patience.retry([&] { write_file_atomically(fs::path(path_) / kProductPlansFile, text); });
}

void OutputFolder::write_mesh_change(std::int64_t step, const std::string& before, const std::string& after,
                                     std::optional<double> predicted_step_seconds) const {
  nlohmann::ordered_json line = {{"after_step", step}, {"mesh_before", before}, {"mesh_after", after}};
  if (predicted_step_seconds) line["predicted_step_seconds"] = *predicted_step_seconds;
  use_.patience.retry([&] { LineFile(path_, kMetricsFile, fence_).append(line.dump()); });
}

RunLog OutputFolder::open_log(const RunConfig& config, std::int64_t first_step, bool color, std::ostream& out) {
  const auto line_file = [&](const char* name) {
    return use_.patience.retry([&] { return std::make_shared<LineFile>(path_, name, fence_); });
  };
  const auto metrics = line_file(kMetricsFile);
  const auto evaluations = line_file(kEvaluationsFile);
  lines_ = {metrics, evaluations};
  const auto write = [](const std::shared_ptr<LineFile>& file) {
    return [file](const std::string& line) { file->append(line); };
  };
  // A run that goes on at the step it ended with evaluates it again, and has said so before.
  const auto last = use_.patience.retry([&] { return step_in(last_line(path_, kEvaluationsFile)); });
  const auto write_new = [evaluations, last](const std::string& line) {
    if (step_in(line) > last) evaluations->append(line);
  };
  const auto flush = [](const std::shared_ptr<LineFile>& file) { return [file] { file->flush(); }; };
  ProgressOptions progress;
  progress.total_steps = config.steps;
  progress.first_step = first_step;
  const auto per_epoch = steps_per_epoch(config);
  if (per_epoch > 1 && per_epoch <= config.steps) progress.steps_per_epoch = per_epoch;
  progress.rate =
      config.data.kind == "tokens" || config.data.kind == "text" ? ProgressRate::tokens : ProgressRate::samples;
  progress.color = color;
  progress.terminal_width = terminal_width_of(STDERR_FILENO);
  return RunLog({metrics_sink(write(metrics), flush(metrics)), eval_sink(write_new, flush(evaluations)),
                 fenced(tensorboard_sink(path_), fence_), progress_sink(std::make_shared<Progress>(out, progress))});
}

}  // namespace orthant
