#include "orthant/launch/sockets.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <string_view>
#include <thread>

#include "launch/message_of.h"
#include "orthant/base/error.h"
#include "orthant/launch/unix_sockets.h"

constexpr std::string_view kTwoAddresses = "two-addresses.test";

// In place of the C library's: a name of the tests has two addresses of this host.
extern "C" int getaddrinfo(const char* host, const char* service, const addrinfo* hints, addrinfo** found) {
  static const auto real = reinterpret_cast<decltype(&getaddrinfo)>(dlsym(RTLD_NEXT, "getaddrinfo"));
  if (host == nullptr || host != kTwoAddresses) return real(host, service, hints, found);
  const int code = real("127.0.0.2", service, hints, found);
  return code != 0 ? code : real("127.0.0.3", service, hints, &(*found)->ai_next);
}

namespace orthant::launch {
namespace sockets_test {

TEST(Endpoint, IsReadWithAndWithoutBrackets) {
  EXPECT_EQ(parse_endpoint("node01:29400", "--rendezvous").host, "node01");
  EXPECT_EQ(parse_endpoint("node01:29400", "--rendezvous").port, 29400);
  EXPECT_EQ(parse_endpoint("[::1]:80", "--rendezvous").host, "::1");
  EXPECT_EQ(endpoint_text({"::1", 80}), "[::1]:80");
  EXPECT_EQ(endpoint_text({"10.0.0.1", 80}), "10.0.0.1:80");
}

TEST(Endpoint, NamesTheFlagTheValueAndTheRightForm) {
  for (const char* text :
       {"node01", "node01:", ":80", "node01:port", "node01:70000", "node01:-1", "::1:80", "[]:1", ""}) {
    const auto message = message_of<ConfigError>([&] { parse_endpoint(text, "--rendezvous"); });
    EXPECT_NE(message.find("--rendezvous is '" + std::string(text) + "'"), std::string::npos) << message;
    EXPECT_NE(message.find("HOST:PORT"), std::string::npos) << message;
  }
}

TEST(BindTcp, TakesAFreePortOfTheNamedAddressOnly) {
  const Fd fd = bind_tcp({"127.0.0.1", 0});
  EXPECT_EQ(bound_endpoint(fd.get()).host, "127.0.0.1");
  EXPECT_GT(bound_endpoint(fd.get()).port, 0);
}

TEST(BindTcp, NamesAddressAndPortThatAreTaken) {
  const Fd first = bind_tcp({"127.0.0.1", 0});
  start_listening(first.get());
  const int port = bound_endpoint(first.get()).port;
  const auto message = message_of<ConfigError>([&] { bind_tcp({"127.0.0.1", port}); });
  EXPECT_NE(message.find("port " + std::to_string(port) + " on 127.0.0.1 is in use"), std::string::npos) << message;
  EXPECT_NE(message.find("choose another port"), std::string::npos) << message;
}

TEST(BindTcp, RefusesAnAddressOfAnotherHost) {
  const auto message = message_of<ConfigError>([] { bind_tcp({"192.0.2.7", 0}); });
  EXPECT_NE(message.find("192.0.2.7 is not an address of this host"), std::string::npos) << message;
}

TEST(BindTcp, NamesAHostThatDoesNotExist) {
  const auto message = message_of<ConfigError>([] { bind_tcp({"no-such-host.invalid", 1}); });
  EXPECT_NE(message.find("no-such-host.invalid"), std::string::npos) << message;
}

TEST(ConnectTcp, ReachesAListenerAndGivesUpOnNobody) {
  Fd listener = bind_tcp({"127.0.0.1", 0});
  const auto endpoint = bound_endpoint(listener.get());
  EXPECT_THROW(connect_tcp(endpoint, 0.05), CommError);  // bound, not listening
  start_listening(listener.get());
  EXPECT_TRUE(connect_tcp(endpoint, 5));
  listener.reset();
  const auto message = message_of<CommError>([&] { connect_tcp(endpoint, 0.05); });
  EXPECT_NE(message.find("nobody answered at " + endpoint_text(endpoint) + " within 0.05 s"), std::string::npos)
      << message;
}

TEST(ConnectTcp, AsksNobodyAtAnAddressOfTheNameThatBindTcpDoesNotTake) {
  const std::string name(kTwoAddresses);
  const Fd other = bind_tcp({"127.0.0.3", 0});
  start_listening(other.get());
  const int port = bound_endpoint(other.get()).port;
  EXPECT_THROW(connect_tcp({name, port}, 0.02), CommError);
  const Fd right = bind_tcp({name, port});
  EXPECT_EQ(bound_endpoint(right.get()).host, "127.0.0.2");
  start_listening(right.get());
  EXPECT_EQ(peer_endpoint(connect_tcp({name, port}, 5).get()).host, "127.0.0.2");
}

TEST(AddressTowards, IsLoopbackForLoopback) {
  EXPECT_EQ(address_towards("127.0.0.1"), "127.0.0.1");
  EXPECT_EQ(serving_address("localhost"), resolve("localhost"));
  EXPECT_TRUE(is_loopback("127.0.1.1"));
  EXPECT_FALSE(is_loopback("10.0.0.1"));
}

// A socket that asks for nothing, at the name or connected to it.
Fd plain_socket(const std::string& name, int (*at)(int, const sockaddr*, socklen_t)) {
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  EXPECT_EQ(at(fd.get(), reinterpret_cast<const sockaddr*>(&address), length), 0);
  return fd;
}

pid_t sender_at(int accepted) {
  char byte = 0;
  const auto received = receive_with_fds(accepted, &byte, 1);
  return received.num_bytes == 1 && received.sender ? received.sender->pid : -1;
}

TEST(UnixSockets, WhatIsSentAtOnceCarriesCredentialsWhicheverSideAskedForThem) {
  const auto name = "orthant-test-" + random_name();
  {
    const Fd listener = listen_unix(name);
    const Fd sender = plain_socket(name, &connect);
    const Fd accepted(accept(listener.get(), nullptr, nullptr));
    ASSERT_EQ(send(sender.get(), "x", 1, 0), 1);
    EXPECT_EQ(sender_at(accepted.get()), getpid());
  }
  const Fd listener = plain_socket(name, &bind);
  ASSERT_EQ(listen(listener.get(), 1), 0);
  const Fd sender = connect_unix(name);
  const Fd accepted(accept(listener.get(), nullptr, nullptr));
  ASSERT_EQ(send(sender.get(), "x", 1, 0), 1);
  ask_for_credentials(accepted.get());  // too late to matter for the byte
  EXPECT_EQ(sender_at(accepted.get()), getpid());
}

TEST(UnixSockets, AFullQueueIsWaitedFor) {
  const auto name = "orthant-test-" + random_name();
  const Fd listener = plain_socket(name, &bind);
  ASSERT_EQ(listen(listener.get(), 0), 0);
  const Fd first = connect_unix(name);
  ASSERT_TRUE(first);
  EXPECT_FALSE(connect_unix(name));
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_FALSE(connect_unix_until(name, Clock::now() + seconds(0.01)));
  std::thread server([&] { Fd(accept(listener.get(), nullptr, nullptr)); });
  EXPECT_TRUE(connect_unix_until(name, Clock::now() + seconds(20)));
  server.join();
}

TEST(WaitUntil, EndsAtItsDeadlineAndAtABrokenPeer) {
  auto [a, b] = stream_pair();
  EXPECT_FALSE(wait_until(a.get(), POLLIN, Clock::now() + seconds(0.01)));
  EXPECT_FALSE(wait_until(a.get(), POLLIN, Clock::now() - seconds(1)));
  b.reset();
  EXPECT_TRUE(wait_until(a.get(), POLLIN, Clock::now() + seconds(10)));
}

TEST(Fd, ClosesWhatItHoldsOnce) {
  Fd a = bind_tcp({"127.0.0.1", 0});
  const int number = a.get();
  Fd b = std::move(a);
  EXPECT_EQ(b.get(), number);
  b.reset();
  EXPECT_THROW(bound_endpoint(number), InternalError);
}

}  // namespace sockets_test
}  // namespace orthant::launch
