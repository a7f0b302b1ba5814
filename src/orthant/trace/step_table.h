// Where the time of steps goes: parts that add up to a step on every rank, and tables by operation and by unit.
//
// Note [Parts of a step]: events of a rank's main row lie inside one another, so the time that belongs to each alone
// adds up to the steps' time. A wait for a message is waiting for another stage; a wait in a collective counts as
// waiting for slower ranks until the last member has come, and as exchange from then on.
#pragma once

#include <array>
#include <map>
#include <string>
#include <vector>

#include "orthant/trace/rank_trace.h"

namespace orthant::trace {

enum class Part {
  products,
  attention,
  other_operations,  // norms, activations, sums: bound by memory
  exchange,          // between ranks, that nothing hides
  slower_ranks,      // in a collective, before its last member came
  other_stages,      // for a value or gradient: the bubble of the pipeline
  data,
  gradients,  // what is left of sums, norm and loss after the list
  update,
  reports,  // numbers, checkpoints, evaluations within a step
  between,  // operations: memory, lists, starting them
};
inline constexpr int kNumParts = 11;
const char* name_of(Part part);

// What this machine can do, as measured beside the profile; 0: not measured.
struct Limits {
  double flops_per_second = 0;
  double bytes_per_second = 0;
};

struct TableRow {
  std::string name;
  std::int64_t calls = 0;  // all numbers: of all ranks and steps
  double seconds = 0;
  double flops = 0;
  double bytes = 0;

  // Of the time, what a rank at the machine's limits would take; 0 when nothing is known.
  double share_of_limit(const Limits& limits) const;
};

struct RankParts {
  int rank = 0;
  std::array<double, kNumParts> seconds = {};  // a step, on average
  double step_seconds = 0;                     // likewise, of the step as a whole
  double hidden_exchange = 0;                  // seconds of exchanges, a step, while the rank did something else

  double busy() const;  // in operations and the update
};

struct StepTable {
  int num_steps = 0;
  std::vector<RankParts> ranks;
  std::vector<TableRow> operations;  // by seconds, most first; exchanges and waits by name and axis beside them
  std::vector<TableRow> units;       // of operations; likewise
  Limits limits;

  double step_seconds() const;  // of the slowest rank
};

// Of whole steps in traces of all ranks. `units`: their names.
StepTable step_table(const std::vector<RankTrace>& ranks, const std::vector<std::string>& units, const Limits& limits);

// As a user reads it; `most`: lines of a table.
std::string to_text(const StepTable& table, std::size_t most);
std::string to_json(const StepTable& table);  // one document

}  // namespace orthant::trace
