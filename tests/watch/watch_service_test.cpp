#include "orthant/watch/watch_service.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>

#include "http/raw_client.h"
#include "orthant/watch/watch_server.h"
#include "watch/small_run.h"

namespace orthant {
namespace watch_service_test {

using test::get;
using test::RawClient;
using test::SmallRun;

class Watching {
 public:
  explicit Watching(const std::string& path, http::AccessRules access = {}) : run_(path) {
    auto listener = launch::bind_tcp({"127.0.0.1", 0});
    launch::start_listening(listener.get());
    port = launch::bound_endpoint(listener.get()).port;
    thread_ = std::thread([this, access = std::move(access), listener = std::move(listener)]() mutable {
      watch::serve_run(run_, std::move(listener), access, [this] { return stopped_.load(); });
    });
  }
  ~Watching() {
    stop();
    thread_.join();
  }

  void stop() { stopped_ = true; }

  test::Response ask(const std::string& request) const {
    RawClient client(port);
    const auto end = request.find("\r\n");
    client.send(request.substr(0, end) + "\r\nConnection: close" + request.substr(end));
    return test::response_of(client.read_all());
  }

  int port = 0;

 private:
  watch::RunWatch run_;
  std::atomic<bool> stopped_ = false;
  std::thread thread_;
};

std::string since_of(const std::string& page) {
  const std::string name = "data-since=\"";
  const auto begin = page.find(name) + name.size();
  return page.substr(begin, page.find('"', begin) - begin);
}

TEST(Watch, ServesThePageAndNumbers) {
  SmallRun folder;
  folder.step(1, "2.5");
  const Watching run(folder.path);
  const auto page = run.ask(get("/"));
  EXPECT_EQ(page.status, 200);
  EXPECT_NE(page.head.find("default-src 'none'"), std::string::npos);
  EXPECT_NE(page.head.find("X-Content-Type-Options: nosniff"), std::string::npos);
  EXPECT_NE(page.body.find("id=\"curve-loss\""), std::string::npos);
  EXPECT_NE(page.body.find("small &lt;b&gt;"), std::string::npos);
  EXPECT_EQ(page.body.find("small <b>"), std::string::npos);
  EXPECT_NE(run.ask(get("/metrics")).body.find("orthant_train_loss 2.5\n"), std::string::npos);
}

TEST(Watch, SendsWhatTheRunAdds) {
  SmallRun folder;
  folder.step(1, "2.5");
  Watching run(folder.path);
  const auto since = since_of(run.ask(get("/")).body);
  RawClient reader(run.port);
  reader.send(get("/events?since=" + since));
  EXPECT_NE(reader.read_until("retry: 2000").find("Content-Type: text/event-stream"), std::string::npos);
  folder.step(2, "1.25");
  const auto text = reader.read_until("[2,1.25,");
  EXPECT_NE(text.find("event: pieces"), std::string::npos);
  EXPECT_NE(text.find("[2,1.25,"), std::string::npos);
  EXPECT_EQ(text.find("{\"id\":\"settings\""), std::string::npos) << "only what has changed";
  run.stop();
  EXPECT_TRUE(reader.read_all().ends_with("0\r\n\r\n")) << "the end is told as one";
}

TEST(Watch, ReadersThatComeBackGetWhatTheyMissed) {
  SmallRun folder;
  folder.step(1, "2.5");
  const Watching run(folder.path);
  RawClient stranger(run.port);
  stranger.send(get("/events", "Last-Event-ID: of another server-3\r\n"));
  EXPECT_NE(stranger.read_until("event: pieces").find("event: pieces"), std::string::npos);
}

TEST(Watch, RefusesWhatIsNotForIt) {
  SmallRun folder;
  const Watching run(folder.path);
  EXPECT_EQ(run.ask(get("/etc/passwd")).body,
            "there is no /etc/passwd: the page is at /, numbers for Prometheus at /metrics\n");
  EXPECT_EQ(run.ask(get("/../config.json")).status, 404);
  const auto posted = run.ask("POST / HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(posted.status, 405);
  EXPECT_EQ(posted.body, "a run is only looked at: use GET\n");
  EXPECT_EQ(run.ask("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello").status, 413);
  EXPECT_EQ(run.ask("GET / HTTP/1.1\r\nHost: localhost\r\nX: " + std::string(100'000, 'x') + "\r\n\r\n").status, 431);
  EXPECT_EQ(run.ask("GET / HTTP/1.1\r\n\r\n").status, 400);
  for (const char* host : {"evil.example", "evil.example:80", "127.0.0.1.evil.example"}) {
    for (const char* path : {"/", "/events", "/metrics"}) {
      EXPECT_EQ(run.ask(fmt::format("GET {} HTTP/1.1\r\nHost: {}\r\n\r\n", path, host)).status, 403) << host << path;
    }
  }
}

TEST(Watch, AsksForAKeyEverywhere) {
  SmallRun folder;
  const auto path = folder.path + "/keys";
  std::ofstream(path) << "0123456789abcdef\n";
  std::filesystem::permissions(path, std::filesystem::perms::owner_read);
  const Watching run(folder.path, {.keys = http::ApiKeys::load(path)});
  for (const char* asked : {"/", "/events", "/metrics"}) {
    const auto refused = run.ask(get(asked));
    EXPECT_EQ(refused.status, 401);
    EXPECT_NE(refused.head.find("WWW-Authenticate: Basic realm=\"orthant\""), std::string::npos);
  }
  EXPECT_EQ(run.ask(get("/", "Authorization: Bearer 0123456789abcdef\r\n")).status, 200);
  EXPECT_EQ(run.ask(get("/", "Authorization: Basic bWU6MDEyMzQ1Njc4OWFiY2RlZg==\r\n")).status, 200);
}

// Some stop in the middle of a request, some shut their side, some take nothing: everybody else is served.
TEST(Watch, DoesNotMindClientsThatMisbehave) {
  SmallRun folder;
  folder.step(1, "2.5");
  Watching run(folder.path);
  std::vector<RawClient> clients;
  for (int i = 0; i < 40; ++i) {
    auto& client = clients.emplace_back(run.port);
    if (i % 4 == 0) client.send("GET / HTTP/1.1\r\nHo");
    if (i % 4 == 1) client.send(get("/events"));
    if (i % 4 == 2) {
      client.send(get("/events"));
      client.shut();
    }
    if (i % 4 == 3) client.close();
  }
  RawClient reader(run.port);
  reader.send(get("/events"));
  reader.read_until("event: pieces");
  folder.step(2, "1.25");
  EXPECT_NE(reader.read_until("[2,1.25,").find("[2,1.25,"), std::string::npos);
  EXPECT_EQ(run.ask(get("/")).status, 200);
}

// Each answer is large, and the client reads none before it has asked for all.
TEST(Watch, KeepsLittleForWhoAsksAheadAndAnswersAll) {
  constexpr int kRequests = 800;
  SmallRun folder;
  for (int i = 1; i <= 200; ++i) folder.step(i, "2.5");
  const Watching run(folder.path);
  const auto page_bytes = run.ask(get("/")).body.size();
  EXPECT_GT(page_bytes * kRequests, http::ServerOptions().unsent_bytes);
  RawClient client(run.port);
  std::string requests;
  for (int i = 1; i < kRequests; ++i) requests += get("/");
  client.send(requests + "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  const auto all = client.read_all();
  EXPECT_GT(all.size(), page_bytes * (kRequests - 1));
  EXPECT_NE(all.find("orthant_train_step 200"), std::string::npos);
}

TEST(Watch, LimitsThoseWhoFollow) {
  SmallRun folder;
  const Watching run(folder.path);
  std::vector<RawClient> clients;
  for (int i = 0; i < 64; ++i) {
    clients.emplace_back(run.port).send(get("/events"));
    clients.back().read_until("retry");
  }
  EXPECT_EQ(run.ask(get("/events")).body, "64 readers follow the run, which is the most\n");
  clients.front().close();
  RawClient next(run.port);
  next.send(get("/metrics"));
  EXPECT_EQ(test::response_of(next.read_until("train_step 0")).status, 200);
}

}  // namespace watch_service_test
}  // namespace orthant
