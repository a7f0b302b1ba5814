// A server over a fake generator on a thread of its own.
#pragma once

#include <future>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "http/raw_client.h"
#include "orthant/serve/api/service.h"
#include "serve/fake_generator.h"
#include "text/small_bpe.h"

namespace orthant::test {

inline std::string post(const std::string& path, const std::string& body, const std::string& headers = "") {
  return "POST " + path + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" + headers +
         "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

class RunningService {
 public:
  explicit RunningService(ServiceOptions options = {}, http::ServerOptions server_options = {}) {
    auto file = small_bpe();
    file["added_tokens"].push_back(added_token("<end>", 266));
    model_.emplace(
        ServedModel{"tiny", tokenizer_of(file),
                    ChatTemplate::parse("{% for m in messages %}{{ m.role[0] }}:{{ m.content }}\n{% endfor %}"
                                        "{% if tools %}{{ tools | tojson }}{% endif %}a:",
                                        "t.jinja"),
                    generator.most_tokens(), 267});
    service.emplace([this]() -> const ServedModel& { return *model_; }, generator, std::move(options),
                    Log({.level = LogLevel::kOff}));
    auto listener = launch::bind_tcp({"127.0.0.1", 0});
    launch::start_listening(listener.get());
    port = launch::bound_endpoint(listener.get()).port;
    server.emplace(
        std::move(listener), server_options,
        [this](http::Request request, std::shared_ptr<http::Exchange> exchange) {
          service->handle(std::move(request), exchange);
        },
        [this](const http::Refusal& refusal) { return service->refuse(refusal); });
    service->attach(*server);
    thread_ = std::thread([this] { server->run(); });
  }
  ~RunningService() {
    generator.hold(false);
    on_server([this] {
      service->end_all("over");
      server->stop(1);
    });
    thread_.join();
  }

  void on_server(const std::function<void()>& work) {
    std::promise<void> done;
    server->post([&] {
      work();
      done.set_value();
    });
    done.get_future().wait();
  }

  // A request on a connection of its own.
  Response ask(const std::string& request) const {
    RawClient client(port);
    const auto end = request.find("\r\n");
    client.send(request.substr(0, end) + "\r\nConnection: close" + request.substr(end));
    return response_of(client.read_all());
  }

  FakeGenerator generator;
  std::optional<Service> service;
  std::optional<http::Server> server;
  int port = 0;

 private:
  std::optional<ServedModel> model_;
  std::thread thread_;
};

}  // namespace orthant::test
