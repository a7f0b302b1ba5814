// orthant bench step: the time and memory of a training step, our side of the tables.
#include <ATen/ops/tensor.h>
#include <fmt/format.h>
#include <sys/resource.h>

#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "orthant/base/error.h"
#include "orthant/base/human.h"
#include "orthant/base/json_text.h"
#include "orthant/base/quantile.h"
#include "orthant/cli/bench.h"
#include "orthant/cli/config_options.h"
#include "orthant/cli/kernel_times.h"
#include "orthant/cli/model_texts.h"
#include "orthant/cli/option_parser.h"
#include "orthant/cli/rank_command.h"
#include "orthant/cli/rank_training.h"
#include "orthant/cuda/driver.h"
#include "orthant/data/loader.h"
#include "orthant/schedule/svg.h"
#include "orthant/train/memory.h"
#include "orthant/train/memory_use.h"
#include "orthant/train/run.h"
#include "orthant/train/run_profile.h"
#include "orthant/train/step_profile.h"
#include "orthant/train/step_rate.h"

namespace orthant::cli {
namespace {

struct StepTimes {
  std::vector<double> seconds;
  std::vector<double> losses;
  std::int64_t peak_memory_bytes = 0;
  std::int64_t peak_rss_bytes = 0;
  std::vector<std::int64_t>
      reserved_bytes;          // of this rank's device, when half of the timed steps were made and at the end
  std::size_t recordings = 0;  // shapes that became a CUDA graph
  std::size_t played = 0;      // steps that were played back
  std::optional<StepProfile> profile;
  std::optional<RunProfile> run_profile;  // with --profile, rank 0's
  std::optional<DeviceActivity> activity;
  int watched_steps = 0;
  std::vector<int> stage_pp_coordinates;  // pp coordinate of each stage
  std::optional<StepRate> rate;           // on a card whose peak is known
};

constexpr int kWatchedSteps = 3;

enum class Depth { nothing, actions, operations };

StepTimes measure(RunConfig config, int warmup, int steps, Depth depth, bool with_kernels) {
  const auto data = make_run_data(config);
  const auto trainer = make_trainer(config);
  const auto loader = make_loader(config, data, 0);
  StepTimes times;
  std::optional<StepProfiler> profiler;
  std::optional<RunProfiler> run_profiler;
  for (int i = 0; i < warmup + steps; ++i) {
    if (depth == Depth::actions && i == warmup) profiler.emplace(*trainer);
    if (depth == Depth::operations && i == warmup) run_profiler.emplace(*trainer);
    const auto began = std::chrono::steady_clock::now();
    const auto numbers = trainer->step(loader->next()).get();
    const auto seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    times.losses.push_back(numbers.loss);
    if (i >= warmup) times.seconds.push_back(seconds);
    if (i + 1 == warmup + steps / 2) times.reserved_bytes.push_back(reserved_memory_bytes(config.trainer.device));
  }
  times.reserved_bytes.push_back(reserved_memory_bytes(config.trainer.device));
  times.recordings = trainer->recorded_steps().num_recordings();
  times.played = trainer->recorded_steps().num_played();
  if (with_kernels) {
    // The first ones find out how much pinned memory it takes to run ahead of the device.
    for (const bool watched : {false, true}) {
      if (watched) watch_device();
      PendingStep last;
      for (int i = 0; i < kWatchedSteps; ++i) {
        const auto batch = loader->next();
        watched_step([&] { last = trainer->step(batch); });
      }
      last.get();
    }
    times.activity = stop_watching_device();
    times.watched_steps = kWatchedSteps;
  }
  if (profiler) times.profile = profiler->result(control_group(config.trainer));
  if (run_profiler) {
    times.run_profile = run_profiler->result(control_group(config.trainer));
    times.profile = times.run_profile->stages;
    run_profiler.reset();
  }
  times.stage_pp_coordinates = trainer->pipeline().map.pp_coordinates;
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

// The step as the simulator predicts it: its list from measured costs, and whatever comes after it.
double predicted_seconds(const StepProfile& profile, double median) {
  return profile.simulated_seconds + median - profile.list_seconds;
}

nlohmann::ordered_json profile_json(const StepTimes& times, double median) {
  const auto& profile = *times.profile;
  auto stages = nlohmann::ordered_json::array();
  for (std::size_t s = 0; s < profile.costs.size(); ++s) {
    const auto& cost = profile.costs[s];
    stages.push_back({{"pp", times.stage_pp_coordinates[s]},
                      {"forward_seconds", cost.forward},
                      {"input_seconds", cost.inputs},
                      {"weight_seconds", cost.weights}});
  }
  return {{"stages", stages},
          {"list_seconds", profile.list_seconds},
          {"simulated_list_seconds", profile.simulated_seconds},
          {"predicted_seconds", predicted_seconds(profile, median)}};
}

std::string profile_text(const StepTimes& times, double median) {
  const auto& profile = *times.profile;
  std::string text;
  for (std::size_t s = 0; s < profile.costs.size(); ++s) {
    const auto& cost = profile.costs[s];
    text += fmt::format("  stage {} on pp {}: F {}, B {}, W {} a microbatch{}\n", s, times.stage_pp_coordinates[s],
                        format_seconds(cost.forward), format_seconds(cost.inputs), format_seconds(cost.weights),
                        cost.weights == 0 ? " (B and W in one)" : "");
  }
  const double predicted = predicted_seconds(profile, median);
  return text + fmt::format("  the simulator makes {} of it, the run took {} ({:+.1f}%)\n", format_seconds(predicted),
                            format_seconds(median), 100 * (median / predicted - 1));
}

struct StepOptions {
  int steps = 6;
  int warmup = 3;  // the third is recorded on a card
  bool profile = false;
  bool kernels = false;
  std::string costs;
  std::string svg;
  std::string trace;
  bool json = false;

  bool profiles() const { return depth() != Depth::nothing; }
  Depth depth() const {
    if (profile || !trace.empty()) return Depth::operations;
    return costs.empty() && svg.empty() ? Depth::nothing : Depth::actions;
  }
};

constexpr std::size_t kShownKernels = 40;

void print(const StepOptions& options, const StepTimes& times, const Mesh& mesh) {
  const double median = quantile(times.seconds, 0.5);
  if (!options.costs.empty()) {
    write_output("--costs", options.costs, json_text(nlohmann::ordered_json(times.profile->unit_seconds), 1) + "\n");
  }
  if (!options.svg.empty()) {
    const auto title = fmt::format("{}: a step of {}", mesh.to_string(), format_seconds(median));
    write_output("--svg", options.svg, timeline_svg(times.profile->last_step, title));
  }
  if (!options.trace.empty()) write_output("--trace", options.trace, times.run_profile->chrome_trace());
  if (options.json) {
    nlohmann::ordered_json document = {{"mesh", mesh.to_string()},
                                       {"median_seconds", median},
                                       {"p10_seconds", quantile(times.seconds, 0.1)},
                                       {"p90_seconds", quantile(times.seconds, 0.9)},
                                       {"peak_memory_bytes_per_rank", times.peak_memory_bytes},
                                       {"peak_rss_bytes_per_rank", times.peak_rss_bytes},
                                       {"losses", times.losses}};
    if (times.rate) {
      document["model_tflops"] = times.rate->tflops;
      document["mfu"] = times.rate->utilization();
    }
    if (times.reserved_bytes.back() > 0) {
      document["reserved_bytes"] = {{"half", times.reserved_bytes.front()}, {"end", times.reserved_bytes.back()}};
      document["graphs"] = {{"recorded", times.recordings}, {"played", times.played}};
    }
    if (times.activity) document["kernels"] = activity_json(*times.activity, times.watched_steps, kShownKernels);
    if (times.profile) document["profile"] = profile_json(times, median);
    if (times.run_profile) document["table"] = nlohmann::ordered_json::parse(trace::to_json(times.run_profile->table));
    std::cout << json_text(document) << std::endl;
    return;
  }
  std::cout << fmt::format("{}: {} a step (p10 {}, p90 {}), {} of tensors at peak, {} resident\n", mesh.to_string(),
                           format_seconds(median), format_seconds(quantile(times.seconds, 0.1)),
                           format_seconds(quantile(times.seconds, 0.9)), format_bytes(times.peak_memory_bytes),
                           format_bytes(times.peak_rss_bytes))
            << (times.rate ? rate_text(*times.rate) + "\n" : "") << (times.profile ? profile_text(times, median) : "")
            << (times.run_profile ? "\n" + times.run_profile->text() : "")
            << (times.activity ? activity_text(*times.activity, times.watched_steps, kShownKernels) : "") << std::flush;
}

}  // namespace

int run_bench_step(const Arguments& arguments, Context& context) {
  OptionParser app("Time and memory of a training step.", "orthant bench step");
  ConfigOptions options;
  RankOptions ranks;
  StepOptions own;
  add_config_options(app, options);
  add_rank_options(app, ranks);
  app.add_option("--steps", own.steps, "steps that are timed (default 6)").check(NumberRange(1, 100000));
  app.add_option("--warmup", own.warmup, "steps before them (default 3)").check(NumberRange(0, 100000));
  app.add_flag("--profile", own.profile, "time every stage and operation, and compare the step with the simulator's");
  app.add_flag("--kernels", own.kernels, "on a CUDA device: every kernel of a step with its share, and gaps");
  app.add_option("--costs", own.costs, "write the seconds of every unit to this file, for parallel.split_costs");
  app.add_option("--svg", own.svg, "draw the last step's actions, time by pp coordinate, into this file");
  app.add_option("--trace", own.trace,
                 "write every operation, exchange and wait of the steps to this file, for Perfetto");
  app.add_flag("--json", own.json, "one JSON document on stdout");
  if (!parse(app, arguments, context, example::kBenchStep)) return 0;

  const auto loaded = load_config(options, ranks, context.environment);
  check_trainable(loaded.config);
  check_backend(ranks, context, loaded.config);
  if (own.profiles() && comm::parse_backend(ranks.backend) == comm::BackendKind::fake) {
    throw ConfigError("--profile, --trace, --costs and --svg with --backend fake: one rank alone would be timed",
                      {.remedy = "use another backend"});
  }
  install_counting_allocator();
  return run_on_ranks(ranks, context, 1, [&](RankContext& rank) {
    if (own.kernels && !rank.comm.device.is_cuda()) {
      throw ConfigError("--kernels on a CPU: there are no kernels of a device to time",
                        {.remedy = "leave it out, or use --device cuda"});
    }
    auto config = loaded.config;
    RankTraining training(rank);
    training.prepare(config, resolved_config(loaded.document), "bench");
    auto times = measure(config, own.warmup, own.steps, own.depth(), own.kernels);
    if (rank.comm.device.is_cuda()) {
      times.rate = step_rate(config, quantile(times.seconds, 0.5), cuda::Driver().card());
    }
    if (rank.is_first()) print(own, times, rank.mesh);
    return 0;
  });
}

}  // namespace orthant::cli
