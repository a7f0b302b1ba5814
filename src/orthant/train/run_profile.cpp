#include "orthant/train/run_profile.h"

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "orthant/base/error.h"
#include "orthant/base/json_text.h"
#include "orthant/nn/scalar_type.h"
#include "orthant/trace/chrome_trace.h"
#include "orthant/train/clock_alignment.h"
#include "orthant/train/rank_log.h"

namespace orthant {
namespace {

constexpr int kLimitRounds = 5;
constexpr std::int64_t kProductWidth = 512;
constexpr std::int64_t kCopiedElements = std::int64_t{4} << 20;

// The fastest of some rounds.
template <typename Work>
double least_seconds(const at::Device& device, const Work& work) {
  double least = 0;
  for (int round = 0; round < kLimitRounds; ++round) {
    const auto began = std::chrono::steady_clock::now();
    work();
    if (!device.is_cpu()) c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    if (round == 0 || seconds < least) least = seconds;
  }
  return least;
}

// Tensors that the CPU's counting allocator does not count: they are none of the run's.
class Scratch {
 public:
  explicit Scratch(const at::TensorOptions& options) : options_(options) {}

  at::Tensor ones(at::IntArrayRef sizes) {
    if (!options_.device().is_cpu()) return at::ones(sizes, options_);
    const auto bytes = static_cast<std::size_t>(c10::multiply_integers(sizes)) * options_.dtype().itemsize();
    auto& memory = held_.emplace_back(new char[bytes]);
    return at::from_blob(memory.get(), sizes, options_).fill_(1);
  }

 private:
  at::TensorOptions options_;
  std::vector<std::unique_ptr<char[]>> held_;
};

std::optional<std::int64_t> step_number(std::string_view text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 1) return std::nullopt;
  return number;
}

}  // namespace

ProfiledSteps ProfiledSteps::parse(const std::string& text) {
  const auto dash = text.find('-');
  const auto first = step_number(std::string_view(text).substr(0, dash));
  const auto last = dash == std::string::npos ? first : step_number(std::string_view(text).substr(dash + 1));
  if (!first || !last || (dash != std::string::npos && *last < *first)) {
    throw ConfigError(fmt::format("--profile {}: neither a number of steps nor FIRST-LAST", text),
                      {.remedy = "as in --profile 5, or --profile 10-14"});
  }
  if (dash == std::string::npos) return {.first = -1, .count = *first};
  return {.first = *first, .count = *last - *first + 1};
}

std::string RunProfile::chrome_trace() const {
  return trace::chrome_trace(ranks);
}

namespace {

nlohmann::ordered_json schedule_rows(const Simulation& simulation) {
  auto rows = nlohmann::ordered_json::array();
  for (const auto& actions : simulation.actions) {
    auto row = nlohmann::ordered_json::array();
    for (const auto& action : actions) row.push_back({to_string(action.action), action.start, action.end});
    rows.push_back(row);
  }
  return rows;
}

}  // namespace

std::string RunProfile::json() const {
  auto document = nlohmann::ordered_json::parse(trace::to_json(table));
  document["schedule"] = {{"list_seconds", stages.list_seconds},
                          {"simulated_seconds", stages.simulated_seconds},
                          {"executed", schedule_rows(stages.last_step)},
                          {"simulated", schedule_rows(stages.simulated)}};
  return json_text(document, 1) + "\n";
}

trace::Limits measured_limits(const Trainer& trainer, const ControlGroup& ranks) {
  const at::NoGradGuard no_gradients;
  const auto device = trainer.options().device;
  const auto options = at::TensorOptions().dtype(scalar_type(trainer.options().precision.compute)).device(device);
  Scratch scratch(options);
  const auto a = scratch.ones({kProductWidth, kProductWidth});
  auto product = scratch.ones({kProductWidth, kProductWidth});
  const auto from = scratch.ones({kCopiedElements});
  auto to = scratch.ones({kCopiedElements});
  ranks.any(false);  // all begin together
  const double multiplying = least_seconds(device, [&] { at::mm_out(product, a, a); });
  const double copying = least_seconds(device, [&] { to.copy_(from); });
  const auto width = static_cast<double>(kProductWidth);
  const auto own = at::tensor(
      {2 * width * width * width / multiplying, 2 * static_cast<double>(from.nbytes()) / copying}, at::kDouble);
  trace::Limits limits;
  for (const auto& rank : ranks.gather(own)) {
    limits.flops_per_second += rank[0].item<double>() / ranks.size();
    limits.bytes_per_second += rank[1].item<double>() / ranks.size();
  }
  return limits;
}

RunProfiler::RunProfiler(Trainer& trainer) : trainer_(trainer), profiler_(trainer, trace::Capture::Of::operations) {}

RunProfile RunProfiler::result(const ControlGroup& ranks) const {
  RunProfile profile;
  trace::RankTrace own{.rank = ranks.rank(),
                       .place = place_text(trainer_.mesh(), ranks.rank()),
                       .clock_error_ns = 0,
                       .events = profiler_.capture().events()};
  profile.stages = profiler_.result(ranks);
  const auto clock = align_clock(ranks, kGoodClockRounds);
  trainer_.recorder().set_clock(clock.offset_ns, clock.error_ns);
  own.clock_error_ns = clock.error_ns;
  for (auto& event : own.events) {
    event.begin_ns += clock.offset_ns;
    event.end_ns += clock.offset_ns;
  }
  const auto limits = measured_limits(trainer_, ranks);
  for (const auto& text : ranks.gather_texts(trace::packed(own))) {
    if (ranks.is_first()) profile.ranks.push_back(trace::unpacked(text));
  }
  std::vector<std::string> units;
  for (const auto& unit : trainer_.graph().units) units.push_back(unit.name);
  if (ranks.is_first()) profile.table = trace::step_table(profile.ranks, units, limits);
  return profile;
}

std::unique_ptr<RunProfiler> Trainer::profile() {
  return std::make_unique<RunProfiler>(*this);
}

void write_profile_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text << std::flush;
  if (!file) {
    const int number = errno;
    throw IoError(fmt::format("cannot write {}: {}", path, std::strerror(number)), number,
                  {.remedy = "name a file in a folder that exists and has room"});
  }
}

}  // namespace orthant
