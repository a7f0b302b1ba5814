// Connections that speak nonsense to the store: each ends, the others and the server's memory notice nothing.
#include <random>
#include <thread>

#include "launch/store_fixture.h"

namespace orthant::launch {
namespace store_hostile_test {

class HostileStore : public StoreTest {
 protected:
  void start_beside(int num_hostile) {
    for (int i = 0; i < num_hostile; ++i) hostile_.push_back(raw_connection());
    good_ = client();
    server_.start();
  }

  void expect_good_is_served() {
    good_->set("still", "here");
    EXPECT_EQ(good_->get({"still"}, 5)->front(), "here");
  }

  static std::string frame(uint32_t length, std::string_view rest) {
    return std::string(reinterpret_cast<const char*>(&length), sizeof length).append(rest);
  }

  std::vector<Fd> hostile_;
  std::shared_ptr<StoreClient> good_;
};

std::string request(StoreCommand command, const std::vector<std::string>& texts) {
  FrameWriter writer(7, static_cast<uint8_t>(command));
  for (const auto& text : texts) writer.text(text);
  return writer.finish();
}

TEST_F(HostileStore, ClosesWhatIsNoFrame) {
  const std::vector<std::string> nonsense = {
      frame(0, ""),                                                      // no head
      frame(8, std::string(8, 'x')),                                     // half a head
      frame(0xffffffff, ""),                                             // 4 GiB announced
      frame(uint32_t{32u << 20} + 1, ""),                                // one byte over the bound
      frame(9, std::string(8, '\0') + "\x63"),                           // no such command
      frame(13, std::string(9, '\0') + "\xff\xff\xff\xff"),              // set: a key of 4 GiB
      frame(13, std::string(9, '\0') + std::string("\x01\x10\0\0", 4)),  // set: a key over its bound
      request(StoreCommand::set, {"key"}),                               // no value
      request(StoreCommand::set, {"key", "value", "more"}),              // too much
      request(StoreCommand::get, {}),                                    // no time, no key
      request(StoreCommand::count, {"x"}),                               //
      request(StoreCommand::put_fd, {"memory"}),                         // no number, no descriptor
      "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
  };
  start_beside(static_cast<int>(nonsense.size()));
  for (size_t i = 0; i < nonsense.size(); ++i) {
    write_all(hostile_[i].get(), nonsense[i]);
    EXPECT_TRUE(is_closed(hostile_[i].get())) << i;
  }
  expect_good_is_served();
  EXPECT_EQ(good_->num_keys(), 1);
  ASSERT_EQ(said_.size(), 1U) << "one line, however many there are";
  EXPECT_NE(said_[0].find("the ranks' store turned away process " + std::to_string(getpid())), std::string::npos);
}

TEST_F(HostileStore, ClosesAPutFdWithoutADescriptorAndADescriptorWithoutAPutFd) {
  start_beside(2);
  FrameWriter put(1, static_cast<uint8_t>(StoreCommand::put_fd));
  put.text("memory");
  put.number(1);
  write_all(hostile_[0].get(), put.finish());
  EXPECT_TRUE(is_closed(hostile_[0].get()));
  EXPECT_GT(send_with_fds(hostile_[1].get(), request(StoreCommand::set, {"k", "v"}), {0, 0}), 0);
  EXPECT_TRUE(is_closed(hostile_[1].get()));
  expect_good_is_served();
}

TEST_F(HostileStore, RandomBytesNeitherCrashItNorReachAValue) {
  constexpr int kConnections = 200;
  start_beside(kConnections);
  std::mt19937_64 random(24);
  good_->set("value", "intact");
  for (auto& fd : hostile_) {
    std::string bytes = request(static_cast<StoreCommand>(random() % 12), {"a", "b"});
    bytes += std::string(random() % 300, '\0');
    for (auto& byte : bytes) {
      if (random() % 3 == 0) byte = static_cast<char>(random());
    }
    if (random() % 2 == 0) bytes[1] = bytes[2] = bytes[3] = 0;  // a short frame that is complete
    write_all(fd.get(), bytes);
  }
  EXPECT_EQ(good_->get({"value"}, 5)->front(), "intact");
}

TEST_F(HostileStore, AHalfFrameAndASlowOneHoldNobodyUpAndTakeNoMemory) {
  start_beside(64);
  const auto before = resident_bytes();
  for (auto& fd : hostile_) write_all(fd.get(), frame(30u << 20, "half"));  // 30 MiB announced, each
  for (int i = 0; i < 50; ++i) expect_good_is_served();
  EXPECT_LT(resident_bytes(), before + (size_t{16} << 20));
}

TEST_F(HostileStore, AFloodOfRequestsWithoutReadingEndsThatConnectionAlone) {
  start_beside(1);
  good_->set("large", std::string(1 << 20, 'x'));
  std::thread flood([&] {
    FrameWriter get(1, static_cast<uint8_t>(StoreCommand::get));
    get.number(0);
    get.text("large");
    const auto bytes = get.finish();
    for (int i = 0; i < 1000; ++i) write_all(hostile_[0].get(), bytes);
  });
  for (int i = 0; i < 100; ++i) expect_good_is_served();
  flood.join();
  EXPECT_TRUE(is_closed(hostile_[0].get()));
}

TEST_F(HostileStore, KeepsAFullStoreWithinItsBounds) {
  const StoreLimits small{.key_bytes = 16, .value_bytes = 1000, .total_bytes = 5000, .num_keys = 20};
  StoreTable table(small);
  int refused = 0;
  for (int i = 0; i < 100; ++i) {
    try {
      table.set(std::to_string(i), std::string(static_cast<size_t>(i) * 9, 'x'));
    } catch (const StoreRefusal&) {
      ++refused;
    }
  }
  EXPECT_EQ(table.num_keys(), 20U);
  EXPECT_EQ(refused, 80);
  EXPECT_THROW(table.set("0", std::string(1001, 'x')), StoreRefusal);
  EXPECT_TRUE(table.erase("19"));
  EXPECT_NO_THROW(table.set("19", ""));
}

// Lets in who says "please".
class Please : public Admission {
 public:
  Verdict talk(std::string& input, std::string& output, std::string& reason) override {
    if (!asked_) output += "?";
    asked_ = true;
    if (input.size() < 6) return Verdict::undecided;
    const bool right = input.starts_with("please");
    input.erase(0, 6);
    output += right ? "!" : "";
    reason = "it did not say please";
    return right ? Verdict::admitted : Verdict::refused;
  }

 private:
  bool asked_ = false;
};

class StoreStrangers : public HostileStore {
 protected:
  void listen(double patience_seconds, std::function<bool()> is_complete = nullptr) {
    Fd listener = bind_tcp({"127.0.0.1", 0});
    start_listening(listener.get());
    at_ = bound_endpoint(listener.get());
    const auto meet = [](int, std::string&) { return std::make_unique<Please>(); };
    server_.listen(std::move(listener), meet, std::move(is_complete), patience_seconds);
    start_beside(0);
  }

  static std::string read_one(int fd) {
    char byte = 0;
    pollfd ready{fd, POLLIN, 0};
    return poll(&ready, 1, 5000) > 0 && recv(fd, &byte, 1, 0) == 1 ? std::string(1, byte) : "";
  }

  Endpoint at_;
};

TEST_F(StoreStrangers, GetInByProvingThemselvesOnly) {
  listen(5);
  Fd wrong = connect_tcp(at_, 5);
  EXPECT_EQ(read_one(wrong.get()), "?");
  write_all(wrong.get(), "PLEASE" + request(StoreCommand::set, {"stolen", "1"}));
  EXPECT_TRUE(is_closed(wrong.get()));
  Fd right = connect_tcp(at_, 5);
  EXPECT_EQ(read_one(right.get()), "?");
  write_all(right.get(), "please");
  EXPECT_EQ(read_one(right.get()), "!");
  StoreClient member(std::move(right), "test");
  EXPECT_FALSE(member.check({"stolen"}));
  member.set("k", "v");
  EXPECT_EQ(good_->get({"k"}, 5)->front(), "v");
  ASSERT_EQ(said_.size(), 1U);
  EXPECT_NE(said_[0].find("turned away 127.0.0.1:"), std::string::npos) << said_[0];
  EXPECT_NE(said_[0].find("it did not say please"), std::string::npos) << said_[0];
}

TEST_F(StoreStrangers, WhoSaysNothingOrTooMuchIsClosed) {
  listen(0.05);
  Fd silent = connect_tcp(at_, 5);
  EXPECT_TRUE(is_closed(silent.get()));
  Fd loud = connect_tcp(at_, 5);
  write_all(loud.get(), std::string(100'000, 'x'));
  EXPECT_TRUE(is_closed(loud.get()));
  expect_good_is_served();
}

TEST_F(StoreStrangers, AFloodOfThemKeepsNobodyOutForLong) {
  listen(60);
  std::vector<Fd> flood;
  for (int i = 0; i < 200; ++i) flood.push_back(connect_tcp(at_, 5));
  Fd member = connect_tcp(at_, 5);
  EXPECT_EQ(read_one(member.get()), "?");
  write_all(member.get(), "please");
  EXPECT_EQ(read_one(member.get()), "!");
  expect_good_is_served();
}

TEST_F(StoreStrangers, FindNoListenerOnceEverybodyHasCome) {
  listen(5, [] { return true; });
  Fd member = connect_tcp(at_, 5);
  write_all(member.get(), "please");
  EXPECT_EQ(read_one(member.get()), "?");
  EXPECT_EQ(read_one(member.get()), "!");
  expect_good_is_served();
  EXPECT_ANY_THROW(connect_tcp(at_, 0.01));
}

}  // namespace store_hostile_test
}  // namespace orthant::launch
