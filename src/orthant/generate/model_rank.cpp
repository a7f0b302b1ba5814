#include "orthant/generate/model_rank.h"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <fmt/format.h>

#include <algorithm>

#include "orthant/base/cache_block.h"
#include "orthant/base/error.h"
#include "orthant/base/index.h"
#include "orthant/generate/device_choice.h"
#include "orthant/launch/activity_board.h"
#include "orthant/nn/scalar_type.h"
#include "orthant/ops/attention/cached_attention.h"
#include "orthant/ops/attention/cached_attention_device.h"
#include "orthant/ops/linear/few_rows_device.h"
#include "orthant/train/device_setup.h"
#include "orthant/train/step_recorder.h"

namespace orthant {
namespace {

constexpr const char* kLogits = "logits";

}  // namespace

ModelRank::ModelRank(const StoredModel& model, const GenerationOptions& options) : options_(options) {
  const ControlGroup ranks(options_.communicator);
  auto found = open_forward(
      model, [&](bool) { return placed_generation_graph(model.config, options_.mesh, options_.dtype); }, ranks);
  notes_ = std::move(found.notes);
  stages_ = generation_stages(found.graph, options_.mesh);
  heads_ = cached_heads(found.graph);
  loaded_ =
      std::make_unique<LoadedModel>(std::move(found), LoadOptions{.dtype = options_.dtype,
                                                                  .device = options_.device,
                                                                  .mesh = options_.mesh,
                                                                  .communicator = options_.communicator,
                                                                  .unit_pp_coordinates = stages_.unit_pp_coordinates});
  find_kernels();
  const Coordinate here = options_.mesh.coordinate(ranks.rank());
  if (options_.mesh.degree(Axis::pp) > 1) {
    const LinkGroups groups{options_.communicator->group(Axis::pp, comm::Purpose::activations),
                            options_.communicator->group(Axis::pp, comm::Purpose::gradients)};
    links_ = std::make_unique<StageLinks>(graph(), groups, stages_.map, stages_.channels, options_.device);
  }
  Peers peers = loaded_->peers();
  peers.links = links_.get();
  executor_ = std::make_unique<Executor>(graph(), loaded_->units(), Recompute::none, peers);
  window_ = common_window(heads_);
  actions_ = stages_.actions[to_index(here[Axis::pp])];
  without_head_ = actions_;
  const int head = graph().producer(kLogits);
  std::erase_if(without_head_,
                [&](const Action& action) { return action.kind == ActionKind::forward && action.unit == head; });
  chooses_ = choosing_rank(options_.mesh, here[Axis::dp]) == ranks.rank();
  const auto failed = [say = options_.say](const std::string& why) {
    if (say) say("no CUDA graphs of steps: " + why);
  };
  steps_ = std::make_unique<RecordedSteps>(options_.device, recorder(), failed);
}

ModelRank::~ModelRank() = default;

// Kernels of the device are found here: the thread that computes steps has not made anything on the device.
void ModelRank::find_kernels() {
  const c10::OptionalDeviceGuard on_device(options_.device.is_cpu() ? std::nullopt
                                                                    : std::optional<at::Device>(options_.device));
  const auto dtype = scalar_type(options_.dtype);
  if (options_.device.is_cuda()) prepare_kernels(options_.device, options_.say, dtype, graph(), variants());
  const auto with = at::TensorOptions().dtype(dtype).device(options_.device);
  std::int64_t shared = 0;
  for (const auto& unit : heads_) {
    if (unit.kv_heads == 0) continue;
    const auto of_unit = unit.heads / unit.kv_heads;
    if (!nn::device::serves_cached_heads(unit.head_size, with) || (shared != 0 && shared != of_unit)) return;
    shared = of_unit;
  }
  form_.shared_heads = shared;
}

nn::device::Variants ModelRank::variants() const {
  const auto dtype = scalar_type(options_.dtype);
  nn::device::Variants all = nn::device::few_rows_variants(dtype, options_.most_running);
  const auto add = [&all](const nn::device::Variants& more) { all.insert(all.end(), more.begin(), more.end()); };
  for (const auto& unit : heads_) {
    if (unit.kv_heads > 0) add(nn::device::cached_attention_variants(dtype, unit.head_size));
  }
  add(choice_variants(dtype));
  return all;
}

// Steps with exchanges between ranks, and those whose experts are counted on the host, run as they are.
std::unique_ptr<DeviceRecorder> ModelRank::recorder() const {
  const Mesh& mesh = options_.mesh;
  const bool exchanges = mesh.world_size() > mesh.degree(Axis::dp) || mesh.degree(Axis::ep) > 1;
  const Precision precision{options_.dtype, options_.dtype, options_.dtype};
  if (form_.shared_heads == 0 || exchanges || !experts_obstacle(precision, graph(), mesh).empty()) return nullptr;
  if (options_.make_recorder) return options_.make_recorder();
  return options_.device.is_cuda() ? make_device_recorder(options_.device) : nullptr;
}

std::int64_t ModelRank::block_bytes() const {
  std::int64_t numbers = 0;
  for (std::size_t u = 0; u < heads_.size(); ++u) {
    if (loaded_->units()[u]) numbers += 2 * heads_[u].kv_heads * heads_[u].head_size * kCacheBlock;
  }
  return numbers * bytes_of(options_.dtype);
}

void ModelRank::make_cache(std::int64_t blocks, std::int64_t most_positions) {
  form_.most_positions = most_positions;
  if (replicas_share_experts(options_.mesh)) nobodys_block_ = static_cast<std::int32_t>(blocks++);
  keys_.assign(heads_.size(), {});
  const auto options = at::TensorOptions().dtype(scalar_type(options_.dtype)).device(options_.device);
  for (std::size_t u = 0; u < heads_.size(); ++u) {
    if (!loaded_->units()[u] || heads_[u].kv_heads == 0) continue;
    keys_[u] = nn::make_key_cache(blocks, heads_[u].kv_heads, heads_[u].head_size, options);
  }
}

// [picked tokens, vocabulary], those of places of nobody behind the others; undefined where none are wanted or this
// rank has none.
at::Tensor ModelRank::logits_of(StepTensors tensors) {
  const auto step = std::make_shared<const StepTensors>(std::move(tensors));
  const RecordedSteps::Work work{.make = [this, step](const StepInputs& held, StepStart start) {
    const nn::CachedStep cached = step->cached(held, form_, start == StepStart::recorded);
    const StepFacts facts{
        .step = step_, .cached = &cached, .keys = &keys_, .activity = &launch::Activity::of_process()};
    const auto values =
        executor_->evaluate(step->picks ? actions_ : without_head_, step->tokens(held), facts, {kLogits});
    const auto found = values.find(kLogits);
    return found == values.end() ? at::Tensor() : found->second;
  }};
  return steps_->run(step->inputs, work, /*may_record=*/step->alike);
}

std::vector<GeneratedToken> ModelRank::run(const StepOrder& order) {
  const c10::OptionalDeviceGuard on_device(options_.device.is_cpu() ? std::nullopt
                                                                    : std::optional<at::Device>(options_.device));
  ++step_;
  at::Tensor logits;
  if (!order.parts.empty()) logits = logits_of(step_tensors(order, form_, steps_->records()));
  if (order.joins) {
    const StepPart token{.past = 0, .tokens = {0}, .answer = -1, .blocks = {nobodys_block_}};
    logits_of(step_tensors({.parts = {token}}, form_, /*rounds=*/false));
  }
  if (chooses_) return choice_.choose(order, logits);
  return {};
}

}  // namespace orthant
