#include "orthant/serve/api/completion_request.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>

#include "orthant/base/error.h"
#include "orthant/base/json_document.h"
#include "orthant/base/json_reader.h"
#include "orthant/serve/api/chat_messages.h"

namespace orthant {
namespace {

using BodyJson = nlohmann::json;

constexpr std::int64_t kMostAnswers = 128;
constexpr std::size_t kMostPrompts = 256;
constexpr std::size_t kMostStops = 16;
constexpr std::size_t kLongestStop = 256;

// Names that clients send and that change nothing here.
constexpr const char* kWithoutEffect[] = {
    "user",     "store", "metadata", "service_tier", "safety_identifier", "prompt_cache_key", "parallel_tool_calls",
    "verbosity"};

[[noreturn]] void refuse(const std::string& name, const std::string& message) {
  throw ApiError(400, message, name);
}

// Whether a value asks for what happens anyway.
bool is_neutral(const BodyJson& value, const BodyJson& neutral) {
  return value.is_null() || value == neutral || (value.is_array() && value.empty()) ||
         (value.is_object() && value.empty());
}

void refuse_unsupported(JsonReader& body, const char* name, const BodyJson& neutral, const char* why) {
  if (!body.has(name)) return;
  if (!is_neutral(body.require_raw(name), neutral)) refuse(name, fmt::format("{} is not supported: {}", name, why));
}

std::vector<std::string> read_stops(JsonReader& body) {
  std::vector<std::string> stops;
  if (!body.has("stop")) return stops;
  const auto& value = body.require_raw("stop");
  const auto add = [&](const BodyJson& one) {
    if (!one.is_string()) refuse("stop", "stop is a text or a list of texts");
    const auto& text = one.get_ref<const std::string&>();
    if (text.empty() || text.size() > kLongestStop) {
      refuse("stop", fmt::format("a stop text has between 1 and {} bytes", kLongestStop));
    }
    stops.push_back(text);
  };
  if (value.is_array()) {
    for (const auto& one : value) add(one);
  } else if (!value.is_null()) {
    add(value);
  }
  if (stops.size() > kMostStops) refuse("stop", fmt::format("at most {} stop texts", kMostStops));
  return stops;
}

std::uint64_t random_seed() {
  std::random_device device;
  return (static_cast<std::uint64_t>(device()) << 32) | device();
}

int read_count(JsonReader& body, const char* name, std::int64_t fallback, std::int64_t least, std::int64_t most) {
  const auto value = body.find<std::int64_t>(name).value_or(fallback);
  if (value < least || value > most) refuse(name, fmt::format("{} is {}: use {} to {}", name, value, least, most));
  return static_cast<int>(value);
}

std::int64_t read_max_tokens(JsonReader& body, std::initializer_list<const char*> names, std::int64_t fallback) {
  std::optional<std::int64_t> most;
  for (const auto* name : names) {
    const auto value = body.find<std::int64_t>(name);
    if (value && *value < 1) refuse(name, fmt::format("{} is {}: ask for at least one token", name, *value));
    if (value) most = value;
  }
  return most.value_or(fallback);
}

void read_common(JsonReader& body, const ServedModel& model, CompletionRequest& request) {
  if (const auto name = body.find<std::string>("model"); name && *name != model.name) {
    throw ApiError(404, fmt::format("the model '{}' is not served here: use '{}'", *name, model.name), "model",
                   "model_not_found");
  }
  auto& sampling = request.sampling;
  sampling.temperature = body.find<double>("temperature").value_or(1.0);
  sampling.top_p = body.find<double>("top_p").value_or(1.0);
  sampling.top_k =
      static_cast<int>(std::clamp<std::int64_t>(body.find<std::int64_t>("top_k").value_or(0), -1, 1 << 30));
  if (sampling.top_k == -1) sampling.top_k = 0;  // what other servers call all tokens
  sampling.min_p = body.find<double>("min_p").value_or(0.0);
  sampling.repetition_penalty = body.find<double>("repetition_penalty").value_or(1.0);
  sampling.ignore_end = body.find<bool>("ignore_eos").value_or(false);
  sampling.stop_tokens = body.find<std::vector<std::int64_t>>("stop_token_ids").value_or(std::vector<std::int64_t>());
  const auto seed = body.find<std::int64_t>("seed");
  sampling.seed = seed ? static_cast<std::uint64_t>(*seed) : random_seed();
  request.num_answers = read_count(body, "n", 1, 1, kMostAnswers);
  request.stop_texts = read_stops(body);
  request.stream = body.find<bool>("stream").value_or(false);
  if (body.has("stream_options") && !body.is_null("stream_options")) {
    if (!request.stream) refuse("stream_options", "stream_options without stream");
    auto options = body.object("stream_options");
    request.include_usage = options.find<bool>("include_usage").value_or(false);
    options.find<bool>("include_obfuscation");
  }
  refuse_unsupported(body, "presence_penalty", 0, "use repetition_penalty");
  refuse_unsupported(body, "frequency_penalty", 0, "use repetition_penalty");
  refuse_unsupported(body, "logit_bias", nullptr, "leave it out");
  refuse_unsupported(body, "response_format", {{"type", "text"}}, "answers are texts");
  for (const auto* name : kWithoutEffect) {
    if (body.has(name)) body.require_raw(name);
  }
}

void check_options(const CompletionRequest& request) {
  try {
    check(request.sampling);
  } catch (const ConfigError& error) {
    const auto name = error.message().substr(0, error.message().find(' '));
    throw ApiError(400, error.message() + ": " + error.remedy(), name);
  }
}

// The document of the body, and ApiErrors for what it is not.
template <class Read>
CompletionRequest read_body(const std::string& text, const Read& read) {
  try {
    const auto document = JsonDocument::parse(text, {.source = "body"});
    JsonReader body(document);
    auto request = read(body);
    body.finish();
    check_options(request);
    return request;
  } catch (const ConfigError& error) {
    throw ApiError(400, error.remedy().empty() ? error.message() : error.message() + ": " + error.remedy());
  }
}

std::vector<std::int64_t> encode(const ServedModel& model, const std::string& text, bool special) {
  const auto ids = model.tokenizer.encode(text, {.special = special});
  return {ids.begin(), ids.end()};
}

std::vector<std::int64_t> tokens_of(const BodyJson& list, std::int64_t vocabulary) {
  std::vector<std::int64_t> tokens;
  for (const auto& one : list) {
    const auto token = one.is_number_integer() ? one.get<std::int64_t>() : -1;
    if (token < 0) refuse("prompt", "a list of tokens holds what is no token");
    if (token > INT32_MAX || token >= vocabulary) {
      refuse("prompt", fmt::format("token {} is not in the vocabulary of {}", token, vocabulary));
    }
    tokens.push_back(token);
  }
  return tokens;
}

std::string text_of_tokens(const ServedModel& model, const std::vector<std::int64_t>& tokens) {
  return model.tokenizer.decode(std::vector<std::int32_t>(tokens.begin(), tokens.end()), /*skip_special=*/true);
}

void add_prompt(const BodyJson& prompt, const ServedModel& model, CompletionRequest& request) {
  if (prompt.is_string()) {
    request.prompts.push_back(encode(model, prompt.get_ref<const std::string&>(), true));
    if (request.echo) request.prompt_texts.push_back(prompt.get<std::string>());
    return;
  }
  request.prompts.push_back(tokens_of(prompt, std::max<std::int64_t>(model.tokenizer.vocab_size(), model.vocabulary)));
  if (request.echo) request.prompt_texts.push_back(text_of_tokens(model, request.prompts.back()));
}

void read_prompts(JsonReader& body, const ServedModel& model, CompletionRequest& request) {
  const auto& prompt = body.require_raw("prompt");
  if (!prompt.is_string() && !prompt.is_array()) refuse("prompt", "prompt is a text, a list of texts, or tokens");
  const bool several = prompt.is_array() && !prompt.empty() && !prompt[0].is_number();
  if (!several) return add_prompt(prompt, model, request);
  if (prompt.size() > kMostPrompts) refuse("prompt", fmt::format("at most {} prompts at once", kMostPrompts));
  for (const auto& one : prompt) {
    if (!one.is_string() && !one.is_array()) refuse("prompt", "prompt is a text, a list of texts, or tokens");
    add_prompt(one, model, request);
  }
}

void check_room(const CompletionRequest& request, const ServedModel& model) {
  const auto* name = request.chat ? "messages" : "prompt";
  for (const auto& prompt : request.prompts) {
    if (prompt.empty()) refuse(name, "the prompt is empty: give at least one token");
    if (static_cast<std::int64_t>(prompt.size()) < model.most_tokens) continue;
    throw ApiError(400,
                   fmt::format("the prompt has {} tokens; with at least one of an answer the model takes at most {}",
                               prompt.size(), model.most_tokens),
                   name, "context_length_exceeded");
  }
}

}  // namespace

CompletionRequest read_completion(const std::string& text, const ServedModel& model) {
  auto request = read_body(text, [&](JsonReader& body) {
    CompletionRequest read;
    read_common(body, model, read);
    read.sampling.max_tokens = read_max_tokens(body, {"max_tokens"}, 16);
    read.echo = body.find<bool>("echo").value_or(false);
    if (const auto logprobs = body.find<std::int64_t>("logprobs")) {
      read.logprobs = true;
      read.sampling.logprobs = static_cast<int>(std::clamp<std::int64_t>(*logprobs, -2, 1 << 20));
      if (read.sampling.logprobs < 0)
        refuse("logprobs", fmt::format("logprobs is {}: use 0 to {}", *logprobs, kMostLogprobs));
    }
    if (read.echo && read.logprobs) refuse("echo", "echo together with logprobs is not supported: leave one out");
    if (const auto best = body.find<std::int64_t>("best_of"); best && *best != read.num_answers) {
      refuse("best_of", "best_of is not supported: use n, and choose among the answers");
    }
    refuse_unsupported(body, "suffix", "", "these models only go on with a text");
    read_prompts(body, model, read);
    return read;
  });
  check_room(request, model);
  return request;
}

CompletionRequest read_chat(const std::string& text, const ServedModel& model) {
  auto request = read_body(text, [&](JsonReader& body) {
    CompletionRequest read;
    read.chat = true;
    read_common(body, model, read);
    read.logprobs = body.find<bool>("logprobs").value_or(false);
    const auto top = read_count(body, "top_logprobs", 0, 0, kMostLogprobs);
    if (top > 0 && !read.logprobs) refuse("top_logprobs", "top_logprobs without logprobs: true");
    if (read.logprobs) read.sampling.logprobs = top;
    refuse_unsupported(body, "modalities", BodyJson::array({"text"}), "answers are texts");
    for (const auto* name : {"functions", "function_call", "audio", "prediction", "web_search_options"}) {
      refuse_unsupported(body, name, nullptr, "leave it out");
    }
    read.prompts.push_back(encode(model, chat_prompt(body, text, model.chat), false));
    const auto room = model.most_tokens - static_cast<std::int64_t>(read.prompts[0].size());
    read.sampling.max_tokens =
        read_max_tokens(body, {"max_tokens", "max_completion_tokens"}, std::max<std::int64_t>(1, room));
    return read;
  });
  check_room(request, model);
  return request;
}

std::uint64_t seed_of_answer(std::uint64_t seed, std::size_t answer) {
  return seed + answer;
}

}  // namespace orthant
