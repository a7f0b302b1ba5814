// One way to train a model on a mesh: what `estimate` prices and the search chooses. Pure data, in the words of a run's
// configuration.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "orthant/graph/dtype.h"
#include "orthant/graph/spec.h"
#include "orthant/layout/context_policy.h"
#include "orthant/layout/data_policy.h"
#include "orthant/layout/tensor_policy.h"
#include "orthant/layout/unit_groups.h"
#include "orthant/mesh/mesh.h"
#include "orthant/models/head_loss.h"
#include "orthant/schedule/pipeline.h"

namespace orthant {

// What is made again in backward; `op` (every second product) exists in published runs only.
enum class PlanRecompute { none, selective, full, op };
inline constexpr std::array<PlanRecompute, 4> kPlanRecomputes = {PlanRecompute::none, PlanRecompute::selective,
                                                                 PlanRecompute::full, PlanRecompute::op};
std::string_view plan_recompute_name(PlanRecompute mode);
PlanRecompute parse_plan_recompute(std::string_view text);  // ConfigError with the nearest name

struct PlanSettings {
  Mesh mesh = {};
  std::int64_t micro_batch = 1;  // rows
  std::int64_t global_batch = 1;
  std::int64_t sequence = 1;
  std::int64_t secondary_sequence = 0;  // of the second tower of a trimodal model; 0: as sequence
  PipelineSettings stages = {};         // schedule, virtual stages, a run's own cut and placement
  std::string split =
      "even";  // "even", "auto" (as `train` cuts), or layers per stage: "2,3,3,2"; `stages` may overrule
  DataPolicy data = {};
  TensorPolicy tensor = {};
  ContextPolicy context = {};
  double expert_skew = 1;  // over ep: tokens that the busiest rank's experts take, of what all would take alike
  PlanRecompute recompute = PlanRecompute::none;
  std::vector<std::string> remade = {};  // operations by name that are made again besides; memory alone is priced
  bool flash = true;
  DType params = DType::float32;  // as the optimizer keeps them
  bool splits_master = false;     // as the compute copy in bfloat16 and 16 more bits
  DType compute = DType::bfloat16;
  bool float8 = false;  // products of transformer layers read e4m3 numbers: see program/float8.h
  DType gradients = DType::float32;
  DType statistics = DType::float32;                                // of a loss over cut logits; see TensorSettings
  JoinHeadAndLoss join_head_and_loss = JoinHeadAndLoss::automatic;  // of language models: see models/head_loss.h
  std::int64_t loss_chunk_rows = 0;  // of a joined one: tokens whose logits exist at once; 0: chunk_rows_of()
  bool on_host = false;              // ranks compute on the CPU, by kernels of their own
  int vector_bytes = 64;             // of a host's kernels: what scratch they take
  bool widens_products = true;       // of a host: its products of narrow types are made in float32
  bool deterministic = false;        // of a device: every sum in one order
  int optimizer_copies = 2;
  UnitGrouping units = {};                   // that share gathers and reductions
  bool bf16_hook = false;                    // gradients travel in bfloat16
  std::vector<std::string> configured = {};  // keys that the planned configuration sets: see train_settings()

  int replicas() const { return mesh.degree(Axis::dp) * mesh.degree(Axis::fsdp); }
  std::int64_t microbatches() const { return global_batch / (replicas() * micro_batch); }
};

// ConfigError with the rule: sizes below 1, a batch that does not divide among replicas and microbatches.
void check_sizes(const PlanSettings& settings);

// A key of a run's configuration and its value as text: {"parallel.schedule", "1f1b"}.
using TrainSetting = std::pair<std::string, std::string>;

// Everything besides the mesh that a run must be told. Of what the plan leaves at its default, the keys that the
// planned configuration sets.
std::vector<TrainSetting> train_settings(const PlanSettings& settings);

// The keys of a run's configuration that a plan chooses: sizes and dtypes, which it is asked for, are not among them.
std::vector<std::string_view> planned_keys();

// The command that trains the best plan, as a user can paste it.
struct RunLine {
  std::string start = "orthant train --config RUN.json";  // up to the words of the plan
  std::string note = "RUN.json: a configuration with this model and your data";
  bool has_plan = false;  // what `start` names says all of the plan
};
std::string run_command(const RunLine& run, const PlanSettings& settings);

// Mesh and settings, as `train` would be told: "--mesh pp=2,tp=4 --set parallel.schedule=1f1b ...".
std::string train_words(const PlanSettings& settings);

}  // namespace orthant
