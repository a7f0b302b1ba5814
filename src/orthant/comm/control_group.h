// What the ranks of a training tell one another besides the model's tensors: texts, decisions, and whether all of them
// came through. Refusals, and decisions between steps, are taken here, so that no rank waits for one that has gone
// another way; what ranks decide within a step (to stop, to go on with a save) travels with its loss, see RankReport.
// One rank has no communicator: every call then answers from what it is given.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "orthant/base/error.h"
#include "orthant/base/timeouts.h"
#include "orthant/comm/communicator.h"

namespace orthant {

class ControlGroup {
 public:
  ControlGroup() = default;  // one rank
  // The ranks of a communicator; null: one rank. What they tell one another stays on the hosts.
  explicit ControlGroup(std::shared_ptr<const comm::Communicator> communicator)
      : communicator_(std::move(communicator)) {}

  int rank() const { return communicator_ ? communicator_->rank() : 0; }
  int size() const { return communicator_ ? communicator_->mesh().world_size() : 1; }
  bool is_first() const { return rank() == 0; }
  bool alone() const { return size() == 1; }
  // All ranks, for messages between CPU tensors. Not on one rank. Local.
  comm::Group world() const { return communicator_->world(); }

  // Rank 0's text. Collective over the world.
  std::string from_first(const std::string& text) const;

  // Every rank's values, by rank: CPU tensors of one dim and one dtype, of any length. Collective over the world.
  std::vector<at::Tensor> gather(const at::Tensor& values) const;
  std::vector<std::string> gather_texts(const std::string& text) const;

  // Calls and payload bytes of all ranks so far, by groups' names; nothing where no group was called. Collective over
  // the world.
  std::map<std::string, comm::Counters> counters() const;

  // Whether it is so on some rank. Collective over the world.
  bool any(bool here) const;

  // Runs `act`, which must not communicate, and returns when all ranks have. When it throws on some, all ranks throw
  // what the first of them threw, with its rank; a CommError passes at once. What the system refused, memory too, is an
  // IoError then, whoever threw it. Collective over the world.
  void together(const std::function<void()>& act) const;

  // What the job does from now on: how long ranks wait for one another, and the launcher for them, depends on it.
  // Local, but all ranks enter it at the same point.
  void enter(JobPhase phase) const;

  // Of an error that every rank throws by itself: it is said to be rank 0's on the others. Local.
  ErrorDetails alike(std::string remedy) const;

 private:
  std::shared_ptr<const comm::Communicator> communicator_;
};

// While it lives, the job is in this phase; then in the one before.
class PhaseScope {
 public:
  PhaseScope(const ControlGroup& ranks, JobPhase phase);
  ~PhaseScope();
  PhaseScope(const PhaseScope&) = delete;
  PhaseScope& operator=(const PhaseScope&) = delete;

 private:
  const ControlGroup& ranks_;
  JobPhase before_;
};

}  // namespace orthant
