#include "orthant/serve/api/service.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <map>

#include "orthant/base/error.h"
#include "orthant/base/printable.h"
#include "orthant/http/metric_text.h"
#include "orthant/launch/unix_sockets.h"
#include "orthant/serve/api/documents.h"
#include "orthant/serve/carried_files.h"

namespace orthant {
namespace {

constexpr const char* kChatRoute = "/v1/chat/completions";
constexpr const char* kTextRoute = "/v1/completions";
constexpr const char* kOther = "other";

const std::map<std::string, std::string>& methods_of_routes() {
  static const std::map<std::string, std::string> kRoutes = {{"/", "GET"},         {"/health", "GET"},
                                                             {"/metrics", "GET"},  {"/v1/models", "GET"},
                                                             {kChatRoute, "POST"}, {kTextRoute, "POST"}};
  return kRoutes;
}

std::string known_route(const std::string& path) {
  if (path.starts_with("/v1/models/")) return "/v1/models";
  return methods_of_routes().contains(path) ? path : kOther;
}

// ApiError for what no route takes.
void check_route(const http::Request& request) {
  const auto route = known_route(request.path);
  if (route == kOther) {
    throw ApiError(404,
                   fmt::format("there is no {}: the API is at /v1/chat/completions, /v1/completions and /v1/models",
                               printable(request.path.substr(0, 100))));
  }
  const auto& method = methods_of_routes().at(route);
  const bool fits = request.method == method || (method == "GET" && request.method == "HEAD");
  if (!fits) {
    throw ApiError(405, fmt::format("{} takes {}, not {}", route, method, printable(request.method.substr(0, 20))));
  }
  if (method != "POST") return;
  const auto* type = request.header("content-type");
  const auto kind = type ? type->substr(0, type->find(';')) : "";
  if (kind != "application/json") {
    throw ApiError(415, "the body is JSON: send the header Content-Type: application/json");
  }
}

http::Answer page_answer() {
  return {200,
          {{"Content-Type", "text/html; charset=utf-8"},
           {"Content-Security-Policy",
            "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; img-src "
            "data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
           {"Referrer-Policy", "no-referrer"}},
          std::string(carried_file("page/page.html"))};
}

http::Answer json_answer(int status, std::string body) {
  return {status, {{"Content-Type", "application/json"}}, std::move(body)};
}

}  // namespace

Service::Service(std::function<const ServedModel&()> model, Generator& generator, ServiceOptions options, Log log)
    : model_(std::move(model)),
      generator_(generator),
      options_(std::move(options)),
      log_(std::move(log)),
      run_id_(launch::random_name().substr(0, 12)) {
  options_.access.asks_no_key = [](const std::string& path) { return path == "/" || path == "/health"; };
}

http::Answer Service::refuse(const http::Refusal& refusal) {
  note(kOther, refusal.status);
  return error_answer(ApiError(refusal.status, refusal.message));
}

void Service::handle(http::Request request, const std::shared_ptr<http::Exchange>& exchange) {
  const auto route = known_route(request.path);
  try {
    if (const auto refusal = http::refuse_access(options_.access, request)) {
      throw ApiError(refusal->status, refusal->message, {}, refusal->code);
    }
    check_route(request);
    if (route == kChatRoute || route == kTextRoute) return generate(request, exchange);
    auto answer = this->route(request);
    answer.headers.emplace_back("X-Content-Type-Options", "nosniff");
    note(route, answer.status);
    exchange->answer(answer);
  } catch (const ApiError& error) {
    note(route, error.status);
    auto answer = error_answer(error);
    if (error.status == 405) answer.headers.emplace_back("Allow", methods_of_routes().at(route));
    log_.debug(fmt::format("{} {} {}: {}", printable(request.method), printable(request.path), error.status,
                           printable(error.what())));
    exchange->answer(answer);
  } catch (const std::exception& error) {
    note(route, 500);
    log_.error(fmt::format("{} {}: {}", printable(request.method), printable(request.path), printable(error.what())));
    exchange->answer(error_answer(ApiError(500, "a defect of the server; its log says more")));
  }
}

http::Answer Service::route(const http::Request& request) {
  if (request.path == "/") return page_answer();
  if (request.path == "/health") {
    const auto why = draining_ ? "the server is stopping" : options_.unavailable ? options_.unavailable() : "";
    if (why.empty()) return json_answer(200, R"({"status":"ok"})");
    auto answer = error_answer(ApiError(503, why));
    return answer;
  }
  if (request.path == "/metrics") {
    metrics_.connections = static_cast<std::int64_t>(server_->num_connections());
    metrics_.waiting = *waiting_;
    metrics_.rank_starts = options_.rank_starts ? options_.rank_starts() : 1;
    return {200, {{"Content-Type", http::kMetricsType}}, metrics_text(metrics_, generator_.load())};
  }
  const auto& model = model_();
  if (request.path != "/v1/models" && request.path != "/v1/models/" + model.name) {
    throw ApiError(404, fmt::format("only the model '{}' is served here", model.name), {}, "model_not_found");
  }
  return json_answer(200, models_document(model.name, options_.created, model.most_tokens, model.chat.has_value()));
}

void Service::check_ready(std::size_t answers) const {
  if (draining_) throw ApiError(503, "the server is stopping");
  const auto why = options_.unavailable ? options_.unavailable() : "";
  if (!why.empty()) throw ApiError(503, why);
  if (*waiting_ + static_cast<std::int64_t>(answers) <= options_.most_waiting) return;
  throw ApiError(429, fmt::format("{} answers wait for their first token, and at most {} may: try again later",
                                  *waiting_, options_.most_waiting));
}

void Service::generate(const http::Request& request, const std::shared_ptr<http::Exchange>& exchange) {
  check_ready(1);
  const auto& model = model_();
  const bool chat = request.path == kChatRoute;
  auto asked = chat ? read_chat(request.body, model) : read_completion(request.body, model);
  check_ready(asked.prompts.size() * static_cast<std::size_t>(asked.num_answers));
  AnswerHead head{chat, fmt::format("{}-{}{:x}", chat ? "chatcmpl" : "cmpl", run_id_, ++last_reply_),
                  static_cast<std::int64_t>(std::time(nullptr)), model.name};
  const auto route = request.path;
  auto reply = std::make_shared<Reply>(
      ReplyPlace{generator_, *server_, model.tokenizer, waiting_, [this] { return ++last_request_; },
                 [this] { return !options_.unavailable || options_.unavailable().empty(); }},
      std::move(asked), std::move(head), exchange,
      [this, route](const Reply& one, int status) { note_end(route, one, status); });
  replies_.insert(reply);
  try {
    reply->start();
  } catch (...) {
    replies_.erase(reply);
    throw;
  }
}

void Service::note(const std::string& route, int status) {
  ++metrics_.requests[{route, status}];
}

void Service::note_end(const std::string& route, const Reply& reply, int status) {
  note(route, status);
  metrics_.prompt_tokens += reply.usage().prompt_tokens;
  metrics_.generated_tokens += reply.usage().completion_tokens;
  metrics_.request_seconds.add(reply.seconds());
  for (const auto& end : reply.ends()) {
    ++metrics_.finished[end.reason];
    if (end.num_tokens > 0) metrics_.first_token_seconds.add(end.first_token_seconds);
    if (end.num_tokens > 1) metrics_.token_seconds.add(end.token_seconds);
  }
  if (status == 499) ++metrics_.finished["cancelled"];
  log_.info(fmt::format("{} {}: {} and {} tokens in {:.3f} s", route,
                        status == 499 ? "cancelled" : std::to_string(status), reply.usage().prompt_tokens,
                        reply.usage().completion_tokens, reply.seconds()));
  const auto same = [&](const auto& one) { return one.get() == &reply; };
  const auto found = std::ranges::find_if(replies_, same);
  if (found != replies_.end()) replies_.erase(found);
}

void Service::end_all(const std::string& why) {
  const auto replies = replies_;
  for (const auto& reply : replies) reply->fail(ApiError(503, why));
}

}  // namespace orthant
