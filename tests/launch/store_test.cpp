// The store as its clients see it: what c10d's stores promise, waiting, and descriptors with their sender.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <atomic>
#include <thread>

#include "launch/message_of.h"
#include "launch/store_fixture.h"
#include "orthant/base/error.h"

namespace orthant::launch {
namespace store_test {

using Store = StoreTest;

TEST_F(Store, KeepsAndChangesValuesAsC10dStoresDo) {
  const auto a = client();
  const auto b = client();
  server_.start();
  a->set("k", "one");
  EXPECT_EQ(b->get({"k"}, 1)->front(), "one");
  EXPECT_TRUE(b->check({"k"}));
  EXPECT_FALSE(b->check({"k", "absent"}));
  EXPECT_EQ(a->add("n", 5), 5);
  EXPECT_EQ(b->add("n", -7), -2);
  EXPECT_EQ(a->get({"n", "k"}, 1), (std::vector<std::string>{"-2", "one"}));
  EXPECT_EQ(a->compare_set("k", "two", "three"), "one");
  EXPECT_EQ(a->compare_set("k", "one", "three"), "three");
  EXPECT_EQ(a->compare_set("new", "", "made"), "made");
  EXPECT_EQ(a->compare_set("none", "expected", "x"), "expected");
  a->append("k", "+");
  a->append("fresh", std::string("\0z", 2));
  EXPECT_EQ(b->get({"k", "fresh"}, 1), (std::vector<std::string>{"three+", std::string("\0z", 2)}));
  b->multi_set({"x", "y"}, {"1", ""});
  EXPECT_EQ(a->num_keys(), 6);
  EXPECT_TRUE(a->erase("x"));
  EXPECT_FALSE(a->erase("x"));
  EXPECT_EQ(b->num_keys(), 5);
}

TEST_F(Store, AWaitingRequestHoldsUpNeitherOtherClientsNorOtherThreadsOfItsOwn) {
  const auto a = client();
  const auto b = client();
  server_.start();
  std::atomic<bool> came = false;
  std::thread waiter([&] { came = a->wait({"one", "two", "three"}, 20); });
  std::thread getter([&] { EXPECT_EQ(a->get({"three"}, 20)->front(), "3"); });
  for (int i = 0; i < 100; ++i) a->set("other", std::to_string(i));  // the same connection
  b->set("two", "2");
  b->set("one", "1");
  EXPECT_FALSE(came);
  a->set("three", "3");
  waiter.join();
  getter.join();
  EXPECT_TRUE(came);
}

TEST_F(Store, TellsThatAKeyDidNotComeInTime) {
  const auto a = client();
  server_.start();
  EXPECT_FALSE(a->wait({"never"}, 0.02));
  EXPECT_EQ(a->get({"never"}, 0), std::nullopt);
  EXPECT_EQ(a->get_fd("never", 0.01), std::nullopt);
  a->set("never", "late");
  EXPECT_TRUE(a->wait({"never"}, 0));
}

TEST_F(Store, RefusesWhatExceedsItsBoundsAndServesOn) {
  const auto a = client();
  server_.start();
  const std::string large(StoreLimits{}.value_bytes + 1, 'x');
  auto message = message_of<CommError>([&] { a->append("k", large); });
  EXPECT_NE(message.find("the store (test) refused: a value of 16777217 bytes"), std::string::npos) << message;
  message = message_of<CommError>([&] { a->set(std::string(5000, 'k'), ""); });
  EXPECT_NE(message.find("refused: a key of 5000 bytes, at most 4096"), std::string::npos) << message;
  const auto half = std::string_view(large).substr(large.size() / 2);
  message = message_of<CommError>([&] { a->multi_set({"a", "b", "c", "d"}, {half, half, half, half}); });
  EXPECT_NE(message.find("refused: a request of"), std::string::npos) << message;
  message = message_of<CommError>([&] { a->wait(std::vector<std::string>(1'200'000), 0.01); });
  EXPECT_NE(message.find("refused: keys of more than 33554432 bytes are waited for"), std::string::npos) << message;
  a->set("k", "v");
  EXPECT_EQ(a->get({"k"}, 1)->front(), "v");
  EXPECT_FALSE(a->wait(std::vector<std::string>(900'000), 0.01)) << "what was refused counts no more";
  EXPECT_FALSE(a->wait(std::vector<std::string>(900'000), 0.01)) << "nor what was given up";
}

TEST_F(Store, RefusesAnAddToTextAndServesOn) {
  const auto a = client();
  server_.start();
  a->set("k", "text");
  const auto message = message_of<CommError>([&] { a->add("k", 1); });
  EXPECT_NE(message.find("refused: add to a value that is no number"), std::string::npos) << message;
  EXPECT_EQ(a->get({"k"}, 1)->front(), "text");
}

TEST_F(Store, SaysThatItsServerIsGone) {
  auto [server_end, client_end] = stream_pair();
  StoreClient lonely(std::move(client_end), "the launcher");
  server_end.reset();
  const auto message = message_of<CommError>([&] { lonely.set("k", "v"); });
  EXPECT_NE(message.find("the store (the launcher) is lost"), std::string::npos) << message;
}

TEST_F(Store, IsNotWaitedForLongOnceSomebodyIsInHaste) {
  auto [server_end, client_end] = stream_pair();
  StoreClient client(std::move(client_end), "test", /*answer_seconds=*/3600);
  client.hasten(0.02);
  const auto message = message_of<CommError>([&] { client.set("k", "v"); });
  EXPECT_NE(message.find("the store (test) is lost: it does not answer"), std::string::npos) << message;
  client.hasten(3600);
  EXPECT_EQ(message_of<CommError>([&] { client.check({"k"}); }), message) << "it stays lost";
}

TEST_F(Store, IsLostToWhoSentHalfARequest) {
  auto [server_end, client_end] = stream_pair();
  StoreClient client(std::move(client_end), "test", 0.02);
  const auto message = message_of<CommError>([&] { client.set("k", std::string(8 << 20, 'x')); });
  EXPECT_NE(message.find("it took half a request"), std::string::npos) << message;
  std::string sink(1 << 20, ' ');
  while (recv(server_end.get(), sink.data(), sink.size(), MSG_DONTWAIT) > 0) {
  }
  EXPECT_EQ(message_of<CommError>([&] { client.set("k", "v"); }), message) << "whatever has room again";
  EXPECT_LT(recv(server_end.get(), sink.data(), sink.size(), MSG_DONTWAIT), 0) << "nothing more is sent";
}

TEST_F(Store, PassesADescriptorAndItsSenderToSoManyReaders) {
  const auto a = client();
  const auto b = client();
  server_.start();
  Fd memory(memfd_create("test", MFD_CLOEXEC));
  ASSERT_EQ(write(memory.get(), "hello", 5), 5);
  std::thread reader([&] {
    for (int i = 0; i < 2; ++i) {
      const auto passed = b->get_fd("memory", 10);
      ASSERT_TRUE(passed.has_value());
      char text[6] = {};
      EXPECT_EQ(pread(passed->fd.get(), text, 5, 0), 5);
      EXPECT_STREQ(text, "hello");
      EXPECT_EQ(passed->pid, getpid());
      EXPECT_FALSE(passed->pidfd) << "this very process";
      EXPECT_EQ(fcntl(passed->fd.get(), F_GETFD), FD_CLOEXEC);
    }
  });
  a->put_fd("memory", memory.get(), 2);
  reader.join();
  EXPECT_EQ(b->get_fd("memory", 0.01), std::nullopt) << "forgotten after the last reader";
  a->put_fd("twice", memory.get(), 1);
  const auto message = message_of<CommError>([&] { a->put_fd("twice", memory.get(), 1); });
  EXPECT_NE(message.find("refused: a descriptor was handed in under this name before"), std::string::npos) << message;
  EXPECT_EQ(message.find("smaller keys"), std::string::npos) << message;
}

TEST_F(Store, PassesManyDescriptorsInOneTripEachToItsKey) {
  const auto a = client();
  const auto b = client();
  server_.start();
  std::vector<std::string> keys;
  for (int i = 0; i < 100; ++i) keys.push_back(std::to_string(i));
  std::thread reader([&] {
    const auto passed = b->get_fds(keys, 10);
    for (size_t i = 0; i < keys.size(); ++i) {
      ASSERT_TRUE(passed[i].has_value());
      char text[8] = {};
      EXPECT_GT(pread(passed[i]->fd.get(), text, sizeof text, 0), 0);
      EXPECT_EQ(text, keys[i]);
    }
  });
  for (int i = 99; i >= 0; --i) {
    const auto& key = keys[static_cast<size_t>(i)];
    const Fd memory(memfd_create("test", MFD_CLOEXEC));
    ASSERT_EQ(write(memory.get(), key.data(), key.size()), static_cast<ssize_t>(key.size()));
    a->put_fd(key, memory.get(), 1);
    b->set(key, "");  // other answers in between
  }
  reader.join();
  const auto late = b->get_fds({"0", "never"}, 0.01);
  EXPECT_FALSE(late[0] || late[1]);
}

TEST_F(Store, ADescriptorComesWithAPidfdOfTheProcessThatSentIt) {
  Fd theirs = raw_connection();
  const auto own = client();
  const pid_t child = fork();
  if (child == 0) {
    StoreClient sender(std::move(theirs), "child");
    sender.put_fd("input", 0, 1);
    sender.wait({"end"}, 20);
    _exit(0);
  }
  theirs.reset();
  server_.start();
  const auto passed = own->get_fd("input", 20);
  ASSERT_TRUE(passed.has_value());
  EXPECT_EQ(passed->pid, child);
  pollfd ended{passed->pidfd.get(), POLLIN, 0};
  EXPECT_EQ(poll(&ended, 1, 0), 0);
  own->set("end", "");
  waitpid(child, nullptr, 0);
  EXPECT_EQ(poll(&ended, 1, 1000), 1);
}

TEST_F(Store, KnowsThatWhoHandedADescriptorInHasEndedSince) {
  Fd theirs = raw_connection();
  const auto own = client();
  const pid_t child = fork();
  if (child == 0) {
    StoreClient(std::move(theirs), "child").put_fd("input", 0, 1);
    _exit(0);
  }
  server_.start();
  waitpid(child, nullptr, 0);
  const auto passed = own->get_fd("input", 20);
  ASSERT_TRUE(passed.has_value());
  pollfd ended{passed->pidfd.get(), POLLIN, 0};
  EXPECT_EQ(poll(&ended, 1, 0), 1) << "its number may be another process' by now";
}

TEST_F(Store, NamesTheLimitOfOpenFilesWhereADescriptorFindsNoRoom) {
  Fd theirs = raw_connection();
  const auto own = client();
  const pid_t child = fork();
  if (child == 0) {
    StoreClient reader(std::move(theirs), "child");
    const rlimit none_left{static_cast<rlim_t>(dup(0)), 4096};
    setrlimit(RLIMIT_NOFILE, &none_left);
    std::string text;
    try {
      reader.get_fd("input", 20);
    } catch (const CommError& error) {
      text = error.what();
    }
    const bool is_named = text.find("this process may open no more files") != std::string::npos &&
                          text.find("ulimit -n") != std::string::npos;
    _exit(is_named ? 0 : 1);
  }
  server_.start();
  own->put_fd("input", 0, 1);
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST_F(Store, ClosesAConnectionThatAnotherProcessSpeaksOn) {
  Fd theirs = raw_connection(getpid());
  const auto other = client();
  const pid_t child = fork();
  if (child == 0) {
    FrameWriter set(1, static_cast<uint8_t>(StoreCommand::set));
    set.text("stolen");
    set.text("1");
    write_all(theirs.get(), set.finish());
    _exit(0);
  }
  waitpid(child, nullptr, 0);
  server_.start();
  EXPECT_TRUE(is_closed(theirs.get()));
  EXPECT_FALSE(other->check({"stolen"}));
  ASSERT_EQ(said_.size(), 1U);
  EXPECT_NE(said_[0].find("on the connection of process " + std::to_string(getpid())), std::string::npos) << said_[0];
}

}  // namespace store_test
}  // namespace orthant::launch
