// A generation by kernels, on a card and on the emulated one: against plain formulas, and recorded steps against steps
// that run as they are.
#include "orthant/generate/engine.h"

#include <ATen/ATen.h>

#include "checkpoint/model_on_disk.h"
#include "ops/card.h"
#include "orthant/generate/questions.h"
#include "orthant/train/recorded_steps.h"

namespace orthant {
namespace engine_device_test {

constexpr const char* kLlama = R"({"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "head_dim": 16,
  "num_key_value_heads": 2, "num_hidden_layers": 2, "intermediate_size": 96, "vocab_size": 93,
  "max_position_embeddings": 512})";
constexpr const char* kGpt2 = R"({"model_type": "gpt2", "n_embd": 64, "n_head": 4, "n_layer": 2, "vocab_size": 93,
  "n_positions": 512, "n_inner": 96})";

// Where there is no card: plays a recording by doing its work again.
class Again : public DeviceRecording {
 public:
  explicit Again(std::function<void()> work) : work_(std::move(work)) {}
  void play() override { work_(); }

 private:
  std::function<void()> work_;
};
class AgainRecorder : public DeviceRecorder {
 public:
  std::unique_ptr<DeviceRecording> record(const std::function<void()>& work) override {
    return std::make_unique<Again>(work);
  }
  void cut(std::function<void()> /*between*/) override { throw std::logic_error("nothing is recorded in pieces"); }
};
class NoRecorder : public DeviceRecorder {
 public:
  std::unique_ptr<DeviceRecording> record(const std::function<void()>& /*work*/) override {
    throw std::runtime_error("nothing is recorded");
  }
  void cut(std::function<void()> /*between*/) override {}
};

GenerationOptions options_of(bool records) {
  GenerationOptions options{.dtype = DType::bfloat16, .device = test::card(), .cache_tokens = 2048, .most_running = 8};
  if (!records) options.make_recorder = [] { return std::make_unique<NoRecorder>(); };
  if (records && test::card().is_cpu()) options.make_recorder = [] { return std::make_unique<AgainRecorder>(); };
  return options;
}

std::vector<Question> questions(int count, std::int64_t longest, const SamplingParams& sampling) {
  std::vector<Question> all;
  for (int i = 0; i < count; ++i) {
    Question question{.prompt = {}, .sampling = sampling};
    question.sampling.seed = static_cast<std::uint64_t>(i);
    question.sampling.max_tokens = sampling.max_tokens + i % 3;
    for (std::int64_t t = 0; t < 1 + (i * 7) % longest; ++t) question.prompt.push_back((i * 31 + t * 17) % 93);
    all.push_back(std::move(question));
  }
  return all;
}

struct Answered {
  std::vector<Answer> answers;
  std::size_t played = 0;
};

Answered run(const char* model, const GenerationOptions& options, const std::vector<Question>& asked) {
  const ModelOnDisk disk(model);
  disk.write();
  Engine engine(find_stored_model(disk.folder), options);
  Answered made{answer_all(engine.generator(), asked, {}), 0};
  made.played = engine.recorded_steps().num_played();
  return made;
}

std::vector<std::int64_t> tokens_of(const Answer& answer) {
  std::vector<std::int64_t> tokens;
  for (const auto& token : answer.tokens) tokens.push_back(token.token);
  return tokens;
}

void expect_equal(const std::vector<Answer>& got, const std::vector<Answer>& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].error, "");
    EXPECT_EQ(tokens_of(got[i]), tokens_of(wanted[i])) << "answer " << i;
  }
}

TEST(EngineDevice, RecordedStepsGiveTheTokensOfStepsThatRunAsTheyAre) {
  const SamplingParams greedy{.temperature = 0, .max_tokens = 6};
  for (const char* model : {kLlama, kGpt2}) {
    const auto asked = questions(5, 20, greedy);
    const Answered played = run(model, options_of(true), asked), plain = run(model, options_of(false), asked);
    expect_equal(played.answers, plain.answers);
    EXPECT_GT(played.played, 0U);
    EXPECT_EQ(plain.played, 0U);
  }
}

TEST(EngineDevice, SampledTokensAreThoseOfRequestsAlone) {
  SamplingParams drawn{.temperature = 0.8, .top_k = 12, .top_p = 0.9, .max_tokens = 5};
  auto asked = questions(4, 12, drawn);
  asked[1].sampling.top_k = 0;
  asked[2].sampling.repetition_penalty = 1.3;
  asked[3].sampling.logprobs = 2;
  const Answered together = run(kLlama, options_of(true), asked);
  for (std::size_t i = 0; i < asked.size(); ++i) {
    const Answered alone = run(kLlama, options_of(true), {asked[i]});
    EXPECT_EQ(tokens_of(alone.answers[0]), tokens_of(together.answers[i])) << i;
  }
}

// What plain formulas say of each token that the kernels have chosen.
TEST(EngineDevice, LogProbabilitiesAreThoseOfPlainFormulas) {
  const SamplingParams greedy{.temperature = 0, .max_tokens = 4, .logprobs = 0};
  for (const char* model : {kLlama, kGpt2}) {
    const auto asked = questions(4, 40, greedy);
    const auto got = run(model, options_of(true), asked).answers;
    std::vector<Question> continued;
    for (std::size_t i = 0; i < asked.size(); ++i) {
      for (std::size_t t = 0; t < got[i].tokens.size(); ++t) {
        Question next{.prompt = asked[i].prompt, .sampling = greedy};
        for (std::size_t before = 0; before < t; ++before) next.prompt.push_back(got[i].tokens[before].token);
        next.sampling.max_tokens = 1;
        next.sampling.logprobs = kMostLogprobs;
        continued.push_back(std::move(next));
      }
    }
    std::vector<Answer> wanted;
    test::on_cpu([&] { wanted = run(model, {.dtype = DType::float32, .cache_tokens = 4096}, continued).answers; });
    std::size_t at = 0;
    for (const auto& answer : got) {
      for (const auto& token : answer.tokens) {
        const auto& most = wanted[at++].tokens.at(0).most;
        const auto found = std::ranges::find(most, token.token, &TokenLogprob::token);
        ASSERT_NE(found, most.end());
        EXPECT_NEAR(token.logprob, found->logprob, 0.1);
      }
    }
  }
}

}  // namespace engine_device_test
}  // namespace orthant
