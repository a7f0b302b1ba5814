// Saves checkpoints of a training, at once or in the background. A save has two stages: every rank writes its part;
// rank 0 writes the manifest and gives the folder its name. Then all ranks learn how it ended. See Note [Saves in the
// background].
//
// Note [Saves in the background]: a thread copies what this rank writes, then hashes and writes the copy. Parameters
// and optimizer state change only in an update, so the next step's forward and backward run beside the copy, and
// training waits only where its update comes first (Checkpointed::hold_update). Threads do not talk to other ranks:
// each rank tells with every step whether its thread is busy (RankReport::saving), and when nobody's is, all ranks call
// advance() after the same step (TrainingLoop::settle_pending). So no save needs a communicator of its own, and every
// rank decides alike.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "orthant/checkpoint/checkpoint.h"
#include "orthant/checkpoint/rank_file.h"
#include "orthant/comm/control_group.h"
#include "orthant/files/folder_lock.h"
#include "orthant/files/replacing_folder.h"

namespace orthant {

// How a save ended; alike on all ranks but for what rank 0 alone is told.
struct SaveOutcome {
  std::int64_t step = 0;
  std::exception_ptr failed;                 // an Error with the rank it happened on; null: the checkpoint is there
  std::string before_commit_failed = {};     // what SavedBeside::before_commit threw
  std::string afterwards_failed = {};        // what SavedBeside::afterwards threw
  std::vector<std::string> room_notes = {};  // of SavedBeside::make_room
};

// What became of room for a save.
struct SaveRoom {
  bool enough = false;
  std::string note = {};  // for people, when something went for it
};

// What is saved besides the training's own state.
struct SavedBeside {
  DataCursor cursor;
  SavedFiles files;                      // texts that belong to the model
  std::optional<double> eval_loss = {};  // of this very step
  // In rank 0's thread, before the checkpoint gets its name; should it throw, the save goes on.
  std::function<void()> before_commit = {};
  std::function<void()> afterwards = {};  // once the checkpoint is in its place; in rank 0's thread
  // Makes room for so many bytes before the save, and once more after one that met a full disk or a spent quota, which
  // is tried again then. On rank 0.
  std::function<SaveRoom(std::int64_t bytes, bool quota)> make_room = {};
  std::shared_ptr<const TagKey> key = {};  // that the files are tagged with; null: none. Alike on all ranks
  WriteFence fence = {};                   // before a rank writes its part, and before the checkpoint gets its name
};

// Keeps a reference to the training, which must outlive it. begin(), advance() and finish() are collective over the
// world.
class CheckpointSaver {
 public:
  explicit CheckpointSaver(const Checkpointed& training);  // saves at once
  CheckpointSaver(Checkpointed& training, bool asynchronous);
  // Waits for this rank's thread; a save whose parts were not all written leaves nothing behind.
  ~CheckpointSaver();
  CheckpointSaver(const CheckpointSaver&) = delete;
  CheckpointSaver& operator=(const CheckpointSaver&) = delete;

  // Starts to save into `folder`, whose name rank 0 gives, instead of a checkpoint that is there. Nothing may be under
  // way. When it returns, the training may go on; when it is not asynchronous, finish() must follow before that.
  // Whatever goes wrong is told by the outcome.
  void begin(const std::string& folder, SavedBeside beside);

  // Whether a save has begun whose end is not known. Alike on all ranks.
  bool under_way() const { return stage_ != Stage::none; }

  // Whether a thread of this rank is at work. Local.
  bool busy() const;

  // Goes on to the next stage once no rank is busy; waits where one still is. The outcome when that was the last.
  std::optional<SaveOutcome> advance();

  // Waits until nothing is under way. The outcome of what was.
  std::optional<SaveOutcome> finish();

 private:
  enum class Stage { none, parts, commit };

  bool make_room(bool quota);
  void open_target();
  void refuse(const std::exception_ptr& reason);
  bool try_again(const std::exception_ptr& failed);
  void begin_part(const std::exception_ptr& refused);
  void copy_part(const std::vector<SavedFlat>& flats);
  void start(std::function<void()> work);
  void wait_for_all();
  // What the threads of some ranks ended with, with the first such rank; null when all came through.
  std::exception_ptr failure();
  void write_part();
  void commit(const std::vector<at::Tensor>& written);
  SaveOutcome ended(std::exception_ptr failed);

  const Checkpointed& training_;
  Checkpointed* held_ = nullptr;  // the training that goes on during a save
  ControlGroup ranks_;
  Stage stage_ = Stage::none;
  std::future<void> work_;
  SavedBeside beside_;
  Manifest manifest_;  // rank 0's, without files and tensors
  SaveOutcome outcome_;
  std::filesystem::path place_;              // where parts are written
  std::unique_ptr<ReplacingFolder> target_;  // rank 0's
  std::string folder_;                       // rank 0's: the name that the save is to get
  std::int64_t needed_bytes_ = 0;            // rank 0's: of a whole checkpoint
  bool tried_again_ = false;
  bool can_repeat_ = false;  // this rank's: what it writes is as it was at begin(). Read once no thread is at work
  CheckpointSeal seal_;
  RankFile file_;              // this rank's, the same in every save
  std::promise<void> copied_;  // of the save that began last
  RankCopy copy_;              // of what this rank writes; its memory is kept from save to save
  at::Tensor written_;
};

}  // namespace orthant
