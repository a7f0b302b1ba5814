// Network interfaces of this host by name, as users and NCCL call them.
#pragma once

#include <string>

namespace orthant::launch {

// Its IPv4 address. ConfigError when there is no such interface, or it has none; names those that have.
std::string address_of_interface(const std::string& name);

}  // namespace orthant::launch
