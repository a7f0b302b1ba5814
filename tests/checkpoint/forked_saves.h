// Saves of a small model by ranks that are processes, so that one of them can die in the middle, and what must be on
// disk then. A checkpoint's mark is in all its values and in its manifest: a mix of two would be seen.
#pragma once

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <fcntl.h>

#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/file_faults.h"
#include "launch/shared_memory.h"
#include "orthant/base/error.h"
#include "orthant/checkpoint/checkpoint.h"
#include "orthant/checkpoint/rank_file.h"
#include "orthant/checkpoint/saver.h"
#include "orthant/comm/store.h"
#include "orthant/files/whole_file.h"
#include "orthant/launch/local_ranks.h"
#include "orthant/train/trainer.h"
#include "train/training_ranks.h"

namespace orthant::test {

// Whether long campaigns run in full: ORTHANT_EXHAUSTIVE=1.
inline bool exhaustive() {
  const char* const value = std::getenv("ORTHANT_EXHAUSTIVE");
  return value != nullptr && std::string(value) == "1";
}

// In memory where the machine has that: the campaigns make many files. Goes away with the object.
struct QuickFolder {
  explicit QuickFolder(const std::string& name) {
    const std::filesystem::path memory = "/dev/shm";
    const auto parent = std::filesystem::is_directory(memory) ? memory : std::filesystem::path(testing::TempDir());
    path = parent / (name + "-" + std::to_string(getpid()));
    std::filesystem::remove_all(path);
    std::filesystem::create_directories(path);
  }
  ~QuickFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  QuickFolder(const QuickFolder&) = delete;
  QuickFolder& operator=(const QuickFolder&) = delete;

  std::filesystem::path path;
};

// Of one rank, and of four that write a file each.
inline RunConfig saved_model(bool four_ranks) {
  return small_config(
      ORTHANT_SOURCE_DIR "/configs/llama_tiny.json",
      {"model.num_hidden_layers=2", "model.hidden_size=16", "model.intermediate_size=16", "model.num_attention_heads=2",
       "model.num_key_value_heads=1", "model.vocab_size=19", "data.sequence_length=4", "data.samples=16",
       "train.global_batch_size=4", four_ranks ? "mesh.pp=2" : "mesh.pp=1"},
      four_ranks ? MeshCase{"fsdp=2", 3} : MeshCase{"dp=1"});
}

// Gives every value of the trainer the mark: parameters and optimizer state.
inline void set_mark(Trainer& trainer, std::int64_t step, int mark) {
  const at::NoGradGuard no_gradients;
  for (const auto& flat : saved_flats(trainer.checkpointed())) {
    flat.owned.change([&](const at::Tensor& values) {
      if (flat.prefix.empty()) {
        values.add_(mark);
      } else {
        values.copy_(flat.parameters->master().values() * static_cast<double>(flat.prefix.size()) + mark);
      }
    });
  }
  trainer.set_steps_done(step);
  trainer.optimizer().set_num_updates(step);
}

// Bits of the optimizer's parameters and states; padding does not count.
inline bool same_values(const Trainer& a, const Trainer& b) {
  const auto ours = saved_flats(a.checkpointed());
  const auto theirs = saved_flats(b.checkpointed());
  if (ours.size() != theirs.size()) return false;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    const auto owned = ours[i].parameters->owned();
    for (const auto& piece : pieces_of(ours[i].parameters->layout(), owned)) {
      const auto of = [&](const SavedFlat& flat) {
        return flat.owned.narrow(piece.local_offset - owned.begin, piece.elements()).values().view(at::kByte);
      };
      if (!at::equal(of(ours[i]), of(theirs[i]))) return false;
    }
  }
  return true;
}

inline SavedBeside beside_of(int mark) {
  SavedBeside beside;
  beside.cursor.samples_seen = mark;
  beside.files["data.json"] = "{\"mark\": " + std::to_string(mark) + "}\n";
  return beside;
}

inline constexpr std::int64_t kNewStep = 3;
inline constexpr int kOldMark = 1;
inline constexpr int kNewMark = 2;
inline constexpr KeepRules kKept = {.last = 2};

// What one rank tells of a save.
struct RankReport {
  std::array<char, 2048> error{};   // what all ranks threw; empty: saved
  std::array<char, 16384> found{};  // what rank 0 found wrong afterwards
  std::int64_t num_calls = 0;
  std::array<char, 4096> is_write{};
  std::array<char, 4096> changes{};

  void tell_calls() {
    const auto calls = watched_calls();
    num_calls = static_cast<std::int64_t>(calls.size());
    for (std::size_t i = 0; i < calls.size() && i < is_write.size(); ++i) {
      is_write[i] = static_cast<char>(calls[i].name == "write");
      changes[i] = static_cast<char>(calls[i].for_writing);
    }
  }
};

template <std::size_t size>
void put_text(std::array<char, size>& place, const std::string& text) {
  std::strncpy(place.data(), text.c_str(), size - 1);
}

inline constexpr int kMostRanks = 4;
struct SaveReports {
  std::array<RankReport, kMostRanks> ranks{};
  std::atomic<std::int64_t> room{0};
};

// Names of what is in a folder.
inline std::set<std::string> names_in(const std::filesystem::path& folder) {
  std::set<std::string> names;
  for (const auto& item : std::filesystem::directory_iterator(folder)) names.insert(item.path().filename());
  return names;
}

// Every file below a folder with its contents.
inline std::map<std::string, std::string> contents_of(const std::filesystem::path& folder) {
  std::map<std::string, std::string> found;
  for (const auto& item : std::filesystem::recursive_directory_iterator(folder)) {
    const auto name = item.path().lexically_relative(folder).string();
    found[name] = item.is_regular_file() ? read_file(item.path()) : "folder";
  }
  return found;
}

// One mesh, synchronous or not, and what was in the folder before the save of step 3: step-1 and step-2, and also an
// older step-3 when it replaces one.
class ForkedSaves {
 public:
  using Body = std::function<int(int rank, Trainer& trainer, CheckpointSaver& saver, RankReport& report)>;

  ForkedSaves(bool four_ranks, bool asynchronous, bool replaces)
      : scratch_("orthant-forked-saves"),
        config_(saved_model(four_ranks)),
        asynchronous_(asynchronous),
        replaces_(replaces) {
    at::set_num_threads(1);
    // The store asks for the name of every peer's address; a name server that does not answer is waited for.
    ::setenv("RES_OPTIONS", "timeout:1 attempts:1", /*overwrite=*/0);
    const auto one = saved_model(false);
    reader_ = make_trainer(one);
    for (int mark = 0; mark <= kNewMark; ++mark) marked_.push_back(make_trainer(one));
    for (int mark = 0; mark <= kNewMark; ++mark) set_mark(*marked_[static_cast<std::size_t>(mark)], 0, mark);
    save_marked(1, 0, before());
    save_marked(2, kOldMark, before());
    if (replaces) save_marked(kNewStep, kOldMark, before());
  }

  int num_ranks() const { return config_.mesh.world_size(); }
  std::filesystem::path before() const { return scratch_.path / "before"; }
  std::filesystem::path folder() const { return scratch_.path / "checkpoints"; }
  std::string new_path() const { return (folder() / ("step-" + std::to_string(kNewStep))).string(); }
  RankReport& report(int rank) { return reports_->ranks.at(static_cast<std::size_t>(rank)); }
  std::atomic<std::int64_t>& room() { return reports_->room; }

  // In folder(), which is put back as it was before. Every rank has a trainer with the new mark.
  launch::Outcome run(const Body& body) {
    std::filesystem::remove_all(folder());
    std::filesystem::copy(before(), folder(), std::filesystem::copy_options::recursive);
    for (auto& report : reports_->ranks) report = {};
    launch::LocalOptions local;
    local.num_ranks = num_ranks();
    local.stdout_fd = local.stderr_fd = nowhere_;
    return launch::run_forked(local, [&](const launch::Job& job) { return on_rank(job, body); });
  }

  // Empty when every checkpoint in folder() loads with the values of one mark, and the newest is the old or the new.
  // A file system that cannot exchange two names has an instant `without` the one that is replaced.
  std::string wrong(bool without = false) {
    const auto found = list_checkpoints(folder().string());
    if (found.empty() || found.front().step < (replaces_ && !without ? kNewStep : 2)) return "the old one is gone";
    for (const auto& checkpoint : found) {
      try {
        const auto loaded = load_checkpoint(*reader_, checkpoint.path).manifest;
        const auto mark = static_cast<int>(loaded.samples_seen);
        const bool known = checkpoint.step == 1 ? mark == 0 : mark == kOldMark || mark == kNewMark;
        if (!known || (checkpoint.step == 2 && mark != kOldMark)) return checkpoint.path + ": another one's place";
        if (loaded.step != checkpoint.step || reader_->steps_done() != checkpoint.step)
          return checkpoint.path + ": step";
        if (!same_values(*reader_, *marked_[static_cast<std::size_t>(mark)])) return checkpoint.path + ": a mix";
      } catch (const Error& error) {
        return error.what();
      }
    }
    return "";
  }

  // Of a job that begins again: the same step is saved, and what was torn goes. Empty when all is well.
  std::string wrong_after_next_save() {
    try {
      save_marked(kNewStep, kNewMark, folder());
      prune_checkpoints(folder().string(), kKept);
    } catch (const Error& error) {
      return std::string("the next save: ") + error.what();
    }
    if (names_in(folder()) != std::set<std::string>{"step-2", "step-3"}) {
      std::string text = "left behind:";
      for (const auto& name : names_in(folder())) text += " " + name;
      return text;
    }
    if (verify_checkpoint(new_path()).samples_seen != kNewMark) return "the next save is not there";
    return wrong();
  }

 private:
  void save_marked(std::int64_t step, int mark, const std::filesystem::path& parent) {
    auto& trainer = *marked_[static_cast<std::size_t>(mark)];
    trainer.set_steps_done(step);
    CheckpointSaver saver(trainer, /*asynchronous=*/false);
    saver.begin((parent / ("step-" + std::to_string(step))).string(), beside_of(mark));
    if (const auto outcome = saver.finish(); outcome->failed) std::rethrow_exception(outcome->failed);
  }

  int on_rank(const launch::Job& job, const Body& body) {
    auto& own = report(job.rank);
    try {
      auto config = config_;
      if (num_ranks() > 1) {
        comm::quiet_backend_log();
        comm::CommOptions options;
        options.backend = comm::BackendKind::shm;
        options.timeout_seconds = 20;
        const auto groups = trainer_groups(run_spec(config), config.mesh, config.trainer);
        config.trainer.communicator = std::make_shared<comm::Communicator>(
            config.mesh, job.rank, comm::connect(job, options.timeout_seconds), options, groups.axes, groups.subsets);
      }
      const auto trainer = make_trainer(config);
      set_mark(*trainer, kNewStep, kNewMark);
      CheckpointSaver saver(*trainer, asynchronous_);
      return body(job.rank, *trainer, saver, own);
    } catch (const Error& error) {
      put_text(own.found, std::string("thrown: ") + error.what());
      return error.exit_code();
    }
  }

  QuickFolder scratch_;
  RunConfig config_;
  bool asynchronous_;
  bool replaces_;
  int nowhere_ = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  std::unique_ptr<Trainer> reader_;
  std::vector<std::unique_ptr<Trainer>> marked_;  // by mark; one rank
  launch::SharedMemory<SaveReports> reports_;
};

}  // namespace orthant::test
