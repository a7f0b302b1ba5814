#include "orthant/watch/watch_service.h"

#include <fmt/format.h>

#include "orthant/base/printable.h"
#include "orthant/http/metric_text.h"
#include "orthant/watch/run_metrics.h"

namespace orthant::watch {
namespace {

constexpr std::size_t kMostFollowers = 64;
constexpr auto kSilence = std::chrono::seconds(15);  // then a comment shows that both sides are there

const http::Headers kPageHeaders = {
    {"Content-Type", "text/html; charset=utf-8"},
    {"Content-Security-Policy",
     "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; img-src data:; "
     "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
    {"Referrer-Policy", "no-referrer"},
    {"Cache-Control", "no-store"}};

const http::Headers kEventHeaders = {{"Content-Type", "text/event-stream"}, {"Cache-Control", "no-store"}};

// What stands behind `name` in "a=1&name=x"; such values have letters, digits and dashes alone here.
std::string value_in(const std::string& query, const std::string& name) {
  for (std::size_t begin = 0; begin < query.size();) {
    const auto end = std::min(query.find('&', begin), query.size());
    const auto part = query.substr(begin, end - begin);
    if (part.starts_with(name + "=")) return part.substr(name.size() + 1);
    begin = end + 1;
  }
  return "";
}

}  // namespace

WatchService::WatchService(RunWatch& watch, http::AccessRules access) : watch_(watch), access_(std::move(access)) {}

http::Answer WatchService::refuse(const http::Refusal& refusal) {
  http::Answer answer{refusal.status, {{"Content-Type", "text/plain; charset=utf-8"}}, refusal.message + "\n"};
  if (refusal.status == 401) answer.headers.emplace_back("WWW-Authenticate", "Basic realm=\"orthant\"");
  if (refusal.status == 405) answer.headers.emplace_back("Allow", "GET");
  answer.headers.emplace_back("X-Content-Type-Options", "nosniff");
  return answer;
}

void WatchService::handle(const http::Request& request, const std::shared_ptr<http::Exchange>& exchange) {
  if (const auto refusal = http::refuse_access(access_, request)) return exchange->answer(refuse(*refusal));
  if (request.path != "/" && request.path != "/events" && request.path != "/metrics") {
    return exchange->answer(
        refuse({404, fmt::format("there is no {}: the page is at /, numbers for Prometheus at /metrics",
                                 printable(request.path.substr(0, 100)))}));
  }
  if (request.method != "GET" && request.method != "HEAD") {
    return exchange->answer(refuse({405, "a run is only looked at: use GET"}));
  }
  if (request.path == "/events") return follow(request, exchange);
  look();
  http::Answer answer;
  if (request.path == "/") {
    answer = {200, kPageHeaders, page_.html()};
  } else {
    answer = {200, {{"Content-Type", http::kMetricsType}}, run_metrics(watch_.run(), watch_.state())};
  }
  answer.headers.emplace_back("X-Content-Type-Options", "nosniff");
  exchange->answer(answer);
}

void WatchService::look() {
  if (!watch_.look() && drawn_) return;
  page_.update(watch_.runs());
  drawn_ = true;
}

void WatchService::follow(const http::Request& request, const std::shared_ptr<http::Exchange>& exchange) {
  if (request.method == "HEAD") return exchange->answer({200, kEventHeaders, ""});
  if (followers_.size() >= kMostFollowers) {
    return exchange->answer(refuse({503, fmt::format("{} readers follow the run, which is the most", kMostFollowers)}));
  }
  look();
  const auto* const last = request.header("last-event-id");
  exchange->begin({200, kEventHeaders, ""});
  const auto place = followers_.insert(followers_.end(), {exchange, last ? *last : value_in(request.query, "since")});
  exchange->when_gone = [this, place] { followers_.erase(place); };
  exchange->part("retry: 2000\n\n");
}

void WatchService::send(Follower& follower) {
  const auto now = launch::Clock::now();
  auto event = page_.event_since(follower.seen);
  follower.seen = page_.revision();
  if (event.empty() && now - follower.heard < kSilence) return;
  follower.heard = now;
  follower.exchange->part(event.empty() ? ":\n\n" : event);
}

void WatchService::tick() {
  if (followers_.empty()) return;
  look();
  for (auto next = followers_.begin(); next != followers_.end();) {
    auto& follower = *next++;  // may be gone behind this
    // Who is slow gets the newest state once it has taken the last one.
    if (follower.exchange->unsent() == 0) send(follower);
  }
}

void WatchService::close() {
  watch_.look_now();
  drawn_ = false;
  if (!followers_.empty()) look();
  for (auto next = followers_.begin(); next != followers_.end();) {
    auto& follower = *next++;
    const auto exchange = follower.exchange;
    if (exchange->unsent() == 0) send(follower);
    exchange->when_gone = {};
    exchange->end();
  }
  followers_.clear();
}

}  // namespace orthant::watch
