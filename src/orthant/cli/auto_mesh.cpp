#include "orthant/cli/auto_mesh.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "orthant/base/error.h"
#include "orthant/base/human.h"
#include "orthant/cli/devices.h"
#include "orthant/cli/machine.h"
#include "orthant/launch/memory_group.h"
#include "orthant/train/picked_mesh.h"

namespace orthant::cli {
namespace {

// Options of a mesh or a plan beside one that is picked.
void check_left_open(const ConfigOptions& options, const RankOptions& ranks) {
  const auto refuse = [](const std::string& option, const std::string& remedy) {
    throw ConfigError(fmt::format("--mesh auto beside {}, which the planner chooses", option), {.remedy = remedy});
  };
  const std::string leave_out = "leave it out, or name the degrees of --mesh: orthant plan prints the best ones";
  if (!ranks.order.empty()) refuse("--order", leave_out);
  if (options.pp_size) refuse("--pp_size", leave_out);
  if (options.tp_size) refuse("--tp_size", leave_out);
  if (options.dp_size) refuse("--dp_size", leave_out);
  if (options.fsdp_size) refuse("--fsdp_size", leave_out);
  if (options.num_microbatches) refuse("--num_microbatches", leave_out);
  if (options.batch_size) {
    throw ConfigError("--mesh auto beside --batch_size, the samples of one replica: the planner chooses the replicas",
                      {.remedy = "set the samples of all: --set train.global_batch_size=N"});
  }
  for (const auto& assignment : options.overrides) {
    const auto is_set = [&](std::string_view key) { return sets(assignment, key); };
    if (is_set("mesh") || std::ranges::any_of(planned_keys(), is_set)) refuse("--set " + assignment, leave_out);
  }
}

// What one of the ranks of this host may take: its share of all memory, or of what a control group leaves.
std::int64_t share_of_host(int ranks_per_host) {
  auto bytes = host_memory_bytes();
  if (const auto group = launch::memory_group_of(getpid()))
    bytes = std::min(bytes, group->smallest_limit().value_or(bytes));
  return bytes / ranks_per_host;
}

// A rank as the planner knows it. `on_cards`: ranks have GPUs.
Hardware rank_hardware(const std::string& named, bool on_cards, int ranks_per_host) {
  constexpr int kFreePart = 20;  // of a card's memory: what no tensor gets
  if (on_cards && named.empty()) {
    throw ConfigError("--mesh auto on GPUs without --hardware, which says what the planner reckons with",
                      {.remedy = "add --hardware with the card's name, such as h100-80gb, or a file of orthant plan "
                                 "--calibrate"});
  }
  auto hardware = find_hardware(named.empty() ? "cpu" : named);
  if (on_cards) {
    const bool reserves = hardware.reserve_bytes > 0 || hardware.reserve_share > 0;
    if (!reserves) hardware.reserve_bytes = hardware.memory_bytes / kFreePart;
    return hardware;
  }
  const auto share = share_of_host(ranks_per_host);
  hardware.memory_bytes = named.empty() ? share : std::min(share, hardware.memory_bytes);
  return hardware;
}

// Where nobody has started ranks: the most that this machine has places for.
struct Offer {
  int ranks = 1;
  std::string places;  // "this machine's 2 cores"
};

Offer machine_offer(const RankOptions& ranks, bool on_cards, int num_gpus) {
  if (on_cards) {
    const int places = num_gpus * std::max(ranks.ranks_per_device, 1);
    return {places, fmt::format("on this machine's {} GPU{}", num_gpus, num_gpus == 1 ? "" : "s")};
  }
  const int cores = usable_cores();
  const int places = std::clamp(cores / std::max(ranks.threads, 1), 1, kMostLocalRanks);
  return {places, fmt::format("on this machine's {} core{}", cores, cores == 1 ? "" : "s")};
}

// ConfigError, with its place in the file, for what is wrong on every mesh.
JsonDocument readable_document(const ConfigOptions& options) {
  auto overrides = flag_overrides(options);
  auto document = load_run_document(options.config, overrides);
  for (auto& assignment : one_rank_assignments(document)) overrides.push_back(std::move(assignment));
  read_run_config(load_run_document(options.config, overrides));
  return document;
}

std::string name_of_launcher(const launch::Job& job) {
  if (job.executed_by_us) return "orthant launch";
  return job.launcher == "flags" ? "--world-size" : job.launcher;
}

std::string told(const PickedMesh& picked, const RankWorld& world, const std::string& where) {
  return fmt::format("--mesh auto: {} for {} rank{} {}; a step is predicted to take {} by {}", picked.text(),
                     world.size, world.size == 1 ? "" : "s", where, format_seconds(picked.step_seconds),
                     world.hardware.name);
}

}  // namespace

PickedRun pick_run_mesh(ConfigOptions& options, RankOptions& ranks, const std::string& hardware,
                        const launch::Environment& environment) {
  check_left_open(options, ranks);
  const auto job = job_of_launcher(ranks, environment);
  const int num_gpus = count_gpus(environment);
  const bool on_cards =
      choose_device(ranks.device, num_gpus, job.value_or(launch::Job()), std::max(1, ranks.ranks_per_device)).is_cuda();
  const auto offer = machine_offer(ranks, on_cards, num_gpus);
  const auto where = job ? "of " + name_of_launcher(*job) : offer.places;
  const auto document = readable_document(options);
  RankWorld world;
  PickedMesh picked;
  std::string most_reason;  // of the largest world
  // Ranks of a launcher are there; of our own there may be fewer than places.
  for (int size = job ? job->world_size : offer.ranks; size >= 1; --size) {
    const int on_host = job ? job->local_world_size : size;
    world = {.size = size, .ranks_per_host = on_host, .hardware = rank_hardware(hardware, on_cards, on_host)};
    picked = pick_mesh(document, world);
    if (most_reason.empty()) most_reason = picked.reason;
    if (picked.found() || job) break;
  }
  if (!picked.found()) throw ConfigError("--mesh auto: " + most_reason, {.remedy = picked.remedy});
  ranks.mesh = picked.mesh.to_string();
  for (const auto& [key, value] : picked.settings) options.overrides.push_back(fmt::format("{}={}", key, value));
  return {told(picked, world, where), picked.step_seconds};
}

}  // namespace orthant::cli
