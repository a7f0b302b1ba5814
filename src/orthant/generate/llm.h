// A language model that answers prompts, for programs: one object on every rank of the mesh, and a call for a list of
// prompts. The command `orthant generate` is the same engine.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "orthant/generate/engine.h"
#include "orthant/generate/questions.h"
#include "orthant/launch/job.h"

namespace orthant {

struct LLMOptions {
  launch::Job job = {};  // orthant::join(), on a mesh of several ranks
  DType dtype = DType::float32;
  at::Device device = at::kCPU;
  std::int64_t cache_tokens = 0;  // see GenerationOptions, as for the others
  std::int64_t most_running = 64;
  std::int64_t step_tokens = 0;
  double timeout_seconds = 300;
};

class LLM {
 public:
  // `folder`: a Hugging Face folder, or a checkpoint of a training on any mesh, with its tokenizer. Collective over the
  // mesh, as is all that follows. ConfigError for a mesh that a generation cannot have or a job of other ranks,
  // DataError for files.
  explicit LLM(const std::string& folder, const Mesh& mesh = {}, const LLMOptions& options = {});
  ~LLM();
  LLM(const LLM&) = delete;
  LLM& operator=(const LLM&) = delete;

  struct Output {
    std::string prompt;
    std::string text;
    std::vector<std::int64_t> token_ids;
    FinishReason reason = FinishReason::length;
  };

  // In the order of the prompts, on every rank; all ranks give the same ones. DataError for a prompt that cannot be
  // answered, which names it.
  std::vector<Output> generate(const std::vector<std::string>& prompts, const SamplingParams& sampling = {},
                               const std::vector<std::string>& stop_texts = {});

 private:
  std::vector<Question> questions_of(const std::vector<std::string>& prompts, const SamplingParams& sampling,
                                     const std::vector<std::string>& stop_texts) const;

  std::shared_ptr<comm::Communicator> communicator_;  // null on one rank
  std::optional<Tokenizer> tokenizer_;
  std::unique_ptr<Engine> engine_;
};

// The tokenizer that lies with a model. DataError where there is none.
Tokenizer tokenizer_of(const StoredModel& model);

}  // namespace orthant
