// What the exchanges of a list send over tp. Pure.
#pragma once

#include "orthant/program/sizes.h"

namespace orthant {

// Calls and payload bytes by kind, as the counters of `comm` count them.
struct Exchanged {
  struct Entry {
    std::int64_t calls = 0;
    std::int64_t bytes = 0;
    friend bool operator==(const Entry&, const Entry&) = default;
  };
  Entry sum = {};
  Entry gather = {};
  Entry scatter = {};
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
