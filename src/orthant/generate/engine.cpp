#include "orthant/generate/engine.h"

#include "orthant/base/cache_block.h"
#include "orthant/base/error.h"
#include "orthant/generate/engine_answers.h"
#include "orthant/generate/engine_ranks.h"

namespace orthant {

Engine::Engine(const StoredModel& model, const GenerationOptions& options)
    : ranks_(std::make_unique<Ranks>(model, options)) {}

Engine::~Engine() = default;

void Engine::rest() {
  answers_.reset();
}

Generator& Engine::generator() {
  if (ranks_->rank() != 0) throw InternalError("a generation takes requests on rank 0; others follow");
  if (!answers_) answers_ = std::make_unique<Answers>(*ranks_);
  return *answers_;
}

std::exception_ptr Engine::failure() const {
  return answers_ ? answers_->failure() : nullptr;
}

void Engine::follow() {
  if (ranks_->rank() == 0) throw InternalError("rank 0 of a generation gives orders and follows none");
  ranks_->follow();
}

std::int64_t Engine::cache_tokens() const {
  return ranks_->blocks() * kCacheBlock;
}

std::int64_t Engine::cache_bytes() const {
  return ranks_->blocks() * ranks_->model().block_bytes();
}

const std::vector<std::int64_t>& Engine::ends() const {
  return ranks_->ends();
}

const std::vector<std::string>& Engine::notes() const {
  return ranks_->model().notes();
}

const RecordedSteps& Engine::recorded_steps() const {
  return ranks_->model().recorded_steps();
}

std::int64_t Engine::num_parameters() const {
  return ranks_->model().graph().num_parameters();
}

}  // namespace orthant
