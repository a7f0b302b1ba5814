#include "orthant/serve/api/metrics.h"

#include <fmt/format.h>

#include "orthant/http/metric_text.h"

namespace orthant {
namespace {

std::string histogram_text(const char* name, const char* help, const Histogram& histogram) {
  return fmt::format("# HELP orthant_{0} {1}\n# TYPE orthant_{0} histogram\n", name, help) +
         histogram.text(std::string("orthant_") + name);
}

}  // namespace

void Histogram::add(double value) {
  std::size_t bucket = 0;
  while (bucket < kBounds.size() && value > kBounds[bucket]) ++bucket;
  ++counts_[bucket];
  sum_ += value;
}

std::string Histogram::text(const std::string& name) const {
  std::string out;
  std::int64_t total = 0;
  for (std::size_t i = 0; i < kBounds.size(); ++i) {
    total += counts_[i];
    out += fmt::format("{}_bucket{{le=\"{}\"}} {}\n", name, kBounds[i], total);
  }
  total += counts_.back();
  return out + fmt::format("{0}_bucket{{le=\"+Inf\"}} {1}\n{0}_sum {2}\n{0}_count {1}\n", name, total, sum_);
}

std::string metrics_text(const ServerMetrics& metrics, const GeneratorLoad& load) {
  std::string out =
      "# HELP orthant_requests_total Requests by route and status.\n# TYPE orthant_requests_total counter\n";
  for (const auto& [key, count] : metrics.requests) {
    out += fmt::format("orthant_requests_total{{route=\"{}\",status=\"{}\"}} {}\n", key.first, key.second, count);
  }
  out += "# HELP orthant_answers_total Answers by the reason of their end.\n# TYPE orthant_answers_total counter\n";
  for (const auto& [reason, count] : metrics.finished) {
    out += fmt::format("orthant_answers_total{{reason=\"{}\"}} {}\n", reason, count);
  }
  out += http::metric_text("prompt_tokens_total", "counter", "Tokens of prompts.", metrics.prompt_tokens);
  out += http::metric_text("generated_tokens_total", "counter", "Tokens of answers.", metrics.generated_tokens);
  out += http::metric_text("connections", "gauge", "Open connections.", metrics.connections);
  out += http::metric_text("answers_waiting", "gauge", "Answers without a first token.", metrics.waiting);
  out += http::metric_text("running", "gauge", "Answers whose tokens are being made.", load.running);
  out += http::metric_text("queued", "gauge", "Answers without a place in the cache.", load.waiting);
  out += http::metric_text("preempted_total", "counter", "Answers that lost their place and were computed again.",
                           load.preempted);
  out += http::metric_text("cache_tokens", "gauge", "Tokens that the cache holds at most.", load.cache_tokens);
  out += http::metric_text("cache_used_tokens", "gauge", "Tokens that the cache holds.", load.used_cache_tokens);
  out += http::metric_text("rank_starts_total", "counter", "How often ranks were started.", metrics.rank_starts);
  out += histogram_text("first_token_seconds", "From a request to the first token of an answer.",
                        metrics.first_token_seconds);
  out += histogram_text("token_seconds", "Between tokens of an answer, on average.", metrics.token_seconds);
  out += histogram_text("request_seconds", "From a request to the end of its answer.", metrics.request_seconds);
  return out;
}

}  // namespace orthant
