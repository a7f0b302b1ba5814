#include "orthant/comm/control_group.h"

#include <ATen/ATen.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "orthant/base/error_report.h"
#include "orthant/launch/activity_board.h"

namespace orthant {
namespace {

at::Tensor bytes_of(const std::string& text) {
  auto bytes = at::empty({static_cast<std::int64_t>(text.size())}, at::kByte);
  if (!text.empty()) std::memcpy(bytes.mutable_data_ptr(), text.data(), text.size());
  return bytes;
}

std::string text_of(const at::Tensor& bytes) {
  return {static_cast<const char*>(bytes.const_data_ptr()), static_cast<std::size_t>(bytes.numel())};
}

constexpr const char* kAuthenticity = "authenticity";
constexpr const char* kVersion = "version";

// An error on its way to the other ranks.
std::string packed(const std::exception& error) {
  using nlohmann::json;
  const auto report = report_of(error);
  const char* kind = dynamic_cast<const AuthenticityError*>(&error) != nullptr ? kAuthenticity
                     : dynamic_cast<const VersionError*>(&error) != nullptr    ? kVersion
                                                                               : "";
  return json{report.exit_code, report.message, report.remedy, report.error_number, kind}.dump(
      -1, ' ', false, json::error_handler_t::replace);
}

[[noreturn]] void throw_packed(const std::string& text, int rank) {
  const auto parts = nlohmann::json::parse(text);
  const auto message = parts[1].get<std::string>();
  const ErrorDetails details{.remedy = parts[2].get<std::string>(), .rank = rank};
  if (parts[0] == 2) throw ConfigError(message, details);
  if (parts[3] != 0) throw IoError(message, parts[3].get<int>(), details);
  if (parts[4] == kAuthenticity) throw AuthenticityError(message, details);
  if (parts[4] == kVersion) throw VersionError(message, details);
  if (parts[0] == 4) throw DataError(message, details);
  throw InternalError(message, details);
}

}  // namespace

std::string ControlGroup::from_first(const std::string& text) const {
  if (alone()) return text;
  auto world = communicator_->world();
  const auto length = at::tensor({static_cast<std::int64_t>(text.size())}, at::kLong);
  world.broadcast(length, /*root=*/0).wait();
  const auto size = length.item<std::int64_t>();
  if (size == 0) return {};
  const auto bytes = is_first() ? bytes_of(text) : at::empty({size}, at::kByte);
  world.broadcast(bytes, /*root=*/0).wait();
  return text_of(bytes);
}

std::vector<at::Tensor> ControlGroup::gather(const at::Tensor& values) const {
  if (alone()) return {values};
  auto world = communicator_->world();
  const auto lengths = at::zeros({size()}, at::kLong);
  world.all_gather(lengths, at::tensor({values.numel()}, at::kLong)).wait();
  const auto* length = lengths.const_data_ptr<std::int64_t>();
  const std::vector<std::int64_t> counts(length, length + size());
  const auto all = at::zeros({std::accumulate(counts.begin(), counts.end(), std::int64_t{0})}, values.options());
  if (all.numel() > 0) world.all_gather(all, values.contiguous(), counts).wait();
  return all.split_with_sizes(counts);
}

std::vector<std::string> ControlGroup::gather_texts(const std::string& text) const {
  std::vector<std::string> texts;
  for (const auto& bytes : gather(bytes_of(text))) texts.push_back(text_of(bytes));
  return texts;
}

std::map<std::string, comm::Counters> ControlGroup::counters() const {
  if (alone()) return {};
  auto found = communicator_->counters_by_name();
  std::vector<std::int64_t> numbers;
  for (const auto& [name, counters] : found) {
    for (const auto& entry : counters.entries) numbers.insert(numbers.end(), {entry.calls, entry.bytes});
  }
  auto sum = at::zeros({static_cast<std::int64_t>(numbers.size())}, at::kLong);
  for (const auto& rank : gather(at::tensor(numbers, at::kLong))) sum += rank;
  const auto* number = sum.const_data_ptr<std::int64_t>();
  for (auto& [name, counters] : found) {
    for (auto& entry : counters.entries) {
      entry.calls = *number++;
      entry.bytes = *number++;
    }
  }
  std::erase_if(found, [](const auto& group) { return group.second.total().calls == 0; });
  return found;
}

bool ControlGroup::any(bool here) const {
  if (alone()) return here;
  const auto flag = at::tensor({std::int64_t{here}}, at::kLong);
  communicator_->world().all_reduce(flag, comm::Reduction::max).wait();
  return flag.item<std::int64_t>() != 0;
}

void ControlGroup::together(const std::function<void()>& act) const {
  if (alone()) return act();
  std::string told;
  try {
    act();
  } catch (const CommError&) {
    throw;
  } catch (const std::exception& error) {
    told = packed(error);
  }
  const auto all = gather_texts(told);
  for (int rank = 0; rank < size(); ++rank) {
    const auto& text = all[static_cast<std::size_t>(rank)];
    if (!text.empty()) throw_packed(text, rank);
  }
}

void ControlGroup::enter(JobPhase phase) const {
  launch::Activity::of_process().enter(phase);
  if (communicator_) communicator_->enter(phase);
}

PhaseScope::PhaseScope(const ControlGroup& ranks, JobPhase phase)
    : ranks_(ranks), before_(launch::Activity::of_process().phase()) {
  ranks_.enter(phase);
}

PhaseScope::~PhaseScope() {
  ranks_.enter(before_);
}

ErrorDetails ControlGroup::alike(std::string remedy) const {
  return {.remedy = std::move(remedy), .rank = is_first() ? -1 : 0};
}

}  // namespace orthant
