// orthant train: trains a model by a configuration.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <iostream>
#include <nlohmann/json.hpp>

#include "orthant/base/error.h"
#include "orthant/base/human.h"
#include "orthant/cli/config_options.h"
#include "orthant/cli/rank_command.h"
#include "orthant/cli/rank_training.h"
#include "orthant/mesh/picture.h"
#include "orthant/plan/data_state.h"
#include "orthant/plan/data_traffic.h"
#include "orthant/plan/tensor_traffic.h"
#include "orthant/train/memory.h"
#include "orthant/train/run.h"
#include "orthant/train/summary.h"

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

// "gathers 4 KiB in 2 all-gathers", where there is such traffic.
template <typename Entry>
void add_sent(std::vector<std::string>& sent, const char* what, const Entry& entry, const char* calls) {
  if (entry.calls == 0) return;
  sent.push_back(
      fmt::format("{}{} in {} {}{}", what, format_bytes(entry.bytes), entry.calls, calls, entry.calls == 1 ? "" : "s"));
}

// What one rank of the data axes keeps and sends by the closed forms of `plan`.
std::string data_text(const RunConfig& config, const GraphSpec& spec, const std::vector<Action>& actions) {
  const auto settings = data_settings(spec, config.mesh, config.trainer);
  const auto state = data_state(spec, settings);
  const auto peaks = data_peaks(spec, settings, actions);
  const auto traffic = data_traffic(spec, settings, actions);
  auto text = fmt::format("\nA rank keeps {} of parameters, {} of gradients, {} of optimizer state",
                          format_bytes(state.parameters + state.compute), format_bytes(state.gradients),
                          format_bytes(state.optimizer));
  if (peaks.gathered > 0) text += fmt::format(", and for a while at most {} gathered", format_bytes(peaks.gathered));
  if (peaks.gradients > 0) text += fmt::format(", {} of full gradients", format_bytes(peaks.gradients));
  std::vector<std::string> sent;
  add_sent(sent, "", traffic.gather, "all-gather");
  add_sent(sent, "", traffic.scatter, "reduce-scatter");
  add_sent(sent, "", traffic.sum, "all-reduce");
  return fmt::format("{}.\nA step of a rank sends {}{}a few numbers for loss and norm.\n", text, fmt::join(sent, ", "),
                     sent.empty() ? "" : ", and ");
}

// The same of tensor parallelism, and the activations that it divides.
std::string tensor_text(const RunConfig& config, const GraphSpec& spec) {
  const auto traffic = tensor_traffic(spec, tensor_settings(config.mesh, config.trainer));
  std::vector<std::string> sent;
  add_sent(sent, "sums ", traffic.sum, "all-reduce");
  add_sent(sent, "gathers ", traffic.gather, "all-gather");
  add_sent(sent, "scatters sums of ", traffic.scatter, "reduce-scatter");
  add_sent(sent, "sums partial gradients of ", traffic.partials, "all-reduce");
  add_sent(sent, "sums gradients of copied heads of ", traffic.copies, "all-reduce");
  if (sent.size() > 1) sent.back().insert(0, "and ");
  std::int64_t kept = 0;
  for (const auto& row : summary_rows(spec, summary_options(config))) kept += row.kept_bytes;
  return fmt::format("Over tp it {}.\nA rank keeps {} of activations for a microbatch.\n",
                     sent.empty() ? "sends nothing" : fmt::format("{}", fmt::join(sent, ", ")), format_bytes(kept));
}

std::string rank_text(const RunConfig& config, const GraphSpec& spec, const std::vector<Action>& actions) {
  auto text = data_text(config, spec, actions);
  if (config.mesh.degree(Axis::tp) > 1) text += tensor_text(config, spec);
  return text;
}

// Prints what would run, on stdout.
int dry_run(const RunConfig& config) {
  std::cout << mesh_text(config.mesh, config.mesh.world_size());
  const auto spec = run_spec(config);
  std::cout << '\n' << summary_text(declared_spec(config), summary_options(config));
  check_mesh(config.mesh);
  const auto actions = step_actions(spec, config.mesh, config.trainer);
  if (config.mesh.world_size() > 1) std::cout << rank_text(config, spec, actions);
  std::cout << fmt::format("\nSchedule of a step, {} actions:\n", actions.size());
  for (const auto& action : actions) std::cout << "  " << to_string(action, spec) << '\n';
  std::cout << "\nDry run: nothing was trained.\n";
  return 0;
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
  if (rank.is_first() && !json) std::cout << result_text(outcome.result) << std::flush;
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
  if (ranks.dry_run) return dry_run(loaded.config);
  check_trainable(loaded.config);
  refuse_fake_backend(ranks, loaded.config.mesh);
  install_counting_allocator();
  run.color = context.color;
  run.stop_requested = [] { return stop_requested != 0; };
  return run_on_ranks(ranks, context, 1, [&](RankContext& rank) { return train_on_rank(rank, loaded, run, json); });
}

}  // namespace orthant::cli
