#include "orthant/generate/llm.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <utility>

#include "orthant/base/error.h"
#include "orthant/comm/control_group.h"
#include "orthant/generate/generation_stages.h"

namespace orthant {
namespace {

std::shared_ptr<comm::Communicator> connect(const Mesh& mesh, const LLMOptions& options) {
  if (mesh.world_size() == 1) return nullptr;
  check_generation_mesh(mesh);
  if (options.job.world_size == 1) {
    throw ConfigError(fmt::format("mesh {} in a program of one rank", mesh.to_string()),
                      {.remedy = "set LLMOptions::job to orthant::join() and start it with orthant launch"});
  }
  comm::CommOptions comm;
  comm.device = options.device;
  comm.bind_address = options.job.rendezvous.bind_address;
  comm.timeout_seconds = options.timeout_seconds;
  const auto groups = generation_groups(mesh);
  return comm::make_communicator(mesh, options.job, comm, groups.axes, groups.subsets);
}

// An answer as plain numbers: its reason, then its tokens.
at::Tensor numbers_of(const std::vector<Answer>& answers) {
  std::vector<std::int64_t> numbers;
  for (const auto& answer : answers) {
    numbers.push_back(static_cast<std::int64_t>(answer.reason));
    numbers.push_back(static_cast<std::int64_t>(answer.tokens.size()));
    for (const auto& token : answer.tokens) numbers.push_back(token.token);
  }
  return at::tensor(numbers, at::kLong);
}

std::string all_texts(const std::vector<Answer>& answers) {
  std::string texts;
  for (const auto& answer : answers) texts += fmt::format("{}:{}", answer.text.size(), answer.text);
  return texts;
}

std::string next_text(std::string_view& texts) {
  const auto colon = texts.find(':');
  const auto size = static_cast<std::size_t>(std::stoull(std::string(texts.substr(0, colon))));
  std::string text(texts.substr(colon + 1, size));
  texts.remove_prefix(colon + 1 + size);
  return text;
}

}  // namespace

Tokenizer tokenizer_of(const StoredModel& model) {
  if (!holds_tokenizer_files(model.companions)) {
    throw DataError(fmt::format("{}: no tokenizer lies there", model.companions.string()),
                    {.remedy = "put the model's tokenizer.json there"});
  }
  return Tokenizer::load(tokenizer_folder(model.companions, ""));
}

LLM::LLM(const std::string& folder, const Mesh& mesh, const LLMOptions& options)
    : communicator_(connect(mesh, options)) {
  const ControlGroup ranks(communicator_);
  StoredModel model;
  ranks.together([&] {
    model = find_stored_model(folder);
    tokenizer_ = tokenizer_of(model);
  });
  engine_ = std::make_unique<Engine>(model, GenerationOptions{.dtype = options.dtype,
                                                              .device = options.device,
                                                              .mesh = mesh,
                                                              .communicator = communicator_,
                                                              .timeout_seconds = options.timeout_seconds,
                                                              .cache_tokens = options.cache_tokens,
                                                              .most_running = options.most_running,
                                                              .step_tokens = options.step_tokens});
}

// Nobody follows between calls of generate(), so that nothing is to be told.
LLM::~LLM() = default;

std::vector<Question> LLM::questions_of(const std::vector<std::string>& prompts, const SamplingParams& sampling,
                                        const std::vector<std::string>& stop_texts) const {
  std::vector<Question> questions;
  for (const auto& prompt : prompts) {
    const auto ids = tokenizer_->encode(prompt);
    questions.push_back({{ids.begin(), ids.end()}, sampling, stop_texts});
  }
  return questions;
}

std::vector<LLM::Output> LLM::generate(const std::vector<std::string>& prompts, const SamplingParams& sampling,
                                       const std::vector<std::string>& stop_texts) {
  const ControlGroup ranks(communicator_);
  std::vector<Answer> answers;
  std::exception_ptr failure;
  if (ranks.is_first()) {
    Generator& generator = engine_->generator();
    try {
      answers = answer_all(generator, questions_of(prompts, sampling, stop_texts), tokenizer_);
      failure = engine_->failure();
    } catch (const Error&) {
      failure = std::current_exception();
    }
    engine_->rest();
  } else {
    engine_->follow();
  }
  ranks.together([&] {
    if (failure) std::rethrow_exception(failure);
    for (std::size_t i = 0; i < answers.size(); ++i) {
      if (answers[i].reason != FinishReason::failed) continue;
      throw DataError(fmt::format("prompt {}: {}", i, answers[i].error), {.remedy = "leave it out, or change it"});
    }
  });
  const auto numbers = ranks.gather(numbers_of(answers)).front();
  const auto texts = ranks.from_first(all_texts(answers));
  std::vector<Output> outputs;
  const auto* next = numbers.const_data_ptr<std::int64_t>();
  std::string_view left = texts;
  for (const auto& prompt : prompts) {
    Output output{prompt, next_text(left), {}, static_cast<FinishReason>(next[0])};
    output.token_ids.assign(next + 2, next + 2 + next[1]);
    next += 2 + next[1];
    outputs.push_back(std::move(output));
  }
  return outputs;
}

}  // namespace orthant
