// How lowered lists run where a communicator carries its calls one after the other on a stream of its own, as NCCL
// does, and the proof that they come to their end there.
//
// Note [Queues of NCCL]: a rank's host puts its calls into the queues of their communicators and goes on. A call
// starts when the one before it in its queue has ended and this rank has computed what it had to when the call was
// made. A message ends when both sides have started; nothing else of that queue runs meanwhile, so that a receive whose
// send is behind it in the peer's queue never ends. The messages of a directed pair of one communicator match in their
// order, whatever they are. The parts of one call (a group) start together and the call ends with the last of them. A
// collective ends when all members have started it. A rank computes on one stream, which waits for what it reads.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "orthant/graph/spec.h"
#include "orthant/schedule/actions.h"
#include "orthant/schedule/channel.h"

namespace orthant {

// Which messages between stages share a communicator.
enum class MessageCarrier {
  channel,  // none do: each directed pair has one for activations and one for gradients. What NCCL runs with
  pair,     // all between two pp coordinates, in both directions
  group,    // all of a pipeline
};

struct QueueRules {
  MessageCarrier carrier = MessageCarrier::channel;
  std::size_t posted_ahead = kPostedAhead;  // receives of a channel; 0: posted when they are waited for
  bool joins_calls = false;                 // calls of one communicator with nothing between them are one
  int replicas = 1;                         // ranks at each pp coordinate, which gather and reduce together
};

// A part of a call: a message with another rank, or, with peer -1, a collective over the communicator.
struct QueuedPart {
  int peer = -1;
  bool sends = false;
  int content = -1;  // index into QueuePrograms::contents: what travels, the same number on both sides
};

struct QueuedCall {
  int communicator = -1;
  std::vector<QueuedPart> parts;
};

// What a rank's host does, in order: puts a call into its queue, or lets the computation wait for one. `call` is an
// index into QueueProgram::calls.
struct HostStep {
  enum class Kind { start, await, compute };
  Kind kind = Kind::compute;
  int call = -1;
};

struct QueueProgram {
  std::vector<QueuedCall> calls;  // in the order in which the host starts them
  std::vector<HostStep> steps;
};

struct QueuePrograms {
  std::vector<QueueProgram> ranks;              // of pp coordinate p, replica k: p * replicas + k
  std::vector<std::vector<int>> communicators;  // their members
  std::vector<std::string> contents;            // "hidden.4 m2", "the gradient of hidden.4 of layers.5 m2"
};

// The lists of all pp coordinates, which must have passed validate_actions(), as the calls of a run. Local.
QueuePrograms queue_programs(const std::vector<std::vector<Action>>& lists, const GraphSpec& graph,
                             const QueueRules& rules);

// Returns when every call ends and every message finds its own. ConfigError that names the calls that wait for each
// other, or the message that meets another. Local.
void check_queues(const QueuePrograms& programs);

// Both: the proof for the lists of a run. Local.
void validate_queues(const std::vector<std::vector<Action>>& lists, const GraphSpec& graph, const QueueRules& rules);

// The channels that carry messages in these lists, ascending: what has to be connected before they run.
std::vector<Channel> channels_of(const std::vector<std::vector<Action>>& lists);

}  // namespace orthant
