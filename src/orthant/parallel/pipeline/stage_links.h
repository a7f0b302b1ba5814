// Values and gradients on their way between the stages of one replica. The executor calls it in the order of its list;
// what travels on one channel (directed pair of pp coordinates; activations or gradients) is first in, first out.
//
// Note [Receiving early]: the receives of a list are known when it begins, and so are their shapes. The next two of
// every channel are posted at any time, so that what a peer sends travels while this rank computes; two buffers a
// channel bound the memory. On a card the first two runs of a list post a receive only where they wait for it: Note
// [Starting kernels] in comm/nccl.cpp. A send starts at once and never waits for the peer; the tensor is given up as
// soon as the backend says that it is gone, or the peer's answer (a gradient of the value) proves it, at the latest in
// finish() at the end of a step's list, or, in evaluations, which do not wait there, when the list after the next
// begins. Channels must not hold each other up, in either direction; where they would not, Note [Queues of NCCL] in
// schedule/message_queues.h proves that a list comes to its end.
//
// Note [Opaque values]: what a user's module writes has no declared shape. Its message is preceded by a header of
// dtype, sizes and strides; the header also says when there is no gradient at all. All other shapes follow from the
// spec and the microbatch on both sides and are not exchanged.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "orthant/comm/group.h"
#include "orthant/graph/spec.h"
#include "orthant/schedule/actions.h"
#include "orthant/schedule/channel.h"
#include "orthant/schedule/stages.h"

namespace orthant {

// The groups over pp that a rank's links use.
struct LinkGroups {
  comm::Group activations;
  comm::Group gradients;
};

class StageLinks {
 public:
  // Keeps a reference to `graph`; made once per rank. `channels`: those that any list uses, the same on every rank.
  // Collective over pp: the ends of the channels connect.
  StageLinks(const GraphSpec& graph, LinkGroups groups, StageMap map, const std::vector<Channel>& channels,
             at::Device device);
  // Waits for sends that are still under way, unless a list did not come to its end: peers may never answer then.
  ~StageLinks();
  StageLinks(const StageLinks&) = delete;
  StageLinks& operator=(const StageLinks&) = delete;

  // What the value, or its gradient, of an action is like; not asked for opaque ones.
  struct Form {
    std::vector<std::int64_t> sizes;
    at::ScalarType dtype;
  };
  using FormOf = std::function<Form(const Action&)>;

  // A list is about to run: posts its first receives. `form_of` is called until the list ends; `step` is told to
  // people.
  void begin(const std::vector<Action>& actions, FormOf form_of, std::int64_t step = 0);

  // The list ran to its end. What was sent may still be on its way.
  void end() { in_list_ = false; }

  // Starts a send or send_gradient. An undefined tensor is no gradient: it arrives as such for an opaque value, and as
  // zeros for a declared one.
  void send(const Action& action, const at::Tensor& tensor);

  // What a receive or receive_gradient brings; must be the next of its channel. Undefined: there is no gradient.
  // Blocks; CommError "rank 3 stage 1: waiting for activations of microbatch 5 from rank 1: ..." when it does not come.
  at::Tensor receive(const Action& action);

  // Blocks until everything that was sent has left.
  void finish();

  // Tensors that are kept until they have left.
  std::size_t num_unsent() const;

 private:
  struct Sent {
    Message message;
    std::vector<at::Tensor> tensors;
    std::vector<comm::Work> works;
    std::int64_t list = 0;
  };
  struct Posted {
    at::Tensor header;  // of an opaque value
    at::Tensor buffer;
    comm::Work work;  // of the header, or of the buffer
  };
  struct Incoming {
    std::vector<Action> actions;  // in list order
    std::size_t next = 0;         // to be received
    std::size_t to_post = 0;
    std::deque<Posted> posted;
  };

  int own() const { return groups_.activations.index(); }  // the place in a group over pp is the pp coordinate
  int rank_at(int pp) const { return groups_.activations.ranks()[static_cast<std::size_t>(pp)]; }
  at::Tensor sendable(const Action& action, const at::Tensor& tensor) const;
  comm::Group& group_of(const Channel& channel) { return channel.gradients ? groups_.gradients : groups_.activations; }
  bool is_opaque(const Action& action) const { return graph_.values[static_cast<std::size_t>(action.value)].opaque; }
  // Posts until so many receives are posted, where the channel has as many.
  void post(const Channel& channel, Incoming& incoming, std::size_t count);
  // How many receives of a channel this run of the list posts ahead.
  std::size_t num_ahead();
  comm::Work start_receive(const Action& action, const at::Tensor& buffer);
  at::Tensor take_opaque(const Action& action, Posted& posted);
  void wait_for(Sent& sent, const Channel& channel) const;
  void drop_sent();
  void drop_answered(const Action& received);
  int stage_of(const Action& received) const;
  std::string sending_text(const Channel& channel, int microbatch) const;
  // "stage 1: waiting for activations of microbatch 5 from rank 1"
  std::string waiting_text(const Action& action) const;

  const GraphSpec& graph_;
  LinkGroups groups_;
  StageMap map_;
  at::Device device_;
  std::map<Channel, Incoming> incoming_;
  std::map<Channel, std::deque<Sent>> sent_;
  FormOf form_of_;
  std::int64_t step_ = 0;
  std::int64_t list_ = 0;                          // how many have begun
  std::size_t ahead_ = 0;                          // receives that are posted ahead on every channel of this one
  std::map<std::vector<std::int64_t>, int> runs_;  // on a card: of each list and its shapes, up to kColdRuns
  bool in_list_ = false;
};

}  // namespace orthant
