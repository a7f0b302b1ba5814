#include "orthant/launch/interfaces.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <netinet/in.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <memory>

#include "orthant/base/error.h"

namespace orthant::launch {
namespace {

// The first IPv4 address of each.
std::map<std::string, std::string> addresses_by_interface() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) {
    throw ConfigError(fmt::format("this host's network interfaces cannot be listed: {}", std::strerror(errno)),
                      {.remedy = "use --bind ADDRESS instead of --interface"});
  }
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, freeifaddrs);
  std::map<std::string, std::string> found;
  for (const auto* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_INET) continue;
    char text[INET_ADDRSTRLEN] = {};
    const auto* address = reinterpret_cast<const sockaddr_in*>(entry->ifa_addr);
    if (inet_ntop(AF_INET, &address->sin_addr, text, sizeof text) != nullptr) found.emplace(entry->ifa_name, text);
  }
  return found;
}

}  // namespace

std::string address_of_interface(const std::string& name) {
  const auto addresses = addresses_by_interface();
  if (const auto found = addresses.find(name); found != addresses.end()) return found->second;
  std::string there;
  for (const auto& [interface, address] : addresses) {
    there += fmt::format("{}{} ({})", there.empty() ? "" : ", ", interface, address);
  }
  throw ConfigError(fmt::format("--interface {}: this host has no interface of that name with an IPv4 address", name),
                    {.remedy = there.empty() ? "leave it out" : fmt::format("use one of {}", there)});
}

}  // namespace orthant::launch
