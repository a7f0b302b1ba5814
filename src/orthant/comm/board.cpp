#include "orthant/comm/board.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

namespace orthant::comm {

std::string Board::key(const char* kind, int rank) const {
  return fmt::format("board/{}/{}", kind, rank);
}

void Board::caller() {
  std::lock_guard lock(mutex_);
  callers_.insert(std::this_thread::get_id());
}

void Board::blocked(const Wait& wait) {
  std::lock_guard lock(mutex_);
  waits_[std::this_thread::get_id()] = wait;
  publish();
}

void Board::unblocked() {
  std::lock_guard lock(mutex_);
  waits_.erase(std::this_thread::get_id());
  publish();
}

void Board::publish() {
  auto waits = nlohmann::json::array();
  for (const auto& [thread, wait] : waits_) {
    waits.push_back({{"call", wait.call}, {"site", wait.site}, {"missing", wait.missing}});
  }
  store_.set(key("waits", rank_), nlohmann::json{{"callers", callers_.size()}, {"waits", waits}}.dump());
}

Board::Entry Board::read(int rank) {
  const auto text = store_.get_now(key("waits", rank));
  if (text.empty()) return {};
  const auto json = nlohmann::json::parse(text);
  Entry entry;
  entry.num_callers = json["callers"];
  for (const auto& wait : json["waits"]) {
    entry.waits.push_back({wait["call"], wait["site"], wait["missing"].get<std::vector<int>>()});
  }
  return entry;
}

void Board::left() {
  store_.set(key("left", rank_), "1");
}

bool Board::has_left(int rank) {
  return store_.has(key("left", rank)) || (is_gone_ && is_gone_(rank));
}

void Board::wait_for_leavers(double timeout_seconds) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(timeout_seconds);
  for (int rank = 0; rank < world_size_; ++rank) {
    while (!has_left(rank)) {
      if (std::chrono::steady_clock::now() > deadline) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
}

// Starts from the ranks whose every caller is blocked and takes out, again and again, those that some rank outside can
// free.
std::optional<std::string> Board::find_deadlock() {
  std::map<int, Entry> stuck;
  for (int rank = 0; rank < world_size_; ++rank) {
    auto entry = read(rank);
    if (!entry.waits.empty() && entry.waits.size() >= entry.num_callers) stuck.emplace(rank, std::move(entry));
  }
  const auto can_go_on = [&](const Wait& wait) {
    return std::none_of(wait.missing.begin(), wait.missing.end(), [&](int rank) { return stuck.contains(rank); });
  };
  while (std::erase_if(stuck, [&](const auto& item) {
           return std::any_of(item.second.waits.begin(), item.second.waits.end(), can_go_on);
         }) != 0) {
  }
  if (!stuck.contains(rank_)) return std::nullopt;
  std::string text;
  for (const auto& [rank, entry] : stuck) {
    for (const auto& wait : entry.waits) {
      text += fmt::format("\n  rank {} waits in {} at {} for rank {}", rank, wait.call, wait.site,
                          fmt::join(wait.missing, ", rank "));
    }
  }
  return text;
}

}  // namespace orthant::comm
