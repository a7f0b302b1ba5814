// orthant train: trains a model by a configuration.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <iostream>
#include <nlohmann/json.hpp>

#include "orthant/base/error.h"
#include "orthant/cli/config_options.h"
#include "orthant/cli/dry_run.h"
#include "orthant/cli/rank_command.h"
#include "orthant/cli/rank_training.h"
#include "orthant/cli/run_picture.h"
#include "orthant/train/memory.h"
#include "orthant/train/output_folder.h"
#include "orthant/train/run.h"

namespace orthant::cli {
namespace {

volatile std::sig_atomic_t stop_requested = 0;

// The first signal asks for a checkpoint and an end; a second one ends at once.
void request_stop(int number) {
  stop_requested = 1;
  std::signal(number, SIG_DFL);
}

// What must be the same on every rank: the configuration and the options that say how far and from where.
std::string compared_text(const std::string& resolved, const RunOptions& run) {
  auto compared = nlohmann::json::parse(resolved);
  compared["--steps"] = run.stop_after.value_or(-1);
  compared["--resume"] = run.resume;
  return compared.dump();
}

// One rank's part. Only rank 0 has something to say, and a rank on which an error happened.
int train_on_rank(RankContext& rank, const LoadedConfig& loaded, const RunOptions& run, bool json) {
  // Ranks that were forked begin without the launcher's handlers.
  std::signal(SIGTERM, request_stop);
  std::signal(SIGINT, request_stop);
  auto config = loaded.config;
  const auto resolved = resolved_config(loaded.document);
  RankTraining training(rank);
  training.prepare(config, compared_text(resolved, run), "train");
  const auto picture = rank.is_first() ? run_picture(config, rank.job.local_world_size) : "";
  std::ostream nowhere(nullptr);
  RunOutcome outcome;
  try {
    outcome = run_training(config, resolved, run, rank.is_first() ? std::cerr : nowhere);
  } catch (const CommError&) {
    throw;
  } catch (const Error& error) {
    if (error.rank() < 0 || error.rank() == rank.job.rank) throw;
    // That rank says it. Our launcher takes this end for a consequence.
    return rank.job.launcher == "orthant" ? launch::kPeerLostExitCode : error.exit_code();
  }
  if (rank.is_first() && outcome.stopped) {
    std::cerr << "stopped on request, saved; go on with --resume auto and the same --output-dir\n";
  }
  if (rank.is_first() && json) std::cout << result_json(outcome.result).dump() << std::endl;
  if (rank.is_first() && !json) std::cout << result_text(outcome.result) << picture << std::flush;
  return outcome.stopped ? launch::kStoppedExitCode : 0;
}

}  // namespace

int run_train(const Arguments& arguments, Context& context) {
  CLI::App app("Trains a model. Without --config: a small trimodal classifier on generated data.", "orthant train");
  ConfigOptions config_options;
  RankOptions ranks;
  RunOptions run;
  bool json = false;
  bool print_config = false;
  add_config_options(app, config_options);
  app.add_option("--output-dir", run.output_dir, "folder of this run (default runs/NAME-N)");
  app.add_option("--resume", run.resume,
                 "auto: from the newest valid checkpoint of --output-dir; or a checkpoint's path");
  app.add_option("--steps", run.stop_after,
                 "stop after this step (0: save the initial weights); the learning rate follows train.steps")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 40));
  app.add_flag("--print-config", print_config, "print every value and where it came from; train nothing");
  app.add_flag("--json", json, "one JSON document on stdout");
  add_seed_flags(app, config_options);
  add_rank_options(app, ranks);
  if (!parse(app, arguments, context, "orthant train --set train.steps=100 --output-dir runs/first")) return 0;

  if (json && (print_config || ranks.dry_run)) {
    throw ConfigError("--json beside --print-config or --dry-run, which print text", {.remedy = "leave --json out"});
  }
  const auto loaded = load_config(config_options, ranks, context.environment);
  if (print_config) {
    std::cout << printed_config(loaded.document);
    return 0;
  }
  check_trainable(loaded.config);
  check_backend(ranks, context, loaded.config.mesh);
  if (const auto job = job_of_launcher(ranks, context.environment)) {
    loaded.config.mesh.check_world(job->world_size);
  } else {
    // Throws when it holds another run. Ranks of a launcher are there already: their first one looks, for all.
    OutputFolder(run.output_dir, loaded.config.name, run.resume);
  }
  if (ranks.dry_run) {
    print_dry_run(loaded.config, ranks.ranks_per_host);
    return 0;
  }
  refuse_fake_backend(ranks, loaded.config.mesh);
  install_counting_allocator();
  run.color = context.color;
  run.stop_requested = [] { return stop_requested != 0; };
  return run_on_ranks(ranks, context, 1, [&](RankContext& rank) { return train_on_rank(rank, loaded, run, json); });
}

}  // namespace orthant::cli
