// A model over ranks that answers requests: rank 0 takes them, schedules steps for each replica and hands out tokens;
// all ranks compute. The interface is serve/generator.h.
//
// Note [A generation's ranks]: rank 0 has a scheduler for each replica of the model. For every step it sends the
// replica's ranks an order, computes its own part, and takes the tokens that the replica's last stage has chosen; of a
// pipeline it keeps as many steps under way as there are stages. Ranks decide nothing: they compute orders in turn
// until one says that it was the last. What ends an answer is decided on rank 0.
#pragma once

#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "orthant/checkpoint/stored_model.h"
#include "orthant/generate/generation_options.h"
#include "orthant/serve/generator.h"

namespace orthant {

class RecordedSteps;

class Engine {
 public:
  // Reads the weights and makes the cache. Collective over the mesh. ConfigError for a mesh, model or cache that cannot
  // be, DataError for files.
  Engine(const StoredModel& model, const GenerationOptions& options);
  // As rest().
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Of rank 0, which from the first call on must not communicate by other ways until rest(). InternalError on other
  // ranks. When a rank is lost or a step fails, all answers end with FinishReason::failed, submit() throws what
  // happened, and failure() is it.
  Generator& generator();
  std::exception_ptr failure() const;

  // On rank 0, after generator(): answers under way end with FinishReason::cancelled, and the other ranks' follow()
  // returns. The next generator() begins anew.
  void rest();

  // Of the other ranks: computes what rank 0 orders, and returns when it has ended.
  void follow();

  std::int64_t cache_tokens() const;              // of a replica
  std::int64_t cache_bytes() const;               // on this rank
  const std::vector<std::int64_t>& ends() const;  // tokens that end an answer
  const std::vector<std::string>& notes() const;  // for people, one line each
  std::int64_t num_parameters() const;
  const RecordedSteps& recorded_steps() const;  // of this rank

 private:
  class Ranks;
  class Answers;
  std::unique_ptr<Ranks> ranks_;
  std::unique_ptr<Answers> answers_;  // on rank 0, from generator() to rest()
};

}  // namespace orthant
