// The work of one microbatch: what the shapes and costs of a spec are computed for.
#pragma once

#include <cstdint>

#include "orthant/graph/spec.h"

namespace orthant {

class ProgramCache;

struct WorkSize {
  std::int64_t rows = 1;
  std::int64_t sequence = 1;
  std::int64_t secondary_sequence = 0;  // of the second tower of a trimodal model; 0: as sequence
  DType compute = DType::float32;       // of activations
  bool packed = false;                  // rows hold documents: a decoder has a batch field document_starts

  TensorSharing tensor = {};  // costs are those of one of its ranks; shapes stay those of the whole model

  ProgramCache* programs = nullptr;  // where costs find compiled programs; null: each spec compiles its own

  friend bool operator==(const WorkSize&, const WorkSize&) = default;
};

}  // namespace orthant
