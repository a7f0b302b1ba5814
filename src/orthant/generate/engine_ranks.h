// The ranks of an engine, as each of them sees it: its part of the model, the cache that all agreed on, and the channel
// of orders. Internal to this layer.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "orthant/generate/engine.h"
#include "orthant/generate/model_rank.h"
#include "orthant/generate/order_channel.h"

namespace orthant {

class Engine::Ranks {
 public:
  // Collective over the mesh.
  Ranks(const StoredModel& model, const GenerationOptions& options);

  // On rank 0. Orders a step of the replica; its own part, if it has one, is computed before this returns.
  void order(int replica, const StepOrder& order);
  // The tokens of the replica's oldest step that has not been taken; `logprobs` as SamplingParams, of its answers.
  std::vector<GeneratedToken> take(int replica, const std::vector<int>& logprobs);
  void end();   // the last order, to all
  void idle();  // a sign of life, to all

  // On the others.
  void follow();

  int rank() const { return rank_; }
  const GenerationOptions& options() const { return options_; }
  const ModelRank& model() const { return *model_; }
  std::int64_t blocks() const { return blocks_; }
  std::int64_t most_tokens() const { return most_tokens_; }
  std::int64_t vocabulary() const { return vocabulary_; }
  const std::vector<std::int64_t>& ends() const { return ends_; }

 private:
  std::int64_t free_bytes() const;
  void check_room(std::int64_t blocks) const;
  std::int64_t agreed_blocks(const ModelConfig& config) const;
  void to_all(const StepOrder& order);

  GenerationOptions options_;
  ControlGroup group_;
  int rank_ = 0;
  std::unique_ptr<ModelRank> model_;
  std::unique_ptr<OrderChannel> channel_;  // null on one rank
  std::vector<std::vector<int>> replicas_;
  std::deque<std::vector<GeneratedToken>> own_;  // chosen here, on rank 0
  std::int64_t blocks_ = 0;
  std::int64_t most_tokens_ = 0;
  std::int64_t vocabulary_ = 0;
  std::vector<std::int64_t> ends_;
};

}  // namespace orthant
