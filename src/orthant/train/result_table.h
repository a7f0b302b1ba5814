// What a run came to, once it is over: a small table for people and the document that `train --json` prints.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "orthant/comm/call.h"
#include "orthant/mesh/mesh.h"
#include "orthant/train/metrics.h"

namespace orthant {

struct RunResult {
  std::int64_t steps = 0;  // made so far, those of earlier parts of a resumed run included
  double seconds = 0;      // of this process, from the first step to the end
  // Of this process's first and last step. Nothing: it has trained none, its checkpoint was of the last step already.
  std::optional<double> first_loss = {};
  std::optional<double> final_loss = {};
  EvalMetrics eval = {};                               // the last evaluation; empty when there was none
  std::optional<double> best_reachable_accuracy = {};  // known for generated data only
  Mesh mesh = {};
  std::string output_dir = {};
  std::int64_t parameters = 0;
  std::uint64_t weights_hash = 0;
  // Of this process; what follows is empty or 0 where too few steps were made.
  std::vector<std::int64_t> rank_memory_bytes =
      {};  // per rank: the most of its steps before the first evaluation or save
  std::map<std::string, comm::Counters> traffic = {};  // of all ranks up to the last step, by groups' names
  std::vector<double> busy_seconds = {};               // per pp coordinate and step; not known on a device
  double step_seconds = 0;                             // the median after two steps
};

// A line of a result: its name and its value.
using ResultRow = std::pair<std::string, std::string>;

// Lines of "name  value", columns aligned, each ended; `more` come last.
std::string result_text(const RunResult& result, const std::vector<ResultRow>& more = {});

nlohmann::ordered_json mesh_json(const Mesh& mesh);  // degrees by axis

// {"steps", "final_loss", "eval": {...}, "mesh": {six degrees}, "world_size", "output_dir", "parameters",
//  "weights_hash"}; numbers that are not finite print as null.
nlohmann::ordered_json result_json(const RunResult& result);

}  // namespace orthant
