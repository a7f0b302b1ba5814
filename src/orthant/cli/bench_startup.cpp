// orthant bench startup: seconds from the creation of the first process to the first all-reduce done on every rank.
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "orthant/base/error.h"
#include "orthant/base/human.h"
#include "orthant/base/json_text.h"
#include "orthant/cli/bench.h"
#include "orthant/cli/option_parser.h"
#include "orthant/cli/process_facts.h"
#include "orthant/cli/rank_command.h"

namespace orthant::cli {
namespace {

struct Startup {
  double seconds = 0;
  std::vector<int64_t> pss_bytes;  // by rank
};

Startup measure(RankContext& rank, double started_at_seconds) {
  const auto communicator = comm::make_communicator(rank.mesh, rank.job, rank.comm);
  auto world = communicator->world();
  const auto options = at::TensorOptions().device(rank.comm.device);
  const auto one = at::ones({1}, options);
  world.all_reduce(one).wait();
  const float sum = one.item<float>();
  auto seconds = at::full({1}, now_seconds() - started_at_seconds, options.dtype(at::kDouble));
  if (sum != static_cast<float>(world.size())) throw InternalError("the first all-reduce gave a wrong sum");

  world.all_reduce(seconds, comm::Reduction::max).wait();
  // Nobody has left yet, so shared pages are counted with all ranks alive.
  const auto own = at::full({1}, proportional_set_bytes(), options.dtype(at::kLong));
  auto all = at::empty({world.size()}, options.dtype(at::kLong));
  world.all_gather(all, own).wait();
  all = all.cpu();
  Startup result{seconds.item<double>(), {all.data_ptr<int64_t>(), all.data_ptr<int64_t>() + all.numel()}};
  communicator->close();
  return result;
}

}  // namespace

int run_bench_startup(const Arguments& arguments, Context& context) {
  OptionParser app("Seconds from process creation to the first finished all-reduce, and memory per rank (PSS).",
                   "orthant bench startup");
  RankOptions options;
  bool json = false;
  add_rank_options(app, options);
  app.add_flag("--json", json, "one JSON document on stdout");
  if (!parse(app, arguments, context, "orthant bench startup --mesh dp=8 --json")) return 0;

  if (options.backend == "fake") {
    throw ConfigError("orthant bench startup: --backend fake moves nothing, so there is nothing to check",
                      {.remedy = "use --backend auto"});
  }
  // Forked ranks began as their launcher did; ranks of a foreign launcher as themselves.
  const double started_at_seconds = process_start_seconds();
  return run_on_ranks(options, context, 2, [&](RankContext& rank) {
    const auto startup = measure(rank, started_at_seconds);
    if (!rank.is_first()) return 0;
    const int64_t largest = *std::max_element(startup.pss_bytes.begin(), startup.pss_bytes.end());
    if (json) {
      std::cout << json_text(nlohmann::ordered_json{{"world_size", rank.job.world_size},
                                                    {"first_collective_seconds", startup.seconds},
                                                    {"pss_bytes_per_rank", largest},
                                                    {"pss_bytes", startup.pss_bytes}})
                << std::endl;
    } else {
      std::cout << fmt::format("{} ranks: first all-reduce done after {}, {} per rank (PSS)\n", rank.job.world_size,
                               format_seconds(startup.seconds), format_bytes(largest))
                << std::flush;
    }
    return 0;
  });
}

}  // namespace orthant::cli
