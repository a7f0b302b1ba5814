#include "orthant/generate/engine_ranks.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>

#include "orthant/base/cache_block.h"
#include "orthant/base/error.h"
#include "orthant/base/human.h"
#include "orthant/base/index.h"
#include "orthant/cuda/card_memory.h"
#include "orthant/generate/end_tokens.h"
#include "orthant/launch/activity_board.h"
#include "orthant/launch/memory_group.h"
#include "orthant/models/model_facts.h"

namespace orthant {
namespace {

// Of what is free, a cache that nobody gave a size takes at most this part.
constexpr double kFreePart = 0.5;
constexpr std::int64_t kLongAnswers = 4096;  // positions that it has room for, of each running sequence

// New tokens of a step where nobody says how many: enough to keep the device busy while weights are read.
constexpr std::int64_t kCpuStepTokens = 256;
constexpr std::int64_t kCardStepTokens = 4096;

std::int64_t blocks_of(std::int64_t tokens) {
  return tokens / kCacheBlock + (tokens % kCacheBlock != 0 ? 1 : 0);
}

}  // namespace

Engine::Ranks::Ranks(const StoredModel& model, const GenerationOptions& options)
    : options_(options), group_(options.communicator), rank_(group_.rank()) {
  check_generation_mesh(options_.mesh);
  if (options_.step_tokens == 0) options_.step_tokens = options_.device.is_cpu() ? kCpuStepTokens : kCardStepTokens;
  group_.together([&] { ends_ = end_tokens(model); });
  model_ = std::make_unique<ModelRank>(model, options_);
  for (int replica = 0; replica < options_.mesh.degree(Axis::dp); ++replica) {
    replicas_.push_back(replica_ranks(options_.mesh, replica));
  }
  vocabulary_ = vocab_size(model.config);
  blocks_ = agreed_blocks(model.config);
  const auto held = blocks_ * kCacheBlock;
  const auto positions = most_positions(model.config);
  // Keys behind a window make room for others, so that a sequence may be longer than the cache.
  const auto room = model_->window() > 0 ? std::max(held, max_sequence(model.config)) : held;
  most_tokens_ = positions > 0 ? std::min(positions, room) : room;
  model_->make_cache(blocks_, most_tokens_);
  if (group_.size() > 1) channel_ = std::make_unique<OrderChannel>(*options_.communicator);
}

// Half of it belongs to each of two ranks that share it.
std::int64_t Engine::Ranks::free_bytes() const {
  const auto sharing = group_.size();
  if (!options_.device.is_cpu()) {
    const auto free = cuda::free_card_bytes(std::to_string(options_.device.index()));
    return free.value_or(std::int64_t{1} << 30);
  }
  return launch::free_memory().value_or(launch::FreeMemory{.bytes = std::int64_t{1} << 30, .group = {}}).bytes /
         sharing;
}

// Of a cache whose size was given.
void Engine::Ranks::check_room(std::int64_t blocks) const {
  const auto bytes = std::max<std::int64_t>(model_->block_bytes(), 1);
  const auto fitting = free_bytes() / bytes;
  if (blocks <= fitting) return;
  throw ConfigError(fmt::format("a cache of {} tokens takes {} each, and {} are free", options_.cache_tokens,
                                format_bytes(bytes / kCacheBlock), format_bytes(free_bytes())),
                    {.remedy = fmt::format("give the cache at most {} tokens", fitting * kCacheBlock)});
}

// The same on all ranks: the fewest that one of them would take. Collective over the mesh.
std::int64_t Engine::Ranks::agreed_blocks(const ModelConfig& config) const {
  auto blocks = blocks_of(options_.cache_tokens);
  if (options_.cache_tokens > 0) {
    group_.together([&] { check_room(blocks); });
  } else {
    const auto longest = std::min(std::max<std::int64_t>(max_sequence(config), 1), kLongAnswers);
    blocks = blocks_of(longest) * options_.most_running;
    const auto bytes = std::max<std::int64_t>(model_->block_bytes(), 1);
    blocks = std::min(blocks, static_cast<std::int64_t>(kFreePart * static_cast<double>(free_bytes())) / bytes);
    blocks = std::max<std::int64_t>(blocks, 1);
  }
  if (group_.alone()) return blocks;
  for (const auto& other : group_.gather(at::tensor({blocks}, at::kLong))) {
    blocks = std::min(blocks, other.item<std::int64_t>());
  }
  return blocks;
}

void Engine::Ranks::order(int replica, const StepOrder& order) {
  for (const int rank : replicas_[to_index(replica)]) {
    if (rank != 0) channel_->send(order, rank);
  }
  if (replica != 0) return;
  auto tokens = model_->run(order);
  if (model_->chooses()) own_.push_back(std::move(tokens));
}

std::vector<GeneratedToken> Engine::Ranks::take(int replica, const std::vector<int>& logprobs) {
  const int rank = choosing_rank(options_.mesh, replica);
  if (rank != 0) return tokens_of(channel_->receive_numbers(num_numbers(logprobs), rank), logprobs);
  auto tokens = std::move(own_.front());
  own_.pop_front();
  return tokens;
}

void Engine::Ranks::to_all(const StepOrder& order) {
  for (int rank = 1; rank < group_.size(); ++rank) channel_->send(order, rank);
}

void Engine::Ranks::end() {
  to_all({.last = true});
}

void Engine::Ranks::idle() {
  launch::Activity::of_process().say("waiting for requests");
  to_all({});
}

void Engine::Ranks::follow() {
  std::map<std::uint64_t, int> logprobs;  // of each sequence
  while (true) {
    launch::Activity::of_process().say("waiting for orders");
    const StepOrder order = channel_->receive_order(0);
    if (order.last) return;
    const auto tokens = model_->run(order);
    for (const auto sequence : order.ended) logprobs.erase(sequence);
    if (!model_->chooses()) continue;
    std::vector<int> wanted;
    std::size_t begun = 0;
    for (const auto& part : order.parts) {
      if (part.first) logprobs[part.sequence] = order.begun.at(begun++).logprobs;
      if (part.answer >= 0) wanted.push_back(logprobs.at(part.sequence));
    }
    channel_->send(to_numbers(tokens, wanted), 0);
  }
}

}  // namespace orthant
