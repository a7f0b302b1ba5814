// The store over TCP: members on other hosts prove themselves, strangers are not heard.
#include <gtest/gtest.h>

#include <cstring>

#include "launch/job_token.h"
#include "launch/store_fixture.h"
#include "orthant/base/error.h"
#include "orthant/launch/member_connection.h"

namespace orthant::launch {
namespace store_members_test {

class StoreMembers : public StoreTest {
 protected:
  void SetUp() override {
    Fd listener = bind_tcp({"127.0.0.1", 0});
    start_listening(listener.get());
    where_ = bound_endpoint(listener.get());
    server_.listen(std::make_unique<Doorman>(std::move(listener), with_token(), std::vector{Purpose::kStore},
                                             "the store", [this](const std::string& text) { said_.push_back(text); }));
    local_ = client();
    server_.start();
    local_->set("key", "value");
  }

  Fd member(Purpose purpose = Purpose::kStore) {
    return connect_as_member(where_, with_token(), purpose, "the store", 10, nullptr);
  }

  Endpoint where_;
  std::shared_ptr<StoreClient> local_;
};

TEST_F(StoreMembers, ShareKeysAcrossHosts) {
  StoreClient remote(member(), "test");
  EXPECT_EQ(remote.get({"key"}, 5)->front(), "value");
  remote.set("other", std::string(100'000, 'x'));
  EXPECT_EQ(local_->get({"other"}, 5)->front().size(), 100'000U);
  StoreClient second(member(), "test");
  EXPECT_EQ(second.add("count", 2), 2);
  EXPECT_EQ(remote.add("count", 3), 5);
}

TEST_F(StoreMembers, PassNoDescriptors) {
  StoreClient remote(member(), "test");
  EXPECT_THROW(remote.put_fd("fd", 0, 1), CommError);
  EXPECT_EQ(local_->get({"key"}, 5)->front(), "value");
}

TEST_F(StoreMembers, AreNotStrangersWhoKnowTheCommands) {
  FrameWriter set(1, static_cast<uint8_t>(StoreCommand::set));
  set.text("key");
  set.text("altered");
  const auto frame = set.finish();
  const Fd stranger = connect_tcp(where_, 10);
  write_all(stranger.get(), frame);
  EXPECT_TRUE(is_closed(stranger.get()));
  EXPECT_EQ(local_->get({"key"}, 5)->front(), "value");
  EXPECT_EQ(local_->num_keys(), 1);
}

TEST_F(StoreMembers, AreNotStrangersWithFramesOfAnySize) {
  for (const size_t size : {size_t{75}, size_t{77}, size_t{4096}, size_t{1} << 20}) {
    std::string frame(size, '\xff');
    std::memcpy(frame.data(), "orthant", 8);
    const Fd stranger = connect_tcp(where_, 10);
    write_all(stranger.get(), frame);
    if (size > kAnswerBytes) EXPECT_TRUE(is_closed(stranger.get()));
  }
  EXPECT_EQ(local_->get({"key"}, 5)->front(), "value");
}

TEST_F(StoreMembers, AreNotNodes) {
  const Fd fd = connect_tcp(where_, 10);
  EXPECT_EQ(prove_membership(fd.get(), with_token(), Purpose::kNode, Clock::now() + seconds(10)),
            "it serves another purpose");
}

}  // namespace store_members_test
}  // namespace orthant::launch
