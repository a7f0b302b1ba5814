#include "orthant/comm/board.h"

#include <fmt/format.h>

#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

namespace orthant::comm {

std::string Board::key(const char* kind, int rank) const {
  return fmt::format("board/{}/{}", kind, rank);
}

void Board::blocked(const Wait& wait) {
  const nlohmann::json json{{"call", wait.call}, {"site", wait.site}, {"missing", wait.missing}};
  store_.set(key("wait", rank_), json.dump());
}

void Board::unblocked() {
  store_.set(key("wait", rank_), "{}");
}

void Board::left() {
  store_.set(key("left", rank_), "1");
}

bool Board::has_left(int rank) {
  return store_.has(key("left", rank));
}

std::vector<int> Board::wait_for_leavers(double timeout_seconds) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(timeout_seconds);
  std::vector<int> remaining;
  for (int rank = 0; rank < world_size_; ++rank) remaining.push_back(rank);
  while (true) {
    std::erase_if(remaining, [this](int rank) { return has_left(rank); });
    if (remaining.empty() || std::chrono::steady_clock::now() > deadline) return remaining;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

std::optional<Board::Wait> Board::read(int rank) {
  const auto text = store_.get_now(key("wait", rank));
  if (text.empty()) return std::nullopt;
  const auto json = nlohmann::json::parse(text);
  if (!json.contains("call")) return std::nullopt;
  return Wait{json["call"], json["site"], json["missing"].get<std::vector<int>>()};
}

std::optional<std::string> Board::find_cycle() {
  std::set<int> seen;
  std::vector<std::string> path;
  const std::function<bool(int)> search = [&](int rank) {
    if (!seen.insert(rank).second) return false;
    const auto wait = read(rank);
    if (!wait) return false;
    for (const int next : wait->missing) {
      path.push_back(fmt::format("rank {} waits in {} at {} for rank {}", rank, wait->call, wait->site, next));
      if (next == rank_ || search(next)) return true;
      path.pop_back();
    }
    return false;
  };
  if (!search(rank_)) return std::nullopt;
  std::string text;
  for (const auto& line : path) text += "\n  " + line;
  return text;
}

}  // namespace orthant::comm
