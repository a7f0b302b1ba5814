// A server over a fake generator on a thread of its own, and a client that writes bytes.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <future>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "orthant/serve/api/service.h"
#include "serve/fake_generator.h"
#include "text/small_bpe.h"

namespace orthant::test {

// One connection.
class RawClient {
 public:
  explicit RawClient(int port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connect(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  }

  void send(std::string_view bytes) const {
    [[maybe_unused]] const auto count = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  void shut() const { shutdown(fd_.get(), SHUT_WR); }
  void close() { fd_.reset(); }

  // Until the text has come, or the connection has ended; 20 s at most.
  std::string read_until(const std::string& text) {
    const auto deadline = launch::Clock::now() + std::chrono::seconds(20);
    while (text.empty() || in_.find(text) == std::string::npos) {
      char buffer[4096];
      if (!launch::wait_until(fd_.get(), POLLIN, deadline)) return in_ + " (no more in 20 s)";
      const auto count = recv(fd_.get(), buffer, sizeof buffer, 0);
      if (count <= 0) break;
      in_.append(buffer, static_cast<std::size_t>(count));
    }
    return in_;
  }
  std::string read_all() { return read_until(""); }

 private:
  launch::Fd fd_;
  std::string in_;
};

inline std::string post(const std::string& path, const std::string& body, const std::string& headers = "") {
  return "POST " + path + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" + headers +
         "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

inline std::string get(const std::string& path, const std::string& headers = "") {
  return "GET " + path + " HTTP/1.1\r\nHost: localhost\r\n" + headers + "\r\n";
}

struct Response {
  int status = 0;
  std::string head;
  std::string body;
  nlohmann::json json() const { return nlohmann::json::parse(body, nullptr, false); }
};

inline Response response_of(const std::string& text) {
  const auto end = text.find("\r\n\r\n");
  if (end == std::string::npos || text.size() < 12) return {0, text, ""};
  return {std::atoi(text.c_str() + 9), text.substr(0, end), text.substr(end + 4)};
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
