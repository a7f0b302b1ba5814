#include "orthant/serve/api/service.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "mesh/thrown_error.h"
#include "serve/running_service.h"

namespace orthant {
namespace service_test {

using nlohmann::json;
using test::get;
using test::post;
using test::RawClient;
using test::RunningService;

constexpr const char* kChat = "/v1/chat/completions";
constexpr const char* kText = "/v1/completions";

std::string chat(const json& more) {
  json body = {{"messages", {{{"role", "user"}, {"content", "hi"}}}}, {"max_tokens", 4}, {"temperature", 0}};
  if (!more.is_null()) body.update(more);
  return post(kChat, body.dump());
}

std::string text(const json& more) {
  json body = {{"prompt", "ab"}, {"max_tokens", 4}, {"temperature", 0}};
  if (!more.is_null()) body.update(more);
  return post(kText, body.dump());
}

// What the fake generator says to a prompt.
std::string letters(const std::string& prompt, int count, std::int64_t seed = -1) {
  GenerationRequest request;
  for (const char letter : prompt) request.prompt.push_back(static_cast<unsigned char>(letter));
  request.sampling.temperature = seed < 0 ? 0 : 1;
  request.sampling.seed = static_cast<std::uint64_t>(std::max<std::int64_t>(0, seed));
  std::string out;
  for (int i = 0; i < count; ++i) out += static_cast<char>(test::FakeGenerator::letter(request, i));
  return out;
}

std::string error_of(const test::Response& response) {
  const auto document = response.json();
  if (!document.is_object() || !document.contains("error")) return "no error document: " + response.body;
  return std::to_string(response.status) + " " + document["error"]["message"].get<std::string>();
}

TEST(Service, AnswersCompletionsAndChats) {
  RunningService service;
  const auto answer = service.ask(text({})).json();
  EXPECT_EQ(answer["object"], "text_completion");
  EXPECT_EQ(answer["choices"][0]["text"], letters("ab", 4));
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(answer["usage"], (json{{"prompt_tokens", 2}, {"completion_tokens", 4}, {"total_tokens", 6}}));
  const auto reply = service.ask(chat({})).json();
  EXPECT_EQ(reply["object"], "chat.completion");
  EXPECT_EQ(reply["choices"][0]["message"]["content"], letters("u:hi\na:", 4));
  EXPECT_EQ(reply["choices"][0]["message"]["role"], "assistant");
  const auto parts = service.ask(chat(
      {{"messages",
        {{{"role", "user"}, {"content", {{{"type", "text"}, {"text", "h"}}, {{"type", "text"}, {"text", "i"}}}}}}}}));
  EXPECT_EQ(parts.json()["choices"][0]["message"]["content"], letters("u:h\ni\na:", 4));
}

TEST(Service, AnswersSeveralPromptsAndSeveralTimes) {
  RunningService service;
  const auto answer = service.ask(text({{"prompt", {"ab", "cd"}}, {"n", 2}, {"temperature", 1}, {"seed", 5}})).json();
  ASSERT_EQ(answer["choices"].size(), 4u);
  const std::string expected[] = {letters("ab", 4, 5), letters("ab", 4, 6), letters("cd", 4, 5), letters("cd", 4, 6)};
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(answer["choices"][i]["text"], expected[i]);
    EXPECT_EQ(answer["choices"][i]["index"], i);
  }
  EXPECT_EQ(answer["usage"]["completion_tokens"], 16);
  const auto tokens = service.ask(text({{"prompt", {97, 98}}, {"echo", true}})).json();
  EXPECT_EQ(tokens["choices"][0]["text"], "ab" + letters("ab", 4));
}

TEST(Service, StopTextsEndAnswers) {
  RunningService service;
  const auto whole = letters("ab", 40);
  const auto answer = service.ask(text({{"max_tokens", 40}, {"stop", whole.substr(20, 3)}})).json();
  EXPECT_EQ(answer["choices"][0]["text"], whole.substr(0, whole.find(whole.substr(20, 3))));
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "stop");
}

TEST(Service, TellsLogprobs) {
  RunningService service;
  const auto answer = service.ask(text({{"logprobs", 2}})).json()["choices"][0]["logprobs"];
  EXPECT_EQ(answer["tokens"].size(), 4u);
  EXPECT_EQ(answer["tokens"][0], letters("ab", 1));
  EXPECT_EQ(answer["token_logprobs"][0], -0.5);
  EXPECT_EQ(answer["top_logprobs"][0].size(), 2u);
  EXPECT_EQ(answer["text_offset"], (json{0, 1, 2, 3}));
  const auto entry =
      service.ask(chat({{"logprobs", true}, {"top_logprobs", 1}})).json()["choices"][0]["logprobs"]["content"][1];
  EXPECT_EQ(entry["token"], letters("u:hi\na:", 2).substr(1));
  EXPECT_EQ(entry["bytes"][0], entry["token"].get<std::string>()[0]);
  EXPECT_EQ(entry["top_logprobs"][0]["logprob"], -0.5);
}

TEST(Service, StreamsEvents) {
  RunningService service;
  const auto response = service.ask(chat({{"stream", true}, {"stream_options", {{"include_usage", true}}}}));
  EXPECT_NE(response.head.find("Content-Type: text/event-stream"), std::string::npos);
  std::string content;
  std::vector<json> events;
  for (std::size_t at = response.body.find("data: "); at != std::string::npos;
       at = response.body.find("data: ", at + 1)) {
    const auto line = response.body.substr(at + 6, response.body.find("\n\n", at) - at - 6);
    if (line == "[DONE]") break;
    events.push_back(json::parse(line));
  }
  ASSERT_GE(events.size(), 3u);
  EXPECT_EQ(events[0]["choices"][0]["delta"]["role"], "assistant");
  for (const auto& event : events) {
    if (!event["choices"].empty()) content += event["choices"][0]["delta"].value("content", "");
  }
  EXPECT_EQ(content, letters("u:hi\na:", 4));
  EXPECT_EQ(events.back()["usage"]["completion_tokens"], 4);
  EXPECT_EQ(events[events.size() - 2]["choices"][0]["finish_reason"], "length");
  EXPECT_NE(response.body.find("data: [DONE]"), std::string::npos);
}

TEST(Service, RefusesByName) {
  RunningService service;
  const auto refused = [&](const std::string& request) { return error_of(service.ask(request)); };
  EXPECT_EQ(refused(text({{"best_of", 3}})), "400 best_of is not supported: use n, and choose among the answers");
  EXPECT_EQ(refused(text({{"suffix", "x"}})), "400 suffix is not supported: these models only go on with a text");
  EXPECT_EQ(refused(text({{"echo", true}, {"logprobs", 1}})),
            "400 echo together with logprobs is not supported: leave one out");
  EXPECT_EQ(refused(text({{"logit_bias", {{"5", 1}}}})), "400 logit_bias is not supported: leave it out");
  EXPECT_EQ(refused(text({{"presence_penalty", 0.5}})),
            "400 presence_penalty is not supported: use repetition_penalty");
  EXPECT_EQ(refused(chat({{"tool_choice", "required"}})),
            "400 tool_choice required is not supported: use none or auto");
  EXPECT_EQ(refused(chat({{"response_format", {{"type", "json_object"}}}})),
            "400 response_format is not supported: answers are texts");
  EXPECT_EQ(refused(chat({{"functions", {{{"name", "f"}}}}})), "400 functions is not supported: leave it out");
  EXPECT_EQ(refused(chat({{"messages", {{{"role", "user"}, {"content", {{{"type", "image_url"}}}}}}}})),
            "400 messages[0]: content of type image_url is not supported: the model reads text");
  EXPECT_EQ(refused(chat({{"messages", json::array()}})), "400 messages is a list of at least one message");
  EXPECT_EQ(refused(chat({{"messages", {{{"content", "x"}}}}})),
            "400 messages[0]: a message has a role: system, user, assistant or tool");
  EXPECT_EQ(refused(chat({{"messages", {{{"role", "user"}}}}})), "400 messages[0]: content is missing");
  EXPECT_EQ(refused(chat({{"model", "other"}})), "404 the model 'other' is not served here: use 'tiny'");
  EXPECT_EQ(refused(chat({{"temperature", 101}})), "400 temperature is 101: use temperature from 0 to 100");
  EXPECT_EQ(refused(chat({{"top_logprobs", 2}})), "400 top_logprobs without logprobs: true");
  EXPECT_EQ(refused(chat({{"n", 1000}})), "400 n is 1000: use 1 to 128");
  EXPECT_EQ(refused(chat({{"stop", ""}})), "400 a stop text has between 1 and 256 bytes");
  EXPECT_EQ(refused(chat({{"stop", 5}})), "400 stop is a text or a list of texts");
  EXPECT_EQ(refused(chat({{"max_tokens", 0}})), "400 max_tokens is 0: ask for at least one token");
  EXPECT_EQ(refused(chat({{"stream_options", {{"include_usage", true}}}})), "400 stream_options without stream");
  EXPECT_EQ(refused(text({{"prompt", ""}})), "400 the prompt is empty: give at least one token");
  EXPECT_EQ(refused(text({{"prompt", {99999}}})), "400 token 99999 is not in the vocabulary of 267");
  EXPECT_EQ(refused(text({{"prompt", {-1}}})), "400 a list of tokens holds what is no token");
  EXPECT_EQ(refused(text({{"prompt", {{"a", 1}}}})), "400 prompt is a text, a list of texts, or tokens");
  EXPECT_EQ(refused(text({{"prompt", std::string(5000, 'x')}})),
            "400 the prompt has 5000 tokens; with at least one of an answer the model takes at most 4096");
  EXPECT_NE(refused(text({{"max_token", 5}})).find("400 body:1:"), std::string::npos);
  EXPECT_NE(refused(text({{"max_token", 5}})).find("use \"max_tokens\""), std::string::npos);
  EXPECT_NE(refused(text({{"stream", "yes"}})).find("stream"), std::string::npos);
  EXPECT_EQ(error_of(service.ask(post(kText, "{"))).substr(0, 10), "400 body:1");
  EXPECT_EQ(error_of(service.ask(post(kText, "{\"prompt\": \"\xff\"}"))).substr(0, 10), "400 body:1");
  EXPECT_EQ(error_of(service.ask(post(kText, "[]"))).substr(0, 8), "400 body");
  EXPECT_EQ(error_of(service.ask(post(kText, ""))).substr(0, 8), "400 body");
  EXPECT_EQ(refused(post("/v1/embeddings", "{}")).substr(0, 4), "404 ");
  EXPECT_EQ(refused(get(kChat)), "405 /v1/chat/completions takes POST, not GET");
  EXPECT_EQ(refused(post("/health", "")), "405 /health takes GET, not POST");
  EXPECT_EQ(refused("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}"),
            "415 the body is JSON: send the header Content-Type: application/json");
  EXPECT_EQ(service.ask(text({})).status, 200) << "it serves on";
}

TEST(Service, WhatClientsSendWithoutEffectIsTaken) {
  RunningService service;
  const auto answer = service.ask(chat({{"user", "me"},
                                        {"store", false},
                                        {"metadata", json::object()},
                                        {"parallel_tool_calls", true},
                                        {"presence_penalty", 0},
                                        {"logit_bias", nullptr},
                                        {"response_format", {{"type", "text"}}},
                                        {"n", 1},
                                        {"stop", nullptr},
                                        {"tool_choice", "none"},
                                        {"tools", {{{"type", "function"}}}},
                                        {"top_k", -1}}));
  EXPECT_EQ(answer.json()["choices"][0]["message"]["content"], letters("u:hi\na:", 4)) << answer.body;
}

TEST(Service, AsksForAKeyAndForItsOwnName) {
  ServiceOptions options;
  const auto path = std::filesystem::temp_directory_path() / ("orthant-keys-" + std::to_string(getpid()));
  std::ofstream(path) << "first-key-0123456789\nsecond-key-0123456789\n";
  std::filesystem::permissions(path, std::filesystem::perms::owner_read);
  options.access.keys = http::ApiKeys::load(path);
  std::filesystem::remove(path);
  RunningService service(std::move(options));
  EXPECT_EQ(service.ask(get("/health")).status, 200);
  EXPECT_EQ(service.ask(get("/")).status, 200);
  for (const char* route : {"/v1/models", "/metrics"}) {
    EXPECT_EQ(service.ask(get(route)).status, 401);
    EXPECT_EQ(service.ask(get(route, "Authorization: Bearer second-key-012345678\r\n")).status, 401);
    EXPECT_EQ(service.ask(get(route, "Authorization: Basic second-key-0123456789\r\n")).status, 401);
    EXPECT_EQ(service.ask(get(route, "Authorization: Bearer second-key-0123456789\r\n")).status, 200);
  }
  EXPECT_EQ(service.ask(text({})).status, 401);
  for (const char* host : {"evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost.evil"}) {
    EXPECT_EQ(service.ask(fmt::format("GET /health HTTP/1.1\r\nHost: {}\r\n\r\n", host)).status, 403) << host;
  }
  for (const char* host : {"localhost", "LOCALHOST:1", "127.0.0.1:8000", "127.1.2.3", "[::1]:8000"}) {
    EXPECT_EQ(service.ask(fmt::format("GET /health HTTP/1.1\r\nHost: {}\r\n\r\n", host)).status, 200) << host;
  }
}

TEST(Service, ALoadedServerSaysSo) {
  RunningService service({.most_waiting = 3});
  service.generator.hold(true);
  RawClient first(service.port);
  first.send(chat({{"n", 2}}));
  service.generator.wait_for_running(2);
  const auto refused = service.ask(chat({{"n", 2}}));
  EXPECT_EQ(error_of(refused), "429 2 answers wait for their first token, and at most 3 may: try again later");
  EXPECT_NE(refused.head.find("Retry-After: 1"), std::string::npos);
  service.generator.hold(false);
  EXPECT_EQ(test::response_of(first.read_until("usage")).status, 200);
  EXPECT_EQ(service.ask(chat({{"n", 2}})).status, 200);
}

TEST(Service, ClientsThatGoFreeTheirPlaceAtOnce) {
  RunningService service;
  service.generator.hold(true);
  for (const bool stream : {false, true}) {
    RawClient client(service.port);
    client.send(chat({{"stream", stream}, {"n", 3}}));
    service.generator.wait_for_running(3);
    client.close();
    service.generator.wait_for_running(0);
  }
  RawClient half(service.port);
  half.send(chat({}));
  service.generator.wait_for_running(1);
  half.shut();
  service.generator.wait_for_running(0);
  EXPECT_EQ(error_of(test::response_of(half.read_all())),
            "400 the connection was shut on your side before the answer: keep it open");
}

TEST(Service, AFailedStepIsTold) {
  RunningService service;
  service.generator.fail_next();
  EXPECT_EQ(error_of(service.ask(chat({}))), "500 the step failed");
  service.generator.fail_next();
  const auto streamed = service.ask(chat({{"stream", true}}));
  EXPECT_NE(streamed.body.find(R"(data: {"error":{"message":"the step failed")"), std::string::npos);
  EXPECT_EQ(streamed.body.find("[DONE]"), std::string::npos);
}

TEST(Service, DrainsAndTellsWhenRanksAreDown) {
  std::atomic<bool> down = false;
  RunningService service({.unavailable = [&] { return down ? std::string("the ranks are being started") : ""; }});
  down = true;
  EXPECT_EQ(error_of(service.ask(chat({}))), "503 the ranks are being started");
  EXPECT_EQ(service.ask(get("/health")).status, 503);
  down = false;
  service.generator.hold(true);
  RawClient running(service.port);
  running.send(chat({}));
  service.generator.wait_for_running(1);
  RawClient idle(service.port);
  idle.send(get("/health"));
  idle.read_until("ok");
  RawClient late(service.port);
  late.send("POST /v1/completions HTTP/1.1\r\n");
  service.on_server([&] {});
  service.on_server([&] {
    service.service->drain();
    service.server->drain();
  });
  EXPECT_EQ(idle.read_all().find("503"), std::string::npos) << "an idle connection is just closed";
  service.generator.hold(false);
  EXPECT_NE(running.read_all().find("\"usage\""), std::string::npos) << "what runs comes to its end";
}

TEST(Service, TellsMetrics) {
  RunningService service;
  service.ask(text({}));
  service.ask(get("/nothing"));
  const auto body = service.ask(get("/metrics")).body;
  for (const char* line :
       {"orthant_requests_total{route=\"/v1/completions\",status=\"200\"} 1\n",
        "orthant_requests_total{route=\"other\",status=\"404\"} 1\n", "orthant_answers_total{reason=\"length\"} 1\n",
        "orthant_prompt_tokens_total 2\n", "orthant_generated_tokens_total 4\n",
        "orthant_first_token_seconds_count 1\n", "orthant_cache_tokens 4096\n", "orthant_answers_waiting 0\n"}) {
    EXPECT_NE(body.find(line), std::string::npos) << line << body;
  }
}

TEST(Service, KeepsConnectionsAndTakesRequestsInARow) {
  RunningService service;
  RawClient client(service.port);
  client.send(get("/health") + text({}) + get("/v1/models"));
  const auto all = client.read_until("max_model_len");
  EXPECT_LT(all.find("{\"status\":\"ok\"}"), all.find("text_completion"));
  EXPECT_LT(all.find("text_completion"), all.find("max_model_len"));
  client.send(
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nExpect: "
      "100-continue\r\nContent-Length: 16\r\n\r\n");
  client.read_until("HTTP/1.1 100 Continue\r\n\r\n");
  client.send(R"({"prompt":"abc"})");
  EXPECT_NE(client.read_until("\"prompt_tokens\":3").find("\"prompt_tokens\":3"), std::string::npos);
  const auto head = service.ask("HEAD /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.body, "");
  EXPECT_NE(head.head.find("Content-Length: 15"), std::string::npos);
}

TEST(Service, WhoIsSlowIsToldAndHoldsUpNobody) {
  RunningService service({}, {.most_connections = 40, .head_seconds = 0.3, .body_seconds = 0.6, .idle_seconds = 0.3});
  std::vector<std::unique_ptr<RawClient>> slow;
  for (int i = 0; i < 30; ++i) {
    slow.push_back(std::make_unique<RawClient>(service.port));
    slow.back()->send(i % 2 == 0 ? "POST /v1/comp"
                                 : "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{");
  }
  EXPECT_EQ(service.ask(text({})).status, 200);
  for (const auto& client : slow) {
    EXPECT_EQ(error_of(test::response_of(client->read_all())), "408 the request did not come to its end in time");
  }
  RawClient idle(service.port);
  EXPECT_EQ(idle.read_all(), "");
}

TEST(Service, TooManyConnectionsAreTold) {
  RunningService service({}, {.most_connections = 4});
  std::vector<std::unique_ptr<RawClient>> open;
  for (int i = 0; i < 4; ++i) open.push_back(std::make_unique<RawClient>(service.port));
  for (const auto& client : open) {
    client->send(get("/health"));
    client->read_until("ok");
  }
  EXPECT_EQ(error_of(service.ask(get("/health"))), "503 more than 4 connections");
}

TEST(Service, ThePageRunsNothingFromElsewhere) {
  RunningService service;
  const auto page = service.ask(get("/"));
  EXPECT_EQ(page.status, 200);
  EXPECT_NE(page.head.find("default-src 'none'"), std::string::npos);
  EXPECT_EQ(page.body.find("innerHTML"), std::string::npos);
  EXPECT_EQ(page.body.find("https://"), std::string::npos);
  // A model that is fast must not lay out the page for every token.
  EXPECT_NE(page.body.find("requestAnimationFrame(show)"), std::string::npos);
}

}  // namespace service_test
}  // namespace orthant
