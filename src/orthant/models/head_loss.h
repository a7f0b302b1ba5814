// A language model's head and its loss as one unit, so that logits exist for a chunk of tokens at a time and never
// whole (ops/cross_entropy/head_loss.h). Pure: from graph to graph, for whoever plans a training.
#pragma once

#include <cstdint>
#include <string_view>

#include "orthant/graph/spec.h"

namespace orthant {

class ProgramCache;

// Whether head and loss are one unit. automatic: where it pays, by HeadLossOptions::on_host.
enum class JoinHeadAndLoss { automatic, on, off };

std::string_view join_name(JoinHeadAndLoss choice);
JoinHeadAndLoss parse_join(std::string_view text);  // ConfigError with the nearest name

struct HeadLossOptions {
  JoinHeadAndLoss join = JoinHeadAndLoss::automatic;
  bool on_host = true;               // ranks compute on the CPU
  std::int64_t chunk_rows = 0;       // tokens of a chunk; 0: by chunk_rows_of()
  ProgramCache* programs = nullptr;  // where the cost finds compiled programs
};

// Tokens of a chunk whose logits have so many classes on a rank.
std::int64_t chunk_rows_of(std::int64_t classes, bool on_host);

// The unit that writes "logits" per token and the cross-entropy that alone reads them become one unit. It has the
// head's name, parameters and place, its kind with "_loss" behind, and is the loss: inputs of the head, then labels.
// Logits are no value any more. Over tp each rank makes the classes of its part of the weight, whatever loss_parallel
// says. The graph as it is where the options say so, and where there is no such pair or tp does not cut the weight;
// there ConfigError when the options say `on`. A graph that has been joined stays. `graph` may be placed.
GraphSpec join_head_and_loss(GraphSpec graph, const HeadLossOptions& options);

// Whether a kind is the head of that model, alone or with the loss.
inline bool is_head(std::string_view kind, std::string_view model) {
  if (!kind.starts_with(model)) return false;
  const auto part = kind.substr(model.size());
  return part == ".head" || part == ".head_loss";
}

}  // namespace orthant
