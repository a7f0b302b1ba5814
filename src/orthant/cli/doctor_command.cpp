// orthant doctor: what this machine has and what is wrong; with --mesh, a checked all-reduce on every group of that
// mesh.
#include <ATen/ops/full.h>
#include <fmt/format.h>

#include <iostream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "orthant/base/error.h"
#include "orthant/base/human.h"
#include "orthant/base/json_text.h"
#include "orthant/cli/command.h"
#include "orthant/cli/machine.h"
#include "orthant/cli/option_parser.h"
#include "orthant/cli/process_facts.h"
#include "orthant/cli/rank_command.h"
#include "orthant/mesh/picture.h"

namespace orthant::cli {
namespace {

constexpr int64_t kElements = 1 << 16;

struct GroupResult {
  std::string name;
  int size = 0;
  int num_groups = 0;
  std::string backend;  // of the group that rank 0 is in
  double slowest_seconds = 0;
};

// Sums 1 + rank over the group and compares every element with the sum made by hand. Collective over the group.
double check_group(comm::Group group, int rank, const at::Device& device) {
  const auto tensor = at::full({kElements}, 1.0 + rank, at::TensorOptions().dtype(at::kDouble).device(device));
  const double began = now_seconds();
  group.all_reduce(tensor).wait();
  const double seconds = now_seconds() - began;
  const double expected = std::accumulate(group.ranks().begin(), group.ranks().end(), 0.0) + group.size();
  if (!tensor.eq(expected).all().item<bool>()) {
    throw CommError(fmt::format("an all-reduce on group {} gave {} instead of {}", group.name(),
                                tensor[0].item<double>(), expected),
                    {.remedy = "try another --backend; report this", .rank = rank});
  }
  return seconds;
}

std::vector<GroupResult> check_mesh(RankContext& rank) {
  std::vector<comm::SubgroupRequest> requests;
  for (const auto& [name, groups] : named_groups(rank.mesh))
    requests.push_back({"mesh " + name, groups, comm::Purpose::control});
  const auto communicator = comm::make_communicator(rank.mesh, rank.job, rank.comm, {}, requests);
  std::vector<GroupResult> results;
  const auto check = [&](const std::string& name, comm::Group group, int num_groups) {
    const double own = check_group(group, rank.job.rank, rank.comm.device);
    const auto seconds = at::full({1}, own, at::TensorOptions().dtype(at::kDouble).device(rank.comm.device));
    communicator->world().all_reduce(seconds, comm::Reduction::max).wait();
    results.push_back({name, group.size(), num_groups, communicator->backend_of(group), seconds.item<double>()});
  };
  for (const auto& [name, groups] : named_groups(rank.mesh)) {
    check(name, communicator->subgroup("mesh " + name), static_cast<int>(groups.size()));
  }
  check("world", communicator->world(), 1);
  communicator->close();
  return results;
}

nlohmann::ordered_json to_json(const RankContext& rank, const std::vector<GroupResult>& results) {
  auto groups = nlohmann::ordered_json::array();
  for (const auto& result : results) {
    groups.push_back({{"group", result.name},
                      {"size", result.size},
                      {"groups", result.num_groups},
                      {"backend", result.backend},
                      {"seconds", result.slowest_seconds}});
  }
  return {{"mesh", rank.mesh.to_string()}, {"world_size", rank.job.world_size}, {"groups", groups}};
}

std::string to_text(const RankContext& rank, const std::vector<GroupResult>& results, double seconds) {
  auto text = fmt::format("\n{}\nA checked all-reduce of {} on every group ({} ranks, {})\n",
                          grid_text(rank.mesh, rank.job.local_world_size), format_bytes(kElements * 8),
                          rank.job.world_size, rank.mesh.to_string());
  for (const auto& result : results) {
    text += fmt::format("  {:10} {:>3} group{} of {:<3} over {:<4}  ok  {:>9}\n", result.name, result.num_groups,
                        result.num_groups == 1 ? " " : "s", result.size, result.backend,
                        format_seconds(result.slowest_seconds));
  }
  return text + fmt::format("All groups agree. {} after the command began.\n", format_seconds(seconds));
}

}  // namespace

int run_doctor(const Arguments& arguments, Context& context) {
  OptionParser app(
      "Says what this machine has and what is wrong. With --mesh, starts its ranks and lets every group do a checked\n"
      "all-reduce.",
      "orthant doctor");
  RankOptions options;
  bool json = false;
  add_rank_options(app, options);
  app.add_flag("--json", json, "one JSON document on stdout");
  if (!parse(app, arguments, context, "orthant doctor --mesh pp=2,dp=2,tp=2")) return 0;

  const auto machine = look_at_machine(context.environment);
  if (options.mesh.empty()) {
    std::cout << (json ? json_text(to_json(machine), 2) + "\n" : to_text(machine));
    return 0;
  }
  if (options.backend == "fake") {
    throw ConfigError("orthant doctor --mesh: --backend fake moves nothing, so there is nothing to check",
                      {.remedy = "use --backend auto"});
  }
  options.check_collectives = true;
  const double started_at_seconds = now_seconds();
  return run_on_ranks(options, context, 1, [&](RankContext& rank) {
    const auto results = check_mesh(rank);
    if (!rank.is_first()) return 0;
    if (json) {
      auto document = to_json(machine);
      document["check"] = to_json(rank, results);
      std::cout << json_text(document, 2) << std::endl;
    } else {
      std::cout << to_text(machine) << to_text(rank, results, now_seconds() - started_at_seconds) << std::flush;
    }
    return 0;
  });
}

}  // namespace orthant::cli
