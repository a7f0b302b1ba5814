// The routes of the server: OpenAI's API, health, metrics and the page.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>

#include "orthant/base/log.h"
#include "orthant/http/access.h"
#include "orthant/http/server.h"
#include "orthant/serve/api/completion_request.h"
#include "orthant/serve/api/metrics.h"
#include "orthant/serve/api/reply.h"
#include "orthant/serve/generator.h"

namespace orthant {

struct ServiceOptions {
  http::AccessRules access = {};
  std::int64_t most_waiting = 256;  // answers without a first token; a request beyond gets 429
  std::int64_t created = 0;         // seconds since 1970, as the model's birthday
  // Why the generator cannot be asked now; empty: it can.
  std::function<std::string()> unavailable = {};
  std::function<std::int64_t()> rank_starts = {};
};

class Service {
 public:
  // `model()` is asked at each request: it is known when the ranks are.
  Service(std::function<const ServedModel&()> model, Generator& generator, ServiceOptions options, Log log);

  // Before the first request.
  void attach(http::Server& server) { server_ = &server; }

  // The handler and refuser of the server. Server's thread.
  void handle(http::Request request, const std::shared_ptr<http::Exchange>& exchange);
  http::Answer refuse(const http::Refusal& refusal);

  // New requests for text get 503 from now on.
  void drain() { draining_ = true; }
  // Ends what still runs with an error.
  void end_all(const std::string& why);
  std::size_t running() const { return replies_.size(); }

 private:
  http::Answer route(const http::Request& request);
  void generate(const http::Request& request, const std::shared_ptr<http::Exchange>& exchange);
  void check_ready(std::size_t answers) const;
  void note(const std::string& route, int status);
  void note_end(const std::string& route, const Reply& reply, int status);

  std::function<const ServedModel&()> model_;
  Generator& generator_;
  ServiceOptions options_;
  Log log_;
  http::Server* server_ = nullptr;
  ServerMetrics metrics_;
  std::shared_ptr<std::atomic<std::int64_t>> waiting_ = std::make_shared<std::atomic<std::int64_t>>(0);
  std::set<std::shared_ptr<Reply>> replies_;
  std::uint64_t last_request_ = 0;
  std::uint64_t last_reply_ = 0;
  std::string run_id_;
  bool draining_ = false;
};

}  // namespace orthant
