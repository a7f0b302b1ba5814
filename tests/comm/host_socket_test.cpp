// What ranks of one host believe of a store that is not ours: the name of a socket, and only after a look at it.
#include "orthant/comm/host_socket.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <thread>

#include "orthant/base/error.h"
#include "orthant/launch/unix_sockets.h"

namespace orthant::comm {
namespace host_socket_test {

std::string error_of(Store store) {
  try {
    HostSocket(std::move(store), {3, 5}, 5, 0.2);
  } catch (const CommError& error) {
    return error.message();
  }
  return "";
}

TEST(HostSocket, PassesDescriptorsBetweenRanksWhoseStorePassesNone) {
  const auto store = make_process_store();
  std::thread first([&] {
    HostSocket socket(store, {3, 5, 6}, 3, 20);
    socket.descriptors().put_fd("input", 0, 2);
    socket.wait_until_all_have_used_it();
  });
  std::vector<std::thread> others;
  for (const int rank : {5, 6}) {
    others.emplace_back([&, rank] {
      HostSocket socket(store, {3, 5, 6}, rank, 20);
      const auto passed = socket.descriptors().get_fd("input", 20);
      ASSERT_TRUE(passed.has_value());
      EXPECT_EQ(passed->pid, getpid());
      socket.wait_until_all_have_used_it();
    });
  }
  first.join();
  for (auto& other : others) other.join();
}

TEST(HostSocket, WaitsForAllRanksNoLongerThanForOne) {
  auto store = make_process_store();
  HostSocket socket(store, {3, 5, 6}, 3, 0.4);
  std::thread others([&] {
    for (const char* rank : {"5", "6"}) {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      store.set(std::string("host-socket/3/used/") + rank, "1");
    }
  });
  EXPECT_THROW(socket.wait_until_all_have_used_it(), CommError);
  others.join();
}

TEST(HostSocket, RefusesWhatIsNoNameOfOne) {
  for (const auto& name :
       {std::string("x"), std::string(100'000, 'x'), std::string("../../etc/passwd"), std::string("1 2 3"),
        "orthant-host-" + std::string(31, '0'), "orthant-host-" + std::string(32, 'G'),
        "orthant-host-" + std::string(31, '0') + "\n", std::string(45, '\0'), std::string("\x1b[31mred")}) {
    auto store = make_process_store();
    store.set("host-socket/3/name/3", name);
    const auto text = error_of(store);
    EXPECT_NE(text.find("where rank 3 should have named its socket"), std::string::npos) << text;
    EXPECT_EQ(text.find('\x1b'), std::string::npos);
    EXPECT_LT(text.size(), 500U);
  }
}

TEST(HostSocket, RefusesANameWhereNobodyListens) {
  auto store = make_process_store();
  store.set("host-socket/3/name/3", "orthant-host-" + std::string(32, '0'));
  const auto text = error_of(store);
  EXPECT_NE(text.find("rank 3 listens at 'orthant-host-00000000000000000000000000000000', but nobody does"),
            std::string::npos)
      << text;
}

TEST(HostSocket, RefusesASocketThatLetsNobodyIn) {
  auto store = make_process_store();
  const auto name = "orthant-host-" + launch::random_name();
  const auto listener = launch::listen_unix(name);
  store.set("host-socket/3/name/3", name);
  const auto text = error_of(store);
  EXPECT_NE(text.find("did not let this rank in within 0.2 s"), std::string::npos) << text;
}

}  // namespace host_socket_test
}  // namespace orthant::comm
