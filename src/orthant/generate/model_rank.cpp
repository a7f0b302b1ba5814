#include "orthant/generate/model_rank.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "orthant/base/cache_block.h"
#include "orthant/base/error.h"
#include "orthant/base/index.h"
#include "orthant/launch/activity_board.h"
#include "orthant/nn/scalar_type.h"

namespace orthant {
namespace {

constexpr const char* kIds = "input_ids";
constexpr const char* kLogits = "logits";

template <class T>
std::span<const T> row_of(const at::Tensor& logits, std::int64_t row) {
  return {logits.const_data_ptr<T>() + row * logits.size(1), static_cast<std::size_t>(logits.size(1))};
}

}  // namespace

struct ModelRank::StepInputs {
  Microbatch tokens;
  nn::CachedStep cached;
  bool picks = false;
};

ModelRank::ModelRank(const StoredModel& model, const GenerationOptions& options) : options_(options) {
  const ControlGroup ranks(options_.communicator);
  auto found = open_forward(
      model, [&](bool) { return placed_generation_graph(model.config, options_.mesh, options_.dtype); }, ranks);
  notes_ = std::move(found.notes);
  stages_ = generation_stages(found.graph, options_.mesh);
  loaded_ =
      std::make_unique<LoadedModel>(std::move(found), LoadOptions{.dtype = options_.dtype,
                                                                  .device = options_.device,
                                                                  .mesh = options_.mesh,
                                                                  .communicator = options_.communicator,
                                                                  .unit_pp_coordinates = stages_.unit_pp_coordinates});
  const Coordinate here = options_.mesh.coordinate(ranks.rank());
  if (options_.mesh.degree(Axis::pp) > 1) {
    const LinkGroups groups{options_.communicator->group(Axis::pp, comm::Purpose::activations),
                            options_.communicator->group(Axis::pp, comm::Purpose::gradients)};
    links_ = std::make_unique<StageLinks>(graph(), groups, stages_.map, stages_.channels, options_.device);
  }
  Peers peers = loaded_->peers();
  peers.links = links_.get();
  executor_ = std::make_unique<Executor>(graph(), loaded_->units(), Recompute::none, peers);
  heads_ = cached_heads(graph());
  window_ = common_window(heads_);
  actions_ = stages_.actions[to_index(here[Axis::pp])];
  without_head_ = actions_;
  const int head = graph().producer(kLogits);
  std::erase_if(without_head_,
                [&](const Action& action) { return action.kind == ActionKind::forward && action.unit == head; });
  chooses_ = choosing_rank(options_.mesh, here[Axis::dp]) == ranks.rank();
}

ModelRank::~ModelRank() = default;

std::int64_t ModelRank::block_bytes() const {
  std::int64_t numbers = 0;
  for (std::size_t u = 0; u < heads_.size(); ++u) {
    if (loaded_->units()[u]) numbers += 2 * heads_[u].kv_heads * heads_[u].head_size * kCacheBlock;
  }
  return numbers * bytes_of(options_.dtype);
}

void ModelRank::make_cache(std::int64_t blocks, std::int64_t most_positions) {
  most_positions_ = most_positions;
  keys_.assign(heads_.size(), {});
  const auto options = at::TensorOptions().dtype(scalar_type(options_.dtype)).device(options_.device);
  for (std::size_t u = 0; u < heads_.size(); ++u) {
    if (!loaded_->units()[u] || heads_[u].kv_heads == 0) continue;
    const auto& heads = heads_[u];
    keys_[u] = {at::empty({blocks, heads.kv_heads, heads.head_size, kCacheBlock}, options),
                at::empty({blocks, heads.kv_heads, kCacheBlock, heads.head_size}, options)};
  }
}

ModelRank::StepInputs ModelRank::inputs_of(const StepOrder& order) const {
  StepInputs inputs;
  std::vector<std::int64_t> ids, row, position, starts, picked;
  for (const auto& part : order.parts) {
    const auto first = static_cast<std::int64_t>(ids.size()), count = static_cast<std::int64_t>(part.tokens.size());
    inputs.cached.sequences.push_back({first, count, part.past, part.blocks});
    ids.insert(ids.end(), part.tokens.begin(), part.tokens.end());
    for (std::int64_t i = 0; i < count; ++i) {
      row.push_back(static_cast<std::int64_t>(inputs.cached.sequences.size()) - 1);
      position.push_back(part.past + i);
      starts.push_back(first - part.past);
    }
    if (part.answer >= 0) picked.push_back(first + count - 1);
  }
  inputs.cached.most_positions = most_positions_;
  inputs.picks = !picked.empty();
  const auto numbers = [&](const std::vector<std::int64_t>& values) {
    return at::tensor(values, at::kLong).to(options_.device, /*non_blocking=*/true);
  };
  inputs.tokens.fields[kIds] = numbers(ids).unsqueeze(0);
  inputs.tokens.token_rows[kIds] = {numbers(row).unsqueeze(0), numbers(position).unsqueeze(0),
                                    numbers(starts).unsqueeze(0), numbers(picked)};
  return inputs;
}

std::vector<GeneratedToken> ModelRank::run(const StepOrder& order) {
  if (!order.parts.empty()) {
    const StepInputs inputs = inputs_of(order);
    const StepFacts facts{
        .step = ++step_, .cached = &inputs.cached, .keys = &keys_, .activity = &launch::Activity::of_process()};
    auto values = executor_->evaluate(inputs.picks ? actions_ : without_head_, inputs.tokens, facts, {kLogits});
    if (chooses_) return choose(order, inputs.picks ? values.at(kLogits) : at::Tensor());
  }
  for (const auto sequence : order.ended) choosers_.erase(sequence);
  return {};
}

std::vector<GeneratedToken> ModelRank::choose(const StepOrder& order, const at::Tensor& logits) {
  for (const auto sequence : order.ended) choosers_.erase(sequence);
  at::Tensor rows = logits;
  if (rows.defined()) {
    rows = rows.to(rows.scalar_type() == at::kDouble ? at::kDouble : at::kFloat).cpu().contiguous();
  }
  std::vector<GeneratedToken> tokens;
  std::size_t begun = 0;
  std::int64_t row = 0;
  for (const auto& part : order.parts) {
    if (part.first) choosers_.insert_or_assign(part.sequence, TokenChooser(order.begun.at(begun++)));
    TokenChooser& chooser = choosers_.at(part.sequence);
    chooser.see(part.tokens);
    if (part.answer < 0) continue;
    tokens.push_back(rows.scalar_type() == at::kDouble ? chooser.choose(row_of<double>(rows, row), part.answer)
                                                       : chooser.choose(row_of<float>(rows, row), part.answer));
    ++row;
  }
  return tokens;
}

}  // namespace orthant
