#include "orthant/train/replica_watch.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <span>

#include "orthant/base/index.h"
#include "orthant/base/stable_hash.h"
#include "orthant/files/xxhash.h"

namespace orthant {
namespace {

constexpr std::uint64_t kKinds = 4;  // keys are alike modulo this where what they stand for is of one kind

std::string host_name() {
  std::array<char, 256> name = {};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

std::span<const std::byte> bytes_of_tensor(const at::Tensor& values) {
  return {static_cast<const std::byte*>(values.const_data_ptr()), values.nbytes()};
}

at::Tensor as_numbers(const std::vector<std::uint64_t>& words) {
  auto numbers = at::empty({static_cast<std::int64_t>(words.size())}, at::kLong);
  std::ranges::copy(words, reinterpret_cast<std::uint64_t*>(numbers.mutable_data_ptr<std::int64_t>()));
  return numbers;
}

std::vector<std::uint64_t> as_words(const at::Tensor& numbers) {
  const auto* first = reinterpret_cast<const std::uint64_t*>(numbers.const_data_ptr<std::int64_t>());
  return {first, first + numbers.numel()};
}

std::vector<std::vector<std::uint64_t>> gather_words(const ControlGroup& ranks,
                                                     const std::vector<std::uint64_t>& words) {
  std::vector<std::vector<std::uint64_t>> all;
  for (const auto& numbers : ranks.gather(as_numbers(words))) all.push_back(as_words(numbers));
  return all;
}

}  // namespace

void ReplicaWatch::add_item(Kind kind, std::size_t buffer, std::size_t entry, Range range) {
  const auto& held = store_.buffers()[buffer]->layout().entries[entry];
  const auto met = common(range, held.range());
  if (met.empty()) return;
  std::string what = fmt::format("{} {} {}-{}", static_cast<int>(kind), held.parameter, met.begin - held.offset,
                                 met.end - held.offset);
  for (const auto& box : held.boxes)
    what += fmt::format(" {}:{}", fmt::join(box.offsets, ","), fmt::join(box.lengths, ","));
  items_.push_back({.kind = kind,
                    .buffer = buffer,
                    .entry = entry,
                    .range = met,
                    .key = stable_hash(what) * kKinds + static_cast<std::uint64_t>(kind)});
}

void ReplicaWatch::find_items() {
  for (std::size_t b = 0; b < store_.buffers().size(); ++b) {
    const auto& buffer = *store_.buffers()[b];
    const bool has_copy = !buffer.transient_values() && (buffer.published().defined() || !buffer.owns_all());
    for (std::size_t e = 0; e < buffer.layout().entries.size(); ++e) {
      add_item(Kind::parameter, b, e, buffer.owned());
      if (has_copy) add_item(Kind::copy, b, e, {0, buffer.layout().size});
      if (buffer.trainable()) add_item(Kind::gradient, b, e, buffer.owned());
    }
  }
  std::vector<std::uint64_t> keys;
  for (const auto& item : items_) keys.push_back(item.key);
  const auto sets = sets_of_holders(keys, gather_words(ranks_, keys));
  for (std::size_t i = 0; i < items_.size(); ++i) items_[i].set = sets[i];
  std::erase_if(items_, [](const Item& item) { return item.set == 0; });
  hashes_.assign(items_.size(), 0);
  found_items_ = true;
}

std::uint64_t ReplicaWatch::hash(const Item& item) const {
  const auto& buffer = *store_.buffers()[item.buffer];
  Xxh64 hash;
  const auto add = [&](const at::Tensor& values) { hash.update(bytes_of_tensor(values.detach().cpu().contiguous())); };
  const auto first = item.range.begin - (item.kind == Kind::copy ? 0 : buffer.owned().begin);
  if (item.kind == Kind::parameter) {
    buffer.master().narrow(first, item.range.size()).in_pieces([&](std::int64_t, const MasterValues& part) {
      add(part.values());
    });
  } else {
    const auto& whole = item.kind == Kind::copy ? buffer.gather_output() : buffer.owned_gradient();
    add(whole.narrow(0, first, item.range.size()));
  }
  return hash.digest();
}

bool ReplicaWatch::digests_agree() const {
  std::map<std::uint64_t, std::uint64_t> digests;  // by set
  for (std::size_t i = 0; i < items_.size(); ++i) {
    const std::array<std::uint64_t, 2> pair = {items_[i].key, hashes_[i]};
    digests[items_[i].set] += xxh64(std::as_bytes(std::span(pair)));
  }
  std::vector<std::uint64_t> words;
  for (const auto& [set, digest] : digests) words.insert(words.end(), {set, digest});
  std::map<std::uint64_t, std::uint64_t> of_first;  // rank of the set
  for (const auto& told : gather_words(ranks_, words)) {
    for (std::size_t i = 0; i + 1 < told.size(); i += 2) {
      if (of_first.try_emplace(told[i], told[i + 1]).first->second != told[i + 1]) return false;
    }
  }
  return true;
}

std::string ReplicaWatch::name(const Item& item) const {
  const auto& layout = store_.buffers()[item.buffer]->layout();
  const auto& parameter = layout.entries[item.entry].parameter;
  const auto& unit = store_.graph().units[to_index(layout.owner)].name;
  if (item.kind == Kind::gradient) return fmt::format("unit {}: the summed gradient of {}", unit, parameter);
  if (item.kind == Kind::copy) return fmt::format("unit {}: the copy of {} that products use", unit, parameter);
  return fmt::format("unit {}: the parameter {}", unit, parameter);
}

// Every rank has all hashes, and those of its own items the names.
ReplicaReport ReplicaWatch::report() const {
  std::vector<std::uint64_t> words;
  for (std::size_t i = 0; i < items_.size(); ++i) words.insert(words.end(), {items_[i].key, hashes_[i]});
  std::vector<std::vector<HeldBits>> held;
  for (const auto& told : gather_words(ranks_, words)) {
    auto& own = held.emplace_back();
    for (std::size_t i = 0; i + 1 < told.size(); i += 2) own.push_back({told[i], told[i + 1]});
  }
  // Copies and gradients follow from parameters: where those differ, they are to blame.
  auto differences = replica_differences(held);
  const auto kind_of = [](const ReplicaDifference& one) { return static_cast<Kind>(one.key % kKinds); };
  std::ranges::stable_sort(differences, {}, kind_of);
  const auto& worst = differences.front();
  const auto own = std::ranges::find(items_, worst.key, &Item::key);
  const auto own_name = own == items_.end() ? std::string() : name(*own);
  std::vector<std::string> hosts;
  std::string subject;
  for (const auto& text : ranks_.gather_texts(nlohmann::json{host_name(), own_name}.dump())) {
    const auto parts = nlohmann::json::parse(text);
    hosts.push_back(parts.at(0).get<std::string>());
    if (subject.empty()) subject = parts.at(1).get<std::string>();
  }
  ReplicaReport found{.equal = false,
                      .gradients_alone = kind_of(worst) == Kind::gradient,
                      .odd = worst.odd,
                      .decided = worst.decided(),
                      .text = {}};
  found.text =
      found.decided
          ? fmt::format("{} of {} is not that of {}", subject, ranks_text(worst.odd, hosts), ranks_text(worst.equal))
          : fmt::format("{} differs between {}, and no majority agrees", subject, ranks_text(worst.odd, hosts));
  if (differences.size() > 1) found.text += fmt::format(" ({} more differ)", differences.size() - 1);
  return found;
}

ReplicaReport ReplicaWatch::look(bool gradients) {
  store_.settle_values();
  if (!found_items_) find_items();
  hashes_before_ = hashes_;
  for (std::size_t i = 0; i < items_.size(); ++i) {
    hashes_[i] = gradients || items_[i].kind != Kind::gradient ? hash(items_[i]) : 0;
  }
  return digests_agree() ? ReplicaReport{} : report();
}

std::vector<int> ReplicaWatch::changed_between_looks() const {
  bool changed = false;
  for (std::size_t i = 0; i < items_.size(); ++i) {
    changed |= items_[i].kind == Kind::gradient && hashes_[i] != hashes_before_[i];
  }
  std::vector<int> ranks;
  const auto told = gather_words(ranks_, {changed ? 1U : 0U});
  for (std::size_t rank = 0; rank < told.size(); ++rank) {
    if (told[rank].front() != 0) ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

}  // namespace orthant
