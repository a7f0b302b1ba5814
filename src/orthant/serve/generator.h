// What answers requests for text, as everything above it sees it: the engine that runs a model over ranks is one, a
// test may be another. Requests and answers are tokens; what turns them into texts is above. Pure.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "orthant/serve/sampling.h"

namespace orthant {

struct GenerationRequest {
  std::uint64_t id = 0;  // chosen by whoever submits it; no two running requests have the same
  std::vector<std::int64_t> prompt;
  SamplingParams sampling;
};

struct TokenLogprob {
  std::int64_t token = 0;
  double logprob = 0;
};

struct GeneratedToken {
  std::int64_t token = 0;
  double logprob = 0;                   // of the model's distribution before temperature and filters
  std::vector<TokenLogprob> most = {};  // the most probable ones, as many as SamplingParams::logprobs asks for
};

enum class FinishReason : std::uint8_t {
  stop,       // an end or stop token, which is not part of the answer, or the sink wanted no more
  length,     // max_tokens, or the model has no further position
  cancelled,  // cancel() was called
  failed,     // see the error
};

// Takes the answer of one request. Called by the generator's thread, one call at a time; must not block for long.
class TokenSink {
 public:
  virtual ~TokenSink() = default;
  // False: no more tokens are wanted, and the answer ends with FinishReason::stop.
  virtual bool token(const GeneratedToken& token) = 0;
  // Called once, last. `error` says why with FinishReason::failed.
  virtual void finished(FinishReason reason, const std::string& error) = 0;
};

// What a generator can hold, and holds now.
struct GeneratorLoad {
  std::int64_t cache_tokens = 0;  // tokens of all running requests that fit into its cache
  std::int64_t used_cache_tokens = 0;
  std::int64_t running = 0;           // requests whose tokens are being made
  std::int64_t waiting = 0;           // requests without a place in the cache
  std::int64_t preempted = 0;         // so far: requests that lost their place and were computed again
  std::int64_t prompt_tokens = 0;     // so far
  std::int64_t generated_tokens = 0;  // so far
};

class Generator {
 public:
  virtual ~Generator() = default;
  // Begins an answer. ConfigError for sampling options, DataError for a prompt that is empty, has ids the model does
  // not know, or leaves no room for an answer; then the sink is never called. Any thread; returns at once.
  virtual void submit(GenerationRequest request, std::shared_ptr<TokenSink> sink) = 0;
  // Requests that are submitted between the two begin together, at the end. Any thread.
  virtual void hold_requests() {}
  virtual void release_requests() {}
  // The request's place in the cache is free at once. No request of that id: nothing happens. Any thread.
  virtual void cancel(std::uint64_t id) = 0;
  // Any thread.
  virtual GeneratorLoad load() const = 0;
  virtual std::int64_t most_tokens() const = 0;  // of a prompt and its answer together
};

}  // namespace orthant
