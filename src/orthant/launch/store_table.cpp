#include "orthant/launch/store_table.h"

#include <fmt/format.h>

#include <charconv>

namespace orthant::launch {

void StoreTable::put(std::string_view key, std::string value) {
  if (value.size() > limits_.value_bytes) {
    throw StoreRefusal(fmt::format("a value of {} bytes, at most {} are kept", value.size(), limits_.value_bytes));
  }
  const auto found = values_.find(std::string(key));
  const size_t before = found == values_.end() ? 0 : key.size() + found->second.size();
  const size_t after = key.size() + value.size();
  if (total_bytes_ - before + after > limits_.total_bytes) {
    throw StoreRefusal(fmt::format("the store is full: {} of {} bytes", total_bytes_, limits_.total_bytes));
  }
  if (found == values_.end() && values_.size() >= limits_.num_keys) {
    throw StoreRefusal(fmt::format("the store is full: {} keys", values_.size()));
  }
  total_bytes_ += after - before;
  if (found == values_.end()) {
    values_.emplace(key, std::move(value));
  } else {
    found->second = std::move(value);
  }
}

void StoreTable::set(std::string_view key, std::string_view value) {
  put(key, std::string(value));
}

void StoreTable::append(std::string_view key, std::string_view value) {
  const auto* found = find(std::string(key));
  put(key, (found == nullptr ? std::string() : *found) + std::string(value));
}

int64_t StoreTable::add(std::string_view key, int64_t value) {
  int64_t sum = value;
  if (const auto* found = find(std::string(key))) {
    int64_t before = 0;
    const auto* end = found->data() + found->size();
    const auto [rest, error] = std::from_chars(found->data(), end, before);
    if (error != std::errc{} || rest != end) throw StoreRefusal("add to a value that is no number");
    sum = static_cast<int64_t>(static_cast<uint64_t>(before) + static_cast<uint64_t>(value));
  }
  put(key, std::to_string(sum));
  return sum;
}

std::string StoreTable::compare_set(std::string_view key, std::string_view expected, std::string_view desired) {
  const auto* found = find(std::string(key));
  if (found == nullptr && !expected.empty()) return std::string(expected);
  if (found != nullptr && *found != expected) return *found;
  set(key, desired);
  return std::string(desired);
}

const std::string* StoreTable::find(const std::string& key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

bool StoreTable::erase(const std::string& key) {
  const auto found = values_.find(key);
  if (found == values_.end()) return false;
  total_bytes_ -= found->first.size() + found->second.size();
  values_.erase(found);
  return true;
}

void StoreTable::hand_in(std::string_view key, Handed handed) {
  if (handed.readers_left < 1) return;
  if (handed_.size() >= limits_.num_descriptors) {
    throw StoreRefusal(fmt::format("the store holds {} descriptors and takes no more", handed_.size()));
  }
  if (!handed_.try_emplace(std::string(key), std::move(handed)).second) {
    throw StoreRefusal("a descriptor was handed in under this name before");
  }
}

StoreTable::Handed* StoreTable::find_handed(const std::string& key) {
  const auto found = handed_.find(key);
  return found == handed_.end() ? nullptr : &found->second;
}

void StoreTable::taken(const std::string& key) {
  const auto found = handed_.find(key);
  if (found != handed_.end() && --found->second.readers_left == 0) handed_.erase(found);
}

}  // namespace orthant::launch
