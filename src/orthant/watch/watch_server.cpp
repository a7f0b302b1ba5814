#include "orthant/watch/watch_server.h"

#include "orthant/http/server.h"
#include "orthant/watch/watch_service.h"

namespace orthant::watch {
namespace {

// Requests have no body, and a page has few readers: what a stranger may make the server keep is small.
http::ServerOptions small_server() {
  http::ServerOptions options;
  options.limits.body_bytes = 0;
  options.most_connections = 256;
  return options;
}

}  // namespace

void serve_run(RunWatch& watch, launch::Fd listener, const http::AccessRules& access,
               const std::function<bool()>& stops) {
  constexpr double kSendSeconds = 2;
  WatchService service(watch, access);
  http::Server server(
      std::move(listener), small_server(),
      [&](const http::Request& request, const std::shared_ptr<http::Exchange>& exchange) {
        service.handle(request, exchange);
      },
      &WatchService::refuse);
  bool stopping = false;
  server.run([&] {
    if (stopping) return;
    if (!stops()) return service.tick();
    stopping = true;
    service.close();
    server.stop(kSendSeconds);
  });
}

}  // namespace orthant::watch
