// The table a run prints before its first step: the units of the model with their parameters and what training them
// keeps in memory. It describes the whole model on one rank; a mesh divides it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "orthant/graph/spec.h"

namespace orthant {

struct SummaryOptions {
  DType parameters = DType::float32;  // what the optimizer updates and keeps its state in
  DType compute = DType::float32;     // what is multiplied; a second copy of the parameters when it differs
  DType gradients = DType::float32;
  int optimizer_copies = 2;  // per trainable parameter: AdamW 2, SGD with momentum 1, without 0
  Recompute recompute = Recompute::none;
  std::vector<std::string> remade = {};     // named instead of it where there are some
  std::int64_t microbatches_in_flight = 1;  // forward done, backward not: what kept activations are multiplied by
};

// What one unit, or a run of equal ones, has and keeps.
struct SummaryRow {
  std::string name;  // "embedding", "layers.0-7"
  std::int64_t num_units = 1;
  std::int64_t parameters = 0;  // of its own; a tied one counts where it is owned
  std::int64_t trainable = 0;
  std::int64_t parameters_bytes = 0;
  std::int64_t gradients_bytes = 0;
  std::int64_t optimizer_bytes = 0;
  std::int64_t kept_bytes = 0;  // activations, all microbatches in flight

  std::int64_t total_bytes() const { return parameters_bytes + gradients_bytes + optimizer_bytes + kept_bytes; }
  friend bool operator==(const SummaryRow&, const SummaryRow&) = default;
};

// One row per unit, neighbours folded whose names differ only in one number that counts up and whose figures are equal.
// A row's figures are those of all its units together.
std::vector<SummaryRow> summary_rows(const GraphSpec& graph, const SummaryOptions& options);

// The rows as a table with a line of totals.
std::string summary_text(const GraphSpec& graph, const SummaryOptions& options);

}  // namespace orthant
