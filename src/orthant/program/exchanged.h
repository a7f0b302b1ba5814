// What the exchanges of a list send over tp. Pure.
#pragma once

#include "orthant/program/sizes.h"

namespace orthant {

// Calls and the payload bytes of all of them, as the counters of `comm` count them.
struct CountedCalls {
  std::int64_t calls = 0;
  std::int64_t bytes = 0;

  void add(std::int64_t bytes_each, std::int64_t times = 1) {
    calls += times;
    bytes += times * bytes_each;
  }
  void add(const CountedCalls& other, std::int64_t times = 1) {
    calls += times * other.calls;
    bytes += times * other.bytes;
  }
  friend bool operator==(const CountedCalls&, const CountedCalls&) = default;
};

// By kind.
struct Exchanged {
  using Entry = CountedCalls;
  Entry sum = {};
  Entry gather = {};
  Entry scatter = {};
  Entry all_to_all = {};
  Entry sent = {};  // messages
  Entry received = {};

  void add(const Exchanged& other, std::int64_t times = 1);
  friend bool operator==(const Exchanged&, const Exchanged&) = default;
};

// A loss over cut classes sums three numbers per token within its operation, in that dtype: of maxima, of exponentials,
// of the targets' logits.
Exchanged exchanged(const Program& program, const std::vector<Operation>& list, const UnitSizes& sizes,
                    DType loss_statistics = DType::float64);

// Per token, of the experts that a router with a capacity tells other ranks of the row; 0 of other operations.
std::int64_t told_choice_bytes(const Program& program, const Operation& operation);
// Of a router's loss: the counts of rows that ranks sum which have tokens of one row; 0: it is another operation.
std::int64_t router_count_bytes(const Program& program, const Operation& operation, const UnitSizes& sizes);

}  // namespace orthant
