// orthant generate: a stored model goes on with texts.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "orthant/base/error.h"
#include "orthant/base/human.h"
#include "orthant/base/json_text.h"
#include "orthant/base/printable.h"
#include "orthant/cli/dtype_option.h"
#include "orthant/cli/generate_questions.h"
#include "orthant/cli/generation_setup.h"
#include "orthant/cli/model_texts.h"
#include "orthant/cli/option_parser.h"
#include "orthant/cli/rank_command.h"
#include "orthant/generate/llm.h"
#include "orthant/serve/prompt_file.h"

namespace orthant::cli {
namespace {

struct GenerateGiven {
  GenerationSetup setup;
  SamplingOptions sampling;
  std::string prompt;
  std::string prompts;
  bool has_prompt = false;
  bool json = false;
  std::string terminal;  // "yes" where stdout of the whole command is one: ranks have a pipe
};

// All that is asked, and where it came from.
struct Asked {
  PromptFile file;
  std::vector<Question> questions;     // answers to a prompt side by side
  std::optional<Tokenizer> tokenizer;  // nothing: the model has none
};

PromptFile prompts_of(const GenerateGiven& given) {
  if (!given.has_prompt) return read_prompts(given.prompts);
  return {.prompts = {{.text = given.prompt, .ids = {}}}, .lines = {1}, .bad = {}};
}

Asked ask(const GenerateGiven& given, const StoredModel& model) {
  Asked asked{prompts_of(given), {}, {}};
  if (holds_tokenizer_files(model.companions)) asked.tokenizer = tokenizer_of(model);
  const bool texts =
      std::ranges::any_of(asked.file.prompts, [](const PromptGiven& one) { return one.text.has_value(); });
  if (!asked.tokenizer && (texts || !given.sampling.stop.empty())) tokenizer_of(model);  // throws: it has none
  const SamplingParams params = given.sampling.checked();
  for (const auto& prompt : asked.file.prompts) {
    Question question{prompt.ids, params, given.sampling.stop};
    if (prompt.max_tokens) question.sampling.max_tokens = *prompt.max_tokens;
    if (prompt.text) {
      const auto ids = asked.tokenizer->encode(*prompt.text);
      question.prompt.assign(ids.begin(), ids.end());
    }
    for (std::int64_t i = 0; i < given.sampling.answers; ++i) {
      question.sampling.seed = params.seed + static_cast<std::uint64_t>(i);
      asked.questions.push_back(question);
    }
  }
  return asked;
}

nlohmann::ordered_json logprobs_json(const Answer& answer) {
  auto tokens = nlohmann::ordered_json::array();
  for (const auto& token : answer.tokens) {
    auto most = nlohmann::ordered_json::array();
    for (const auto& one : token.most) most.push_back({{"token_id", one.token}, {"logprob", one.logprob}});
    tokens.push_back({{"token_id", token.token}, {"logprob", token.logprob}, {"most_probable", most}});
  }
  return tokens;
}

nlohmann::ordered_json output_json(const GenerateGiven& given, const Asked& asked, std::size_t number,
                                   const Answer& answer) {
  const auto answers = static_cast<std::size_t>(given.sampling.answers);
  const PromptGiven& prompt = asked.file.prompts[number / answers];
  std::vector<std::int64_t> ids;
  for (const auto& token : answer.tokens) ids.push_back(token.token);
  nlohmann::ordered_json output{
      {"prompt", prompt.text ? nlohmann::ordered_json(*prompt.text) : nlohmann::ordered_json()},
      {"text", asked.tokenizer ? nlohmann::ordered_json(answer.text) : nlohmann::ordered_json()},
      {"token_ids", ids},
      {"finish_reason", finish_name(answer.reason)},
      {"prompt_tokens", asked.questions[number].prompt.size()}};
  if (!given.has_prompt) output["line"] = asked.file.lines[number / answers];
  if (given.sampling.logprobs >= 0) output["logprobs"] = logprobs_json(answer);
  return output;
}

// Lines of the file that had no answer, in the order of lines.
std::vector<BadLine> bad_lines(const GenerateGiven& given, const Asked& asked, const std::vector<Answer>& answers) {
  std::vector<BadLine> bad = asked.file.bad;
  const auto each = static_cast<std::size_t>(given.sampling.answers);
  for (std::size_t i = 0; i < answers.size(); i += each) {
    if (answers[i].reason == FinishReason::failed) bad.push_back({asked.file.lines[i / each], answers[i].error});
  }
  std::ranges::sort(bad, {}, &BadLine::line);
  return bad;
}

void print_json(const GenerateGiven& given, const Asked& asked, const std::vector<Answer>& answers,
                const Engine& engine, const Generator& generator, double seconds) {
  auto outputs = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < answers.size(); ++i) {
    if (answers[i].reason != FinishReason::failed) outputs.push_back(output_json(given, asked, i, answers[i]));
  }
  auto errors = nlohmann::ordered_json::array();
  for (const auto& bad : bad_lines(given, asked, answers)) errors.push_back({{"line", bad.line}, {"error", bad.error}});
  const GeneratorLoad load = generator.load();
  std::cout << json_text(nlohmann::ordered_json{{"model", given.setup.model},
                                                {"parameters", engine.num_parameters()},
                                                {"outputs", outputs},
                                                {"errors", errors},
                                                {"cache_tokens", engine.cache_tokens()},
                                                {"cache_bytes", engine.cache_bytes()},
                                                {"prompt_tokens", load.prompt_tokens},
                                                {"generated_tokens", load.generated_tokens},
                                                {"preempted", load.preempted},
                                                {"seconds", seconds}})
            << std::endl;
}

// Exit code 4 where a line had no answer.
int print(const GenerateGiven& given, const Asked& asked, const std::vector<Answer>& answers, const Engine& engine,
          const Generator& generator, double seconds, bool streamed, const Log& log) {
  const auto bad = bad_lines(given, asked, answers);
  if (given.json) {
    print_json(given, asked, answers, engine, generator, seconds);
  } else if (streamed) {
    std::cout << std::endl;
  } else {
    for (std::size_t i = 0; i < answers.size(); ++i) {
      if (answers[i].reason == FinishReason::failed) continue;
      if (!asked.tokenizer) {
        for (const auto& token : answers[i].tokens) std::cout << token.token << ' ';
      }
      const std::string& text = answers[i].text;
      std::cout << (given.terminal.empty() ? text : printable(text, /*keep_lines=*/true)) << '\n';
    }
    std::cout << std::flush;
  }
  for (const auto& line : bad) {
    if (given.has_prompt) throw DataError(line.error, {.remedy = "change the prompt"});
    log.warn(fmt::format("{} line {}: {}", printable(given.prompts), line.line, line.error));
  }
  return bad.empty() ? 0 : 4;
}

int answer(const GenerateGiven& given, const Asked& asked, Engine& engine, Generator& generator, const Log& log) {
  const auto began = std::chrono::steady_clock::now();
  const bool streams = !given.json && asked.questions.size() == 1 && asked.tokenizer && !given.terminal.empty();
  Listener listener;
  if (streams)
    listener = [](std::size_t, const std::string& text) {
      std::cout << printable(text, /*keep_lines=*/true) << std::flush;
    };
  const auto answers = answer_all(generator, asked.questions, asked.tokenizer, listener);
  if (const auto failure = engine.failure()) std::rethrow_exception(failure);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  return print(given, asked, answers, engine, generator, seconds, streams, log);
}

int generate(const GenerateGiven& given, RankContext& rank) {
  GenerationRank here(given.setup, rank);
  Asked asked;
  here.ranks().together([&] {
    if (rank.is_first()) asked = ask(given, here.model());
  });
  int code = 0;
  {
    Engine engine(here.model(), here.options());
    if (rank.is_first()) {
      Generator& generator = engine.generator();
      for (const auto& note : engine.notes()) rank.log.info(note);
      code = answer(given, asked, engine, generator, rank.log);
    } else {
      engine.follow();
    }
  }  // with what it still sends
  here.close();
  return code;
}

}  // namespace

int run_generate(const Arguments& arguments, Context& context) {
  OptionParser app(help::kGenerate, "orthant generate");
  GenerateGiven given;
  RankOptions ranks;
  add_generation_options(app, given.setup);
  auto prompt = app.add_option("--prompt", given.prompt, "text to go on with");
  auto prompts =
      app.add_option("--prompts", given.prompts,
                     "file of JSON lines: a text, {\"prompt\": text} or {\"token_ids\": [...]} each, the objects "
                     "perhaps with \"max_tokens\"");
  prompt.excludes(prompts);
  add_sampling_options(app, given.sampling);
  app.add_flag("--json", given.json, "one JSON document on stdout");
  app.add_option("--terminal", given.terminal, "of ranks that this command has started").group("");
  add_rank_options(app, ranks);
  if (!parse(app, arguments, context, example::kGenerate)) return 0;
  given.has_prompt = prompt.count() > 0;
  if (!given.has_prompt && prompts.count() == 0) {
    throw ConfigError("neither --prompt nor --prompts is given", {.remedy = "give a text, or a file of prompts"});
  }
  given.sampling.checked();
  if (given.sampling.logprobs >= 0 && !given.json) {
    throw ConfigError("--logprobs without --json: a text has no place for them", {.remedy = "add --json"});
  }
  check_generation_setup(given.setup, ranks);
  if (isatty(STDOUT_FILENO) != 0) {
    given.terminal = "yes";
    ranks.rank_words = {"--terminal", given.terminal};
  }
  return run_on_ranks(ranks, context, 1, [&](RankContext& rank) { return generate(given, rank); });
}

}  // namespace orthant::cli
