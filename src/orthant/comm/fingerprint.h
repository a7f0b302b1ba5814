// What two ranks must agree on before a call may run, and where each of them made it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "orthant/comm/call.h"

namespace orthant::comm {

struct Fingerprint {
  std::string op;
  std::string reduction;
  int root = -1;
  std::vector<std::string> dtypes;
  std::vector<std::vector<int64_t>> shapes;
  std::vector<int64_t> input_counts;
  std::vector<int64_t> output_counts;
  std::string call;  // describe(call)
  std::string site;  // "comm/group.cpp:42"

  static Fingerprint of(const Call& call, int group_size);
  static Fingerprint from_text(const std::string& text);
  std::string to_text() const;
};

// The rule that the two calls break ("dtype float32 here, float64 there"), or nothing when they can run together.
std::optional<std::string> disagreement(const Fingerprint& mine, int my_index, const Fingerprint& theirs,
                                        int their_index);

}  // namespace orthant::comm
