// A handle on some ranks that communicate for one purpose. Copies share the channel. Calls return at once with a Work
// that must be waited for; a group of one returns its input and costs nothing.
#pragma once

#include <memory>
#include <source_location>
#include <string>
#include <vector>

#include "orthant/comm/call.h"

namespace orthant::comm {

struct Cuts;
class GroupState;
class Pending;

// One started call. Movable, not copyable. A Work that is destroyed without wait() is a defect of the program: the
// group's next call, or Communicator::close(), reports where the call was made.
class [[nodiscard]] Work {
 public:
  Work();
  Work(std::shared_ptr<GroupState> group, Call call, std::unique_ptr<Pending> pending);
  Work(Work&& other) noexcept;
  Work& operator=(Work&& other) noexcept;
  ~Work();

  // Blocks until outputs are readable and inputs may be reused. Throws CommError with rank, group, call and timeout.
  void wait();
  // Whether wait() would return at once; a backend that cannot tell says no. Never blocks.
  bool done() const;

 private:
  void drop();

  std::shared_ptr<GroupState> group_;
  Call call_;
  std::unique_ptr<Pending> pending_;
};

class Group {
 public:
  using Site = std::source_location;

  Group() = default;
  explicit Group(std::shared_ptr<GroupState> state) : state_(std::move(state)) {}

  const std::string& name() const;        // "tp", "dp+fsdp", "world"
  const std::vector<int>& ranks() const;  // global ranks, ascending
  int index() const;                      // this rank's place among them
  int size() const { return static_cast<int>(ranks().size()); }
  Purpose purpose() const;
  const Counters& counters() const;

  // In place. `subjects`: what each tensor belongs to, or empty. Collective over the group.
  Work all_reduce(const at::Tensor& tensor, Reduction reduction = Reduction::sum, Subject subject = {},
                  Site site = Site::current());
  Work all_reduce(const std::vector<at::Tensor>& tensors, Reduction reduction = Reduction::sum,
                  std::vector<Subject> subjects = {}, Site site = Site::current());

  // output = the members' inputs one after the other; `counts` holds elements per member when they differ (0 allowed).
  // Collective over the group.
  Work all_gather(const at::Tensor& output, const at::Tensor& input, const std::vector<int64_t>& counts = {},
                  Site site = Site::current());
  Work all_gather(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs,
                  Site site = Site::current());

  // output = this member's part of the reduced inputs. It may be that part of the input itself. Collective over the
  // group.
  Work reduce_scatter(const at::Tensor& output, const at::Tensor& input, const std::vector<int64_t>& counts = {},
                      Reduction reduction = Reduction::sum, Subject subject = {}, Site site = Site::current());
  Work reduce_scatter(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs,
                      Reduction reduction = Reduction::sum, std::vector<Subject> subjects = {},
                      Site site = Site::current());

  // Part i of the input goes to member i; part i of the output comes from member i. Collective over the group.
  Work all_to_all(const at::Tensor& output, const at::Tensor& input, const std::vector<int64_t>& output_counts = {},
                  const std::vector<int64_t>& input_counts = {}, Site site = Site::current());

  // Member `root`'s tensor to all. Collective over the group.
  Work broadcast(const at::Tensor& tensor, int root, Site site = Site::current());

  // Makes messages from `from` to `to` possible, for each pair. NCCL needs it before the first of them, since it
  // connects when both ends ask for it; others connect all members from the start. Collective over the members of the
  // pairs: every member names the same pairs in the same order, those that it has no part in as well.
  void connect(const std::vector<MessagePair>& pairs);

  // A message between two members, matched by tag and by order within a tag. Any number may be under way. The sender
  // must not change the tensor before wait() returns.
  Work send(const at::Tensor& tensor, int peer, int tag = 0, Site site = Site::current());
  Work receive(const at::Tensor& tensor, int peer, int tag = 0, Site site = Site::current());

  // Collective over the group.
  Work barrier(Site site = Site::current());

 private:
  // Whose plays start the calls that were made while a step was recorded.
  friend std::unique_ptr<Pending> cut_at_call(const Cuts& cuts, const Group& group, const Call& call);

  // Starts the call that one of the functions above has put together.
  Work start(Call call);

  std::shared_ptr<GroupState> state_;
};

}  // namespace orthant::comm
