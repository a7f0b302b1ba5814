// One communication call as data. Groups build it, checks and counters read it, transports carry it out: so each of
// them is written once for every operation.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <source_location>
#include <string>
#include <vector>

#include "orthant/base/subject.h"

namespace orthant::comm {

enum class Op { all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, send, receive, barrier };
inline constexpr int kNumOps = 8;
const char* name_of(Op op);

enum class Reduction { sum, max };
const char* name_of(Reduction reduction);

// What a channel is for. Calls of one purpose on one group are first in, first out; purposes never hold each other up.
enum class Purpose { control, activations, gradients, parameters };
const char* name_of(Purpose purpose);

// Messages from one member of a group to another, by their places in the group.
struct MessagePair {
  int from = -1;
  int to = -1;
};

struct Call {
  Op op = Op::barrier;
  Reduction reduction = Reduction::sum;
  // all_reduce and broadcast work in place on `outputs`; send has only inputs, receive only outputs. Several tensors
  // are one call: inputs[i] belongs to outputs[i].
  std::vector<at::Tensor> inputs = {};
  std::vector<at::Tensor> outputs = {};
  // Elements per member of the group; empty means equal parts. all_gather: of the output; reduce_scatter: of the input.
  std::vector<int64_t> input_counts = {};
  std::vector<int64_t> output_counts = {};
  std::vector<Subject> subjects = {};  // per tensor what it belongs to; empty: not said
  int peer = -1;                       // root of a broadcast, other end of send and receive: an index in the group
  int tag = 0;                         // matches a receive to a send
  // Position among the collectives of the channel, or among the messages of one directed pair and tag.
  uint64_t sequence = 0;
  std::source_location site = {};  // where the program asked for it

  bool is_point_to_point() const { return op == Op::send || op == Op::receive; }

  // Calls of one line run in order: the collectives of a channel, or the messages of one directed pair and tag. Named
  // alike on both ends; `index` is the caller's place in the group.
  std::string line(int index) const;
};

// Payload by the contract's rule: the tensor (all_reduce, broadcast, send, receive), the gathered output, or the whole
// input (reduce_scatter, all_to_all).
int64_t payload_bytes(const Call& call);

// "all_reduce #12 (sum, float32 [1024])"
std::string describe(const Call& call);

// " of layers.3 and 2 more": the units whose tensors travel; empty when the call does not say.
std::string describe_subjects(const Call& call);

// "float32", "bfloat16", ...
std::string dtype_name(at::ScalarType dtype);

// Elements of member `index`, by the call's counts or by equal parts of `total`.
int64_t part_of(const std::vector<int64_t>& counts, int64_t total, int size, int index);

// Refuses tensors no backend can move (undefined, strided, dtype, mixed devices), counts that do not fit the tensors,
// and messages to oneself. `index` is the caller's place in the group. Local; throws ConfigError.
void validate(const Call& call, int group_size, int index);

// Calls and payload bytes per operation since the group was made.
struct Counters {
  struct Entry {
    int64_t calls = 0;
    int64_t bytes = 0;
  };
  std::array<Entry, kNumOps> entries{};

  const Entry& of(Op op) const { return entries[static_cast<size_t>(op)]; }
  Entry total() const;
  Counters& operator+=(const Counters& other);
};

}  // namespace orthant::comm
