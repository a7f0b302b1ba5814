// Runs a test body on several endpoints of one process, a thread each.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include "orthant/shm/channel.h"

namespace orthant::shm::test {

inline constexpr size_t kArenaBytes = size_t{96} << 20;

inline std::vector<int> all_ranks(int size) {
  std::vector<int> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// Connected endpoints, by rank.
inline std::vector<std::unique_ptr<Endpoint>> connected_endpoints(int size) {
  std::vector<std::unique_ptr<Endpoint>> endpoints;
  for (int rank = 0; rank < size; ++rank) endpoints.push_back(std::make_unique<Endpoint>(rank, kArenaBytes, size));
  for (const auto& endpoint : endpoints) {
    for (const auto& peer : endpoints) {
      if (peer != endpoint) endpoint->connect(peer->rank(), peer->arena().mapping().fd(), -1);
    }
  }
  return endpoints;
}

// body(endpoint) on every rank; an endpoint ends when its body does. Returns the errors as text, "" for none.
inline std::vector<std::string> errors_of_ranks(int size, const std::function<void(Endpoint&)>& body) {
  auto endpoints = connected_endpoints(size);
  std::vector<std::string> errors(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      auto endpoint = std::move(endpoints[static_cast<size_t>(rank)]);
      try {
        body(*endpoint);
      } catch (const std::exception& error) {
        errors[static_cast<size_t>(rank)] = error.what();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  return errors;
}

}  // namespace orthant::shm::test
