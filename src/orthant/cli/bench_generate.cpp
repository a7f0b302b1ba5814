// orthant bench generate: how long a model needs for prompts and for each further token, by how many texts it works on
// side by side.
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>

#include "orthant/base/error.h"
#include "orthant/base/json_text.h"
#include "orthant/base/random.h"
#include "orthant/cli/bench.h"
#include "orthant/cli/generation_setup.h"
#include "orthant/cli/model_texts.h"
#include "orthant/cli/option_parser.h"
#include "orthant/generate/engine.h"
#include "orthant/generate/questions.h"
#include "orthant/models/model_config.h"
#include "orthant/train/recorded_steps.h"

namespace orthant::cli {
namespace {

struct BenchGiven {
  GenerationSetup setup;
  std::vector<std::string> batch;
  std::int64_t prompt = 128;
  std::int64_t tokens = 128;
  std::int64_t rounds = 2;
  bool json = false;
};

struct BatchTimes {
  std::int64_t batch = 0;
  double prefill_seconds = 0;  // to the first token of all texts
  double whole_seconds = 0;    // to the last one
};

std::vector<std::int64_t> batches_of(const BenchGiven& given) {
  std::vector<std::int64_t> batches;
  for (const auto& word : given.batch.empty() ? std::vector<std::string>{"1", "8", "32"} : given.batch) {
    const bool number = !word.empty() && word.size() < 7 && word.find_first_not_of("0123456789") == std::string::npos;
    if (!number || std::stoll(word) == 0) {
      throw ConfigError(fmt::format("--batch is \"{}\"", word), {.remedy = "give counts of texts, e.g. 1,8,32"});
    }
    batches.push_back(std::stoll(word));
  }
  return batches;
}

std::vector<Question> questions_of(const BenchGiven& given, std::int64_t batch, std::int64_t tokens,
                                   std::int64_t vocabulary) {
  std::vector<Question> questions(static_cast<std::size_t>(batch));
  for (std::size_t i = 0; i < questions.size(); ++i) {
    const RandomStream stream(i, "bench generate");
    questions[i].sampling = {.temperature = 0, .max_tokens = tokens, .ignore_end = true};
    for (std::int64_t t = 0; t < given.prompt; ++t) {
      const double drawn = stream.uniform(static_cast<std::uint64_t>(t)) * static_cast<double>(vocabulary);
      questions[i].prompt.push_back(std::min(static_cast<std::int64_t>(drawn), vocabulary - 1));
    }
  }
  return questions;
}

// Of the fastest round; the first of all is not counted.
BatchTimes measure(const BenchGiven& given, Generator& generator, std::int64_t batch, std::int64_t vocabulary) {
  const auto seconds_of = [&](std::int64_t tokens) {
    const auto questions = questions_of(given, batch, tokens, vocabulary);
    const auto began = std::chrono::steady_clock::now();
    for (const auto& answer : answer_all(generator, questions, {})) {
      if (answer.reason == FinishReason::failed) throw DataError(answer.error, {.remedy = "use shorter texts"});
    }
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  };
  seconds_of(2);
  BatchTimes times{batch, seconds_of(1), seconds_of(given.tokens)};
  for (std::int64_t round = 1; round < given.rounds; ++round) {
    times.prefill_seconds = std::min(times.prefill_seconds, seconds_of(1));
    times.whole_seconds = std::min(times.whole_seconds, seconds_of(given.tokens));
  }
  return times;
}

void print(const BenchGiven& given, const std::vector<BatchTimes>& all, const Mesh& mesh, const RecordedSteps& steps) {
  auto rows = nlohmann::ordered_json::array();
  for (const auto& times : all) {
    const double token = (times.whole_seconds - times.prefill_seconds) / static_cast<double>(given.tokens - 1);
    rows.push_back({{"batch", times.batch},
                    {"prefill_ms", times.prefill_seconds * 1e3},
                    {"decode_ms_per_token", token * 1e3},
                    {"decode_tokens_per_second", static_cast<double>(times.batch) / token}});
    if (given.json) continue;
    std::cout << fmt::format("batch {:3}: prompts {:.1f} ms, then {:.2f} ms a token ({:.0f} tokens/s)\n", times.batch,
                             times.prefill_seconds * 1e3, token * 1e3, static_cast<double>(times.batch) / token);
  }
  if (!given.json) return;
  std::cout << json_text(nlohmann::ordered_json{
                   {"model", given.setup.model},
                   {"mesh", mesh.to_string()},
                   {"dtype", given.setup.dtype},
                   {"prompt", given.prompt},
                   {"new", given.tokens},
                   {"graphs", {{"recorded", steps.num_recordings()}, {"played", steps.num_played()}}},
                   {"rows", rows}})
            << std::endl;
}

int bench(const BenchGiven& given, RankContext& rank) {
  GenerationRank here(given.setup, rank);
  const auto batches = batches_of(given);
  GenerationOptions options = here.options();
  const auto most = *std::ranges::max_element(batches);
  options.most_running = most;
  if (options.cache_tokens == 0) options.cache_tokens = most * (given.prompt + given.tokens + 16);
  {
    Engine engine(here.model(), options);
    if (rank.is_first()) {
      std::vector<BatchTimes> times;
      for (const auto batch : batches) {
        times.push_back(measure(given, engine.generator(), batch, vocab_size(here.model().config)));
      }
      print(given, times, rank.mesh, engine.recorded_steps());
    } else {
      engine.follow();
    }
  }
  here.close();
  return 0;
}

}  // namespace

int run_bench_generate(const Arguments& arguments, Context& context) {
  OptionParser app(
      "Times of a generation: until all prompts have their first token, and for each further token of all texts. "
      "Tokens "
      "are chosen greedily; answers do not end before their length.",
      "orthant bench generate");
  BenchGiven given;
  RankOptions ranks;
  add_generation_options(app, given.setup);
  app.add_option("--batch", given.batch, "texts side by side (default 1,8,32)").delimiter(',');
  app.add_option("--prompt", given.prompt, "tokens of a prompt (default 128)")
      .check(NumberRange<std::int64_t>(1, 1 << 20));
  app.add_option("--new", given.tokens, "tokens of an answer (default 128)")
      .check(NumberRange<std::int64_t>(2, 1 << 20));
  app.add_option("--rounds", given.rounds, "of which the fastest counts (default 2)")
      .check(NumberRange<std::int64_t>(1, 1000));
  app.add_flag("--json", given.json, "one JSON document on stdout");
  add_rank_options(app, ranks);
  if (!parse(app, arguments, context, example::kBenchGenerate)) return 0;
  batches_of(given);
  check_generation_setup(given.setup, ranks);
  return run_on_ranks(ranks, context, 1, [&](RankContext& rank) { return bench(given, rank); });
}

}  // namespace orthant::cli
