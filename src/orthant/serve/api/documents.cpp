#include "orthant/serve/api/documents.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "orthant/base/json_text.h"
#include "orthant/serve/text_stream.h"

namespace orthant {
namespace {

using Json = nlohmann::ordered_json;

// JSON has no infinity: what a filter has ruled out is as good as impossible.
double finite(double logprob) {
  return std::isfinite(logprob) ? logprob : -9999.0;
}

Json bytes_list(const std::string& bytes) {
  auto list = Json::array();
  for (const char byte : bytes) list.push_back(static_cast<unsigned char>(byte));
  return list;
}

Json chat_token(const std::string& bytes, double logprob) {
  return {{"token", replace_invalid_utf8(bytes)}, {"logprob", finite(logprob)}, {"bytes", bytes_list(bytes)}};
}

Json chat_logprobs(const std::vector<ChosenToken>& tokens) {
  auto content = Json::array();
  for (const auto& token : tokens) {
    auto entry = chat_token(token.bytes, token.logprob);
    entry["top_logprobs"] = Json::array();
    for (const auto& [bytes, logprob] : token.most) entry["top_logprobs"].push_back(chat_token(bytes, logprob));
    content.push_back(std::move(entry));
  }
  return {{"content", content}, {"refusal", nullptr}};
}

Json text_logprobs(const std::vector<ChosenToken>& tokens) {
  Json out = {{"tokens", Json::array()},
              {"token_logprobs", Json::array()},
              {"top_logprobs", Json::array()},
              {"text_offset", Json::array()}};
  for (const auto& token : tokens) {
    out["tokens"].push_back(replace_invalid_utf8(token.bytes));
    out["token_logprobs"].push_back(finite(token.logprob));
    auto most = Json::object();
    for (const auto& [bytes, logprob] : token.most) {
      auto text = replace_invalid_utf8(bytes);
      if (!most.contains(text)) most[std::move(text)] = finite(logprob);
    }
    out["top_logprobs"].push_back(std::move(most));
    out["text_offset"].push_back(token.begin);
  }
  return out;
}

Json logprobs_of(bool chat, bool asked, const std::vector<ChosenToken>& tokens) {
  if (!asked) return nullptr;
  return chat ? chat_logprobs(tokens) : text_logprobs(tokens);
}

Json begin_document(const AnswerHead& head, bool part) {
  const char* kind = head.chat ? (part ? "chat.completion.chunk" : "chat.completion") : "text_completion";
  return {{"id", head.id}, {"object", kind}, {"created", head.created}, {"model", head.model}};
}

Json usage_json(const Usage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens}};
}

Json reason_json(const std::string& reason) {
  return reason.empty() ? Json(nullptr) : Json(reason);
}

}  // namespace

std::string event_of(const std::string& document) {
  return "data: " + document + "\n\n";
}

std::string whole_document(const AnswerHead& head, const std::vector<Choice>& choices, bool logprobs,
                           const Usage& usage) {
  auto document = begin_document(head, false);
  document["choices"] = Json::array();
  for (std::size_t i = 0; i < choices.size(); ++i) {
    const auto& choice = choices[i];
    Json one = {{"index", i}};
    if (head.chat) {
      one["message"] = {{"role", "assistant"}, {"content", choice.text}, {"refusal", nullptr}};
    } else {
      one["text"] = choice.text;
    }
    one["logprobs"] = logprobs_of(head.chat, logprobs, choice.tokens);
    one["finish_reason"] = reason_json(choice.finish_reason);
    document["choices"].push_back(std::move(one));
  }
  document["usage"] = usage_json(usage);
  return json_text(document);
}

std::string part_event(const AnswerHead& head, std::size_t index, const AnswerPart& part, bool logprobs,
                       const std::string& finish_reason) {
  auto document = begin_document(head, true);
  Json one = {{"index", index}};
  if (head.chat) {
    one["delta"] = part.text.empty() ? Json::object() : Json{{"content", part.text}};
  } else {
    one["text"] = part.text;
  }
  one["logprobs"] = logprobs_of(head.chat, logprobs && !part.tokens.empty(), part.tokens);
  one["finish_reason"] = reason_json(finish_reason);
  document["choices"] = Json::array({std::move(one)});
  return event_of(json_text(document));
}

std::string role_event(const AnswerHead& head, std::size_t index) {
  auto document = begin_document(head, true);
  document["choices"] = Json::array({{{"index", index},
                                      {"delta", {{"role", "assistant"}, {"content", ""}}},
                                      {"logprobs", nullptr},
                                      {"finish_reason", nullptr}}});
  return event_of(json_text(document));
}

std::string usage_event(const AnswerHead& head, const Usage& usage) {
  auto document = begin_document(head, true);
  document["choices"] = Json::array();
  document["usage"] = usage_json(usage);
  return event_of(json_text(document));
}

std::string models_document(const std::string& name, std::int64_t created, std::int64_t most_tokens, bool chat) {
  return json_text(Json{{"object", "list"},
                        {"data", Json::array({{{"id", name},
                                               {"object", "model"},
                                               {"created", created},
                                               {"owned_by", "orthant"},
                                               {"max_model_len", most_tokens},
                                               {"chat", chat}}})}});
}

}  // namespace orthant
