// orthant bench step: the time and memory of a training step, our side of the tables.
#include <fmt/format.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>

#include "orthant/base/human.h"
#include "orthant/cli/bench.h"
#include "orthant/cli/config_options.h"
#include "orthant/cli/rank_command.h"
#include "orthant/cli/rank_training.h"
#include "orthant/data/loader.h"
#include "orthant/train/memory.h"
#include "orthant/train/memory_use.h"
#include "orthant/train/run.h"

namespace orthant::cli {
namespace {

struct StepTimes {
  std::vector<double> seconds;
  std::vector<double> losses;
  std::int64_t peak_memory_bytes = 0;
  std::int64_t peak_rss_bytes = 0;
};

StepTimes measure(RunConfig config, int warmup, int steps) {
  const auto data = make_run_data(config);
  const auto trainer = make_trainer(config);
  const auto loader = make_loader(config, data, 0);
  StepTimes times;
  for (int i = 0; i < warmup + steps; ++i) {
    const auto began = std::chrono::steady_clock::now();
    const auto numbers = trainer->step(loader->next()).get();
    const auto seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    times.losses.push_back(numbers.loss);
    if (i >= warmup) times.seconds.push_back(seconds);
  }
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  times.peak_rss_bytes = usage.ru_maxrss * 1024;
  times.peak_memory_bytes = peak_memory_bytes(config.trainer.device) + trainer->exchanged_bytes();
  if (const auto& communicator = config.trainer.communicator) {
    const auto peaks = at::tensor({times.peak_memory_bytes, times.peak_rss_bytes}, at::kLong);
    const auto most = peaks.to(config.trainer.device);
    communicator->world().all_reduce(most, comm::Reduction::max).wait();
    times.peak_memory_bytes = most[0].item<std::int64_t>();
    times.peak_rss_bytes = most[1].item<std::int64_t>();
  }
  return times;
}

}  // namespace

int run_bench_step(const Arguments& arguments, Context& context) {
  CLI::App app("Time and memory of a training step.", "orthant bench step");
  ConfigOptions options;
  RankOptions ranks;
  int steps = 6;
  int warmup = 2;
  bool json = false;
  add_config_options(app, options);
  add_rank_options(app, ranks);
  app.add_option("--steps", steps, "steps that are timed (default 6)")->check(CLI::Range(1, 100000));
  app.add_option("--warmup", warmup, "steps before them (default 2)")->check(CLI::Range(0, 100000));
  app.add_flag("--json", json, "one JSON document on stdout");
  if (!parse(app, arguments, context, "orthant bench step --config llama.json --steps 10 --json")) return 0;

  const auto loaded = load_config(options, ranks, context.environment);
  check_trainable(loaded.config);
  install_counting_allocator();
  return run_on_ranks(ranks, context, 1, [&](RankContext& rank) {
    auto config = loaded.config;
    RankTraining training(rank);
    training.prepare(config, resolved_config(loaded.document), "bench");
    const auto times = measure(config, warmup, steps);
    if (!rank.is_first()) return 0;
    const double median = quantile(times.seconds, 0.5);
    if (json) {
      std::cout << nlohmann::ordered_json{{"mesh", rank.mesh.to_string()},
                                          {"median_seconds", median},
                                          {"p10_seconds", quantile(times.seconds, 0.1)},
                                          {"p90_seconds", quantile(times.seconds, 0.9)},
                                          {"peak_memory_bytes_per_rank", times.peak_memory_bytes},
                                          {"peak_rss_bytes_per_rank", times.peak_rss_bytes},
                                          {"losses", times.losses}}
                       .dump()
                << std::endl;
    } else {
      std::cout << fmt::format("{}: {} a step (p10 {}, p90 {}), {} of tensors at peak, {} resident\n",
                               rank.mesh.to_string(), format_seconds(median),
                               format_seconds(quantile(times.seconds, 0.1)),
                               format_seconds(quantile(times.seconds, 0.9)), format_bytes(times.peak_memory_bytes),
                               format_bytes(times.peak_rss_bytes))
                << std::flush;
    }
    return 0;
  });
}

}  // namespace orthant::cli
