// orthant doctor: what this machine has and what is wrong; with --mesh, a checked all-reduce on every group of that
// mesh.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

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
#include "orthant/report/diagnosis.h"

namespace orthant::cli {
namespace {

constexpr int64_t kElements = 1 << 16;

struct GroupResult {
  std::string name;
  int size = 0;
  int num_groups = 0;
  std::string backend;  // of the group that rank 0 is in
  double slowest_seconds = 0;
  std::vector<int> slowest_ranks = {};  // of the group that took so long

  // What a link carries in the slowest of these groups, in bytes a second, as nccl-tests count it.
  double bandwidth() const { return 2.0 * (size - 1) / size * kElements * 8 / slowest_seconds; }
};

// Sums 1 + rank over the group and compares every element with the sum made by hand. Collective over the group.
void check_group(comm::Group group, int rank, const at::Device& device) {
  const auto tensor = at::full({kElements}, 1.0 + rank, at::TensorOptions().dtype(at::kDouble).device(device));
  group.all_reduce(tensor).wait();
  const double expected = std::accumulate(group.ranks().begin(), group.ranks().end(), 0.0) + group.size();
  if (!tensor.eq(expected).all().item<bool>()) {
    throw CommError(fmt::format("an all-reduce on group {} gave {} instead of {}", group.name(),
                                tensor[0].item<double>(), expected),
                    {.remedy = "try another --backend; report this", .rank = rank});
  }
}

// Of one more sum, with its members there. Collective over the group.
double time_group(comm::Group group, const at::Device& device) {
  const auto tensor = at::full({kElements}, 1.0, at::TensorOptions().dtype(at::kDouble).device(device));
  group.all_reduce(at::ones({1}, tensor.options())).wait();
  tensor[0].item<double>();
  const double began = now_seconds();
  group.all_reduce(tensor).wait();
  tensor[0].item<double>();
  return now_seconds() - began;
}

// The groups of a mesh, checked and timed: calls that are compared before they run take longer.
class MeshCheck {
 public:
  explicit MeshCheck(RankContext& rank) : rank_(rank), groups_(named_groups(rank.mesh)) {
    const auto store = comm::join_store(rank.job, rank.comm);
    checked_ = connect(store, /*check=*/true);
    timed_ = connect(store, /*check=*/false);
  }

  // Collective over the world.
  std::vector<GroupResult> run() {
    std::vector<GroupResult> results;
    for (const auto& [name, groups] : groups_) {
      results.push_back(judge(name, checked_->subgroup("mesh " + name), timed_->subgroup("mesh " + name), groups));
    }
    results.push_back(judge("world", checked_->world(), timed_->world(), {checked_->world().ranks()}));
    checked_->close();
    timed_->close();
    return results;
  }

 private:
  std::unique_ptr<comm::Communicator> connect(const std::optional<comm::Store>& store, bool check) const {
    std::vector<comm::SubgroupRequest> requests;
    for (const auto& [name, groups] : groups_) requests.push_back({"mesh " + name, groups, comm::Purpose::control});
    auto options = rank_.comm;
    options.check = check;
    std::optional<comm::Store> part;
    if (store) part = store->below(check ? "checked" : "timed");
    return std::make_unique<comm::Communicator>(rank_.mesh, rank_.job.rank, part, options,
                                                std::vector<comm::GroupRequest>{}, requests);
  }

  // `groups`: all of one name, with the one of this rank.
  GroupResult judge(const std::string& name, comm::Group checked, comm::Group timed,
                    const std::vector<std::vector<int>>& groups) const {
    const auto device = rank_.comm.device;
    check_group(checked, rank_.job.rank, device);
    const auto own = at::full({1}, time_group(timed, device), at::kDouble).to(device);
    const auto all = at::zeros({timed_->mesh().world_size()}, own.options());
    timed_->world().all_gather(all, own).wait();
    const auto seconds = all.cpu();
    GroupResult result{.name = name,
                       .size = timed.size(),
                       .num_groups = static_cast<int>(groups.size()),
                       .backend = timed_->backend_of(timed)};
    for (const auto& members : groups) {
      for (const int member : members) {
        const double taken = seconds[member].item<double>();
        if (taken <= result.slowest_seconds) continue;
        result.slowest_seconds = taken;
        result.slowest_ranks = members;
      }
    }
    return result;
  }

  RankContext& rank_;
  std::vector<NamedGroups> groups_;
  std::unique_ptr<comm::Communicator> checked_;
  std::unique_ptr<comm::Communicator> timed_;
};

// Of groups of several ranks the one with the least bandwidth; null when there is none.
const GroupResult* slowest_of(const std::vector<GroupResult>& results) {
  const GroupResult* slowest = nullptr;
  for (const auto& result : results) {
    if (result.size > 1 && (slowest == nullptr || result.bandwidth() < slowest->bandwidth())) slowest = &result;
  }
  return slowest;
}

nlohmann::ordered_json to_json(const RankContext& rank, const std::vector<GroupResult>& results) {
  auto groups = nlohmann::ordered_json::array();
  for (const auto& result : results) {
    groups.push_back({{"group", result.name},
                      {"size", result.size},
                      {"groups", result.num_groups},
                      {"backend", result.backend},
                      {"seconds", result.slowest_seconds},
                      {"bus_bytes_per_second", result.bandwidth()},
                      {"slowest_ranks", result.slowest_ranks}});
  }
  nlohmann::ordered_json document = {
      {"mesh", rank.mesh.to_string()}, {"world_size", rank.job.world_size}, {"groups", groups}};
  if (const auto* slowest = slowest_of(results)) {
    document["slowest"] = {
        {"group", slowest->name}, {"ranks", slowest->slowest_ranks}, {"bus_bytes_per_second", slowest->bandwidth()}};
  }
  return document;
}

std::string to_text(const RankContext& rank, const std::vector<GroupResult>& results, double seconds) {
  auto text = fmt::format("\n{}\nA checked all-reduce of {} on every group ({} ranks, {})\n",
                          grid_text(rank.mesh, rank.job.local_world_size), format_bytes(kElements * 8),
                          rank.job.world_size, rank.mesh.to_string());
  for (const auto& result : results) {
    text += fmt::format("  {:10} {:>3} group{} of {:<3} over {:<4}  ok  {:>9}", result.name, result.num_groups,
                        result.num_groups == 1 ? " " : "s", result.size, result.backend,
                        format_seconds(result.slowest_seconds));
    text += result.size > 1 ? fmt::format("  {:>8.3f} GB/s\n", result.bandwidth() * 1e-9) : std::string("\n");
  }
  if (const auto* slowest = slowest_of(results)) {
    text += fmt::format("Slowest: {} of ranks [{}], {:.3f} GB/s a link.\n", slowest->name,
                        fmt::join(slowest->slowest_ranks, ", "), slowest->bandwidth() * 1e-9);
  }
  return text + fmt::format("All groups agree. {} after the command began.\n", format_seconds(seconds));
}

int tell_of_run(const std::string& path, bool json) {
  const auto run = report::read_run_folder(path);
  const auto findings = report::diagnose(run, report::observe(run));
  std::cout << (json ? json_text(report::to_json(run, findings), 2) + "\n" : report::to_text(run, findings))
            << std::flush;
  return 0;
}

}  // namespace

int run_doctor(const Arguments& arguments, Context& context) {
  OptionParser app(
      "Says what this machine has and what is wrong. With a run's folder, says why that run failed or is slow. With "
      "--mesh, starts its ranks and lets every group do a checked\n"
      "all-reduce.",
      "orthant doctor");
  RankOptions options;
  bool json = false;
  std::string run;
  app.add_option("run", run, "folder of a run, also of one that was killed: say what became of it and why");
  add_rank_options(app, options);
  app.add_flag("--json", json, "one JSON document on stdout");
  if (!parse(app, arguments, context, "orthant doctor --mesh pp=2,dp=2,tp=2\n  orthant doctor runs/demo-1")) return 0;

  if (!run.empty()) {
    if (!options.mesh.empty()) {
      throw ConfigError("orthant doctor RUN beside --mesh: one looks at a run, the other at this machine",
                        {.remedy = "leave one of them out"});
    }
    return tell_of_run(run, json);
  }
  const auto machine = look_at_machine(context.environment);
  if (options.mesh.empty()) {
    std::cout << (json ? json_text(to_json(machine), 2) + "\n" : to_text(machine));
    return 0;
  }
  if (options.backend == "fake") {
    throw ConfigError("orthant doctor --mesh: --backend fake moves nothing, so there is nothing to check",
                      {.remedy = "use --backend auto"});
  }
  const double started_at_seconds = now_seconds();
  return run_on_ranks(options, context, 1, [&](RankContext& rank) {
    const auto results = MeshCheck(rank).run();
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
