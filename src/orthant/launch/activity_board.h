// What every local rank did last, readable when the rank hangs or is dead: a table in shared memory with one slot per
// rank. The launcher owns the ActivityBoard and reads it; a rank writes its own slot through Activity, by the inherited
// mapping when it was forked and by the inherited descriptor in ORTHANT_ACTIVITY=FD:SLOT when it was executed. Nothing
// is left when the last process that holds the memory ends. See Note [Versions of an action] in the source.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "orthant/base/timeouts.h"
#include "orthant/launch/sockets.h"

namespace orthant::launch {

struct ActivitySlot;

inline constexpr const char* kActivityVariable = "ORTHANT_ACTIVITY";
inline constexpr size_t kMostActivityBytes = 256;

// When something is done, beside the text of what: a number that becomes text only when somebody reads it.
struct ActivityMoment {
  enum class Kind : uint32_t { any, step, evaluation };
  Kind kind = Kind::any;
  int64_t step = 0;  // this one ("step 5, "), or the last before the evaluation ("evaluation after step 5, ")
};

class ActivityBoard {
 public:
  enum class For { kForkedRanks, kPrograms };  // programs need a descriptor that survives exec

  // What a slot said last and how long ago, its phase, and the memory it held. Empty text: nothing yet.
  struct Entry {
    std::string text;
    double age_seconds = 0;
    JobPhase phase = JobPhase::start;
    int64_t held_bytes = 0;  // of its tensors
  };

  // ConfigError when the system gives no memory or descriptor.
  ActivityBoard(int num_slots, For users);
  ActivityBoard(const ActivityBoard&) = delete;
  ActivityBoard& operator=(const ActivityBoard&) = delete;

  // All slots in order, each a complete text that was said at some moment. Never waits for a writer. Local.
  std::vector<Entry> entries() const;

  // The folder that a rank has told of; empty: none has.
  std::string run_folder() const;

  // In a forked child, before it has threads: its process speaks through this slot from now on.
  void take_slot(int slot) const;

  // The value of ORTHANT_ACTIVITY for the program in this slot. Only with For::kPrograms.
  std::string variable(int slot) const;

 private:
  friend class Activity;
  int num_slots_;
  Fd fd_;  // not close-on-exec; empty for forked ranks
  std::shared_ptr<ActivitySlot> slots_;
};

// The writing side. Without a launcher of ours it is plain memory that nobody else reads, so speaking is always
// possible.
class Activity {
 public:
  Activity();
  Activity(const ActivityBoard& board, int slot);
  // By the value of ORTHANT_ACTIVITY, whose descriptor is closed once mapped, so that processes started by this one do
  // not speak for it. Plain memory when it names no board.
  explicit Activity(const char* variable);
  Activity(const Activity&) = delete;
  Activity& operator=(const Activity&) = delete;

  // The one of the calling thread inside an ActivityScope, else the one of this process.
  static Activity& of_process();

  // Replaces the last action; the first 256 bytes are kept, the moment's text included. A tenth of a microsecond, no
  // lock and no allocation: texts of actions that come again every step are made once. When two threads speak at once,
  // one of them is not heard. The launcher judges silent ranks by these words, see silence.h.
  void say(std::string_view text) noexcept { say({}, text); }
  void say(ActivityMoment moment, std::string_view text) noexcept;

  // What the job does from now on, as far as this rank goes: the launcher's patience depends on it. Local.
  void enter(JobPhase phase) noexcept;
  JobPhase phase() const noexcept;

  // How much memory the rank's tensors hold now, for whoever counts them to write: it stays readable when the rank is
  // killed. And that of buffers which are not counted there.
  std::atomic<int64_t>& tensor_bytes() noexcept;
  void hold_besides(int64_t bytes) noexcept;

  // Where this rank's run keeps its files: the launcher leaves its verdict there. Paths beyond 1,000 bytes are not
  // told. Local.
  void keep_run_in(std::string_view folder) noexcept;

  // What was said last, with its moment, control characters as blanks.
  std::string last() const;

 private:
  friend class ActivityBoard;
  std::shared_ptr<ActivitySlot> slot_;
  std::atomic<bool> speaking_ = false;
};

// While it lives, the thread that made it speaks into an Activity of its own: for ranks that are threads of one
// process. Scopes of a thread end in reverse order.
class ActivityScope {
 public:
  ActivityScope();
  ~ActivityScope();
  ActivityScope(const ActivityScope&) = delete;
  ActivityScope& operator=(const ActivityScope&) = delete;

  const Activity& activity() const { return own_; }

 private:
  Activity own_;
  Activity* outer_;
};

}  // namespace orthant::launch
