#include "orthant/cli/generate_questions.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "orthant/base/error.h"
#include "orthant/cli/option_parser.h"
#include "orthant/files/whole_file.h"

namespace orthant::cli {
namespace {

constexpr std::int64_t kMostAnswers = 4096;

// Of a request; here they are those of the command line, alike for all prompts.
constexpr const char* kForAll[] = {"temperature", "top_k", "top_p",    "min_p", "repetition_penalty",
                                   "stop",        "seed",  "logprobs", "n"};

// What is wrong with the prompt of an object; empty: nothing.
std::string read_tokens(const nlohmann::json& line, PromptGiven& prompt) {
  if (const auto text = line.find("prompt"); text != line.end()) {
    if (!text->is_string()) return "its prompt is no text";
    prompt.text = text->get<std::string>();
    return {};
  }
  const auto ids = line.find("token_ids");
  if (ids == line.end()) return "it has neither prompt nor token_ids";
  if (!ids->is_array()) return "its token_ids are no list";
  for (const auto& id : *ids) {
    const bool known = id.is_number_integer() && id >= 0 && id <= std::numeric_limits<std::int32_t>::max();
    if (!known) return fmt::format("its token_ids hold {}", id.dump());
    prompt.ids.push_back(id.get<std::int64_t>());
  }
  return {};
}

// What is wrong with the line; empty: nothing.
std::string read_prompt(const std::string& line, PromptGiven& prompt) {
  const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return "it is no JSON";
  if (json.is_string()) {
    prompt.text = json.get<std::string>();
    return {};
  }
  if (!json.is_object()) return "it is neither a text nor an object";
  if (const auto most = json.find("max_tokens"); most != json.end()) {
    if (!most->is_number_integer() || *most < 1 || *most > std::numeric_limits<std::int32_t>::max()) {
      return fmt::format("its max_tokens is {}", most->dump());
    }
    prompt.max_tokens = most->get<std::int64_t>();
  }
  for (const char* name : kForAll) {
    if (json.contains(name)) return fmt::format("it has {}, which the command line has for all prompts", name);
  }
  return read_tokens(json, prompt);
}

}  // namespace

SamplingParams SamplingOptions::checked() const {
  SamplingParams all = params;
  const auto within = [](const char* name, std::int64_t value, std::int64_t least) {
    if (value >= least && value <= std::numeric_limits<int>::max()) return static_cast<int>(value);
    throw ConfigError(fmt::format("{} is {}", name, value), {.remedy = fmt::format("use {} or more", least)});
  };
  all.top_k = within("--top-k", top_k, 0);
  all.logprobs = within("--logprobs", logprobs, -1);
  all.seed = static_cast<std::uint64_t>(seed);
  if (answers < 1 || answers > kMostAnswers) {
    throw ConfigError(fmt::format("--n is {}", answers), {.remedy = fmt::format("use 1 to {}", kMostAnswers)});
  }
  for (const auto& text : stop) {
    if (text.empty()) throw ConfigError("--stop is empty", {.remedy = "give a text, or leave it out"});
  }
  check(all);
  return all;
}

void add_sampling_options(OptionParser& app, SamplingOptions& options) {
  app.add_option("--max-tokens", options.params.max_tokens, "tokens of an answer at most (default 128)");
  app.add_option("--temperature", options.params.temperature,
                 "1: as probable as the model says, smaller: safer, 0: always the most probable token (default 1)");
  app.add_option("--top-k", options.top_k, "draw from so many of the most probable tokens (default: from all)");
  app.add_option("--top-p", options.params.top_p,
                 "draw from the most probable tokens whose probabilities add up to it (default 1)");
  app.add_option("--min-p", options.params.min_p,
                 "draw from tokens at least this part as probable as the most probable one (default 0)");
  app.add_option("--repetition-penalty", options.params.repetition_penalty,
                 "above 1: tokens that prompt or answer have become less probable (default 1)");
  app.add_option("--stop", options.stop, "the answer ends before this text; may be given several times").take_all();
  app.add_option("--seed", options.seed, "equal seeds give equal answers, on any mesh (default 0)");
  app.add_option("--n", options.answers, "answers to each prompt, with seeds that follow each other (default 1)");
  app.add_option("--logprobs", options.logprobs,
                 "tell the log-probability of every token, and of so many of the most probable ones (with --json)");
}

PromptFile read_prompts(const std::string& path) {
  const std::string text = read_text_file(path);
  PromptFile found;
  std::size_t begin = 0;
  for (std::int64_t number = 1; begin < text.size(); ++number) {
    const auto end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    PromptGiven prompt;
    if (const auto fault = read_prompt(line, prompt); !fault.empty()) {
      found.bad.push_back({number, fault});
      continue;
    }
    found.prompts.push_back(std::move(prompt));
    found.lines.push_back(number);
  }
  if (found.prompts.empty()) {
    const auto first = found.bad.empty() ? std::string("it is empty")
                                         : fmt::format("line {}: {}", found.bad.front().line, found.bad.front().error);
    throw DataError(fmt::format("{}: has no prompt; {}", path, first),
                    {.remedy = "write one JSON text, {\"prompt\": ...} or {\"token_ids\": [...]} a line"});
  }
  return found;
}

}  // namespace orthant::cli
