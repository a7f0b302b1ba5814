#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <future>
#include <thread>

#include "mesh/thrown_error.h"
#include "orthant/launch/unix_sockets.h"
#include "orthant/serve/link/remote_generator.h"
#include "serve/fake_generator.h"

namespace orthant {
namespace link_test {

using test::FakeGenerator;

class Collected : public TokenSink {
 public:
  bool token(const GeneratedToken& token) override {
    tokens.push_back(token.token);
    return static_cast<int>(tokens.size()) < most;
  }
  void finished(FinishReason reason, const std::string& text) override {
    error = text;
    end.set_value(reason);
  }
  FinishReason wait() { return end.get_future().get(); }

  int most = 1 << 20;
  std::vector<std::int64_t> tokens;
  std::string error;
  std::promise<FinishReason> end;
};

GenerationRequest request(std::uint64_t id, std::int64_t max_tokens = 5) {
  GenerationRequest one;
  one.id = id;
  one.prompt = {1, 2, 3};
  one.sampling.max_tokens = max_tokens;
  one.sampling.seed = id;
  return one;
}

void wait_until_up(const RemoteGenerator& generator, std::int64_t starts) {
  const auto deadline = launch::Clock::now() + std::chrono::seconds(20);
  while (!(generator.is_up() && generator.num_starts() == starts) && launch::Clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  ASSERT_TRUE(generator.is_up());
}

// An engine in a process of its own, as ranks are; it ends when it is told to, or by a signal.
pid_t start_engine(const std::string& name, bool held = false) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  alarm(60);
  {
    FakeGenerator generator(64);
    generator.hold(held);
    serve_link(generator, name, 100, [] { return true; });
  }
  _exit(0);
}

int end_of(pid_t pid) {
  int status = 0;
  waitpid(pid, &status, 0);
  return status;
}

TEST(Link, FramesComeBackAsTheyWere) {
  auto asked = request(77, 9);
  asked.sampling.stop_tokens = {4, 5};
  asked.sampling.ignore_end = true;
  asked.sampling.logprobs = 3;
  asked.sampling.min_p = 0.25;
  FrameReader reader;
  for (const char byte : frame_bytes(submit_frame(asked)) + frame_bytes(token_frame(5, {7, -1.5, {{8, -2}}}))) {
    reader.feed({&byte, 1});
  }
  const auto read = read_submit(*reader.next());
  EXPECT_EQ(read.id, 77u);
  EXPECT_EQ(read.prompt, asked.prompt);
  EXPECT_EQ(read.sampling.stop_tokens, asked.sampling.stop_tokens);
  EXPECT_EQ(read.sampling.max_tokens, 9);
  EXPECT_EQ(read.sampling.logprobs, 3);
  EXPECT_EQ(read.sampling.min_p, 0.25);
  EXPECT_TRUE(read.sampling.ignore_end);
  const auto token = read_token(*reader.next());
  EXPECT_EQ(token.token, 7);
  EXPECT_EQ(token.most[0].token, 8);
  EXPECT_FALSE(reader.next());
  EXPECT_THROW(read_token({FrameKind::token, 1, "short"}), InternalError);
}

TEST(Link, AnswersAsTheGeneratorItselfDoes) {
  const auto name = "orthant-test-" + launch::random_name();
  RemoteGenerator generator(name);
  const pid_t pid = start_engine(name);
  wait_until_up(generator, 1);
  EXPECT_EQ(generator.most_tokens(), 64);
  const auto sink = std::make_shared<Collected>();
  generator.submit(request(3), sink);
  EXPECT_EQ(sink->wait(), FinishReason::length);
  std::vector<std::int64_t> expected;
  for (int i = 0; i < 5; ++i) expected.push_back(FakeGenerator::letter(request(3), i));
  EXPECT_EQ(sink->tokens, expected);

  const auto short_one = std::make_shared<Collected>();
  short_one->most = 2;
  generator.submit(request(4, 50), short_one);
  EXPECT_EQ(short_one->wait(), FinishReason::stop);
  EXPECT_EQ(short_one->tokens.size(), 2u);

  auto bad = request(5);
  const auto refused = [&] { return test::thrown_text<DataError>([&] { generator.submit(bad, sink); }); };
  bad.prompt = {100};
  EXPECT_EQ(refused(), "token 100 is none of the model's\ntokens are between 0 and 99");
  bad.prompt = {};
  EXPECT_EQ(refused(), "the prompt is empty\ngive at least one token");
  bad.prompt.assign(64, 1);
  EXPECT_EQ(refused(), "a prompt of 64 tokens leaves no room for an answer\nprompt and answer have at most 64");
  generator.stop_engine();
  EXPECT_EQ(end_of(pid), 0);
}

TEST(Link, CancelledAnswersEnd) {
  const auto name = "orthant-test-" + launch::random_name();
  RemoteGenerator generator(name);
  const pid_t pid = start_engine(name, /*held=*/true);
  wait_until_up(generator, 1);
  const auto sink = std::make_shared<Collected>();
  generator.submit(request(9), sink);
  generator.cancel(9);
  EXPECT_EQ(sink->wait(), FinishReason::cancelled);
  generator.stop_engine();
  EXPECT_EQ(end_of(pid), 0);
}

// An engine that is killed fails what runs, and one that comes later is asked again.
TEST(Link, SurvivesItsEngine) {
  const auto name = "orthant-test-" + launch::random_name();
  RemoteGenerator generator(name);
  const pid_t first = start_engine(name, /*held=*/true);
  wait_until_up(generator, 1);
  std::vector<std::shared_ptr<Collected>> sinks;
  for (std::uint64_t i = 0; i < 20; ++i) {
    sinks.push_back(std::make_shared<Collected>());
    generator.submit(request(i), sinks.back());
  }
  kill(first, SIGKILL);
  end_of(first);
  for (const auto& sink : sinks) {
    EXPECT_EQ(sink->wait(), FinishReason::failed);
    EXPECT_EQ(sink->error, kEngineLost);
  }
  const auto sink = std::make_shared<Collected>();
  EXPECT_EQ(test::thrown_text<CommError>([&] { generator.submit(request(99), sink); }),
            "no ranks are there to answer\nwait until they are started");
  const pid_t second = start_engine(name);
  wait_until_up(generator, 2);
  generator.submit(request(100), sink);
  EXPECT_EQ(sink->wait(), FinishReason::length);
  generator.stop_engine();
  EXPECT_EQ(end_of(second), 0);
}

TEST(Link, AnEngineEndsWhenTheServerIsGone) {
  const auto name = "orthant-test-" + launch::random_name();
  pid_t pid = -1;
  {
    RemoteGenerator generator(name);
    pid = start_engine(name);
    wait_until_up(generator, 1);
  }
  EXPECT_EQ(end_of(pid), 0);
  FakeGenerator generator;
  EXPECT_EQ(test::thrown_text<CommError>([&] { serve_link(generator, name, 1, [] { return true; }); }),
            "the process that serves is gone\nstart the server again");
}

}  // namespace link_test
}  // namespace orthant
