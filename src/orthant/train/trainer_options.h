// Everything a trainer can be told besides its graph and mesh. The command line reads it from a configuration; a
// program fills it in.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "orthant/comm/control_group.h"
#include "orthant/layout/context_policy.h"
#include "orthant/layout/tensor_policy.h"
#include "orthant/layout/unit_groups.h"
#include "orthant/models/head_loss.h"
#include "orthant/parallel/data/parameter_store.h"
#include "orthant/schedule/pipeline.h"
#include "orthant/train/loss_scale.h"
#include "orthant/train/lr_schedule.h"
#include "orthant/train/optimizer.h"
#include "orthant/train/poison.h"

namespace orthant {

namespace nn {
class ProductLibrary;
}

// Whose plans products on a card run by: the libraries' own choice, or measured ones, see Note [Measured plans].
enum class ProductChoice { heuristic, measured };

// Whether steps of a device are recorded and played back: where they can be, always (ConfigError where they cannot be),
// or never. See Note [Recorded steps].
enum class RecordSteps { automatic, on, off };

// Tokens of a branch of a microbatch from which branches run side by side in steps without a graph. With fewer the host
// is the limit: it starts kernels one by one on however many streams, and orders the streams besides. Of two BERT
// towers of 1,024 tokens a step took 11.8 ms with lanes and 10.1 without, of 32,768 tokens 76.1 and 78.1 (H200).
inline constexpr std::int64_t kLanesFromTokens = 8192;

struct TrainerOptions {
  std::uint64_t seed = 0;
  Precision precision;
  std::optional<LossScaleOptions> loss_scale;  // default_loss_scale() of the precision when absent
  OptimizerOptions optimizer;
  LrSchedule lr;
  Recompute recompute = Recompute::none;
  std::vector<std::string> remade;  // operations of layers whose results backward makes again: a list as recompute
  int microbatches = 1;
  PipelineSettings stages;
  DataPolicy policy;                                                // what the fsdp axis shards, which calls are joined
  UnitGrouping units;                                               // which units share calls
  GradientHook hook;                                                // how gradients travel
  TensorPolicy tensor;                                              // how units lie over tp
  ContextPolicy context;                                            // how attention meets rows that lie over cp
  JoinHeadAndLoss join_head_and_loss = JoinHeadAndLoss::automatic;  // of language models: see models/head_loss.h
  std::int64_t loss_chunk_rows = 0;  // of a joined one: tokens whose logits exist at once; 0: chunk_rows_of()
  std::vector<Poison> poison;        // faults put in on purpose
  std::int64_t verify_replicas = 0;  // steps between comparisons of what ranks hold alike; 0: none
  // Of the mesh, with trainer_groups(); null on a mesh of one rank.
  std::shared_ptr<const comm::Communicator> communicator;
  at::Device device = at::kCPU;
  bool allow_unused_parameters = false;
  // False: it evaluates alone. Every parameter may be frozen then, which leaves no memory to gradients and optimizer
  // state; step() and gradients() are refused.
  bool trains = true;
  // Every sum of a step has one order, so that runs repeat to the bit. Costs nothing on the CPU, where it is always so;
  // on a device absent means false.
  std::optional<bool> deterministic;
  ProductChoice product_plans = ProductChoice::heuristic;
  RecordSteps record_steps = RecordSteps::automatic;
  bool side_by_side = true;                           // branches of a step on a device, see Note [Lanes]; for tests
  std::int64_t lanes_from_tokens = kLanesFromTokens;  // in steps without a graph; for tests
  // Of precision.float8: plain formulas multiply where no card does, in any compute dtype. For tests: many times
  // slower.
  bool float8_by_formulas = false;
  // Of measured plans; null: cuBLASLt of the device.
  std::shared_ptr<nn::ProductLibrary> product_library;
  std::function<void(const std::string&)> say;  // what a rank tells people: kernels compiled, fallbacks; empty: nobody
  bool pad_to_longest = false;  // of each microbatch, see trim_padding.h; false: batches are taken as they are
  bool unpadded = false;        // training: microbatches have no padding where that can be, see train/unpadded_rows.h
  std::map<std::string, double> loss_coefficients;  // by loss value; 1 when absent
  DrawnParameters drawn;                            // the others are zero until the caller fills them
};

// The ranks of a trainer with these options.
inline ControlGroup control_group(const TrainerOptions& options) {
  return ControlGroup(options.communicator);
}

}  // namespace orthant
