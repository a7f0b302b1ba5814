// orthant train: trains a model by a configuration.
#include <fcntl.h>
#include <fmt/format.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>

#include "orthant/base/error.h"
#include "orthant/base/json_text.h"
#include "orthant/cli/auto_mesh.h"
#include "orthant/cli/config_options.h"
#include "orthant/cli/devices.h"
#include "orthant/cli/dry_run.h"
#include "orthant/cli/memory_check.h"
#include "orthant/cli/model_texts.h"
#include "orthant/cli/option_parser.h"
#include "orthant/cli/program_report.h"
#include "orthant/cli/rank_command.h"
#include "orthant/cli/rank_training.h"
#include "orthant/cli/run_ending.h"
#include "orthant/cli/run_picture.h"
#include "orthant/cli/run_watcher.h"
#include "orthant/files/beneath.h"
#include "orthant/files/file_handle.h"
#include "orthant/files/folder_lock.h"
#include "orthant/files/path_facts.h"
#include "orthant/launch/activity_board.h"
#include "orthant/launch/meeting.h"
#include "orthant/train/memory.h"
#include "orthant/train/output_folder.h"
#include "orthant/train/run.h"
#include "orthant/train/run_estimate.h"
#include "orthant/train/start_check.h"

namespace orthant::cli {
namespace {

volatile std::sig_atomic_t stop_requested = 0;

// Asks for a checkpoint and an end.
void request_stop(int) {
  stop_requested = 1;
}

// The same, but a second signal ends the process at once.
void request_stop_once(int number) {
  stop_requested = 1;
  std::signal(number, SIG_DFL);
}

// In a rank: who signals a whole job reaches its ranks twice, directly and through the launcher, which knows how to
// end a rank that does not listen.
void take_signals_on_rank() {
  std::signal(SIGTERM, request_stop);
  std::signal(SIGINT, request_stop);
}

// In a process that may yet turn out to be a rank of some launcher. Ours starts it with both signals blocked.
void take_signals() {
  std::signal(SIGTERM, request_stop);
  std::signal(SIGINT, request_stop_once);
  sigset_t stops;
  sigemptyset(&stops);
  for (const int number : {SIGTERM, SIGINT}) sigaddset(&stops, number);
  pthread_sigmask(SIG_UNBLOCK, &stops, nullptr);
}

// Whether the run in that folder was begun or continued by the job of the launcher that started this process.
bool is_of_this_launch(const std::filesystem::path& folder) {
  const auto file = folder / "config.json";
  if (!is_there(file)) return false;
  std::error_code error;
  const auto written = std::filesystem::last_write_time(file, error);
  if (error) throw_io_error(file, "stat", error.value());
  const std::chrono::duration<double> age = decltype(written)::clock::now() - written;
  return age.count() <= launch::launcher_age_seconds("RANK");
}

// A launcher of ours gives the job a name, which the folder's lock keeps.
bool is_of_this_job(const std::filesystem::path& folder, const launch::Job& job) {
  if (job.name.empty()) return is_of_this_launch(folder);
  const auto writer = writer_of(folder);
  return writer && writer->job == job.name;
}

// The newest runs/NAME-N of this job; empty when there is none.
std::string default_folder_of_this_job(const std::string& name, const launch::Job& job) {
  std::string newest;
  for (int n = 1; is_there(fmt::format("runs/{}-{}", name, n)); ++n) {
    const auto path = fmt::format("runs/{}-{}", name, n);
    if (is_of_this_job(path, job)) newest = path;
  }
  return newest;
}

// A job that was started again goes on in its own folder. The launcher of forked ranks has chosen it before the first
// attempt. Under another one it is known by the name of the job, or, where the launcher gives it none, by its time: a
// launcher also starts ranks again that refused a folder of somebody else.
void find_own_folder(RunOptions& run, const launch::Job& job, const RunConfig& config) {
  run.restarted = job.restart_count > 0;
  run.writer = {job.name, job.restart_count};
  if (!run.restarted || job.launcher == "orthant") return;
  IoPatience(config.checkpoint.retry_seconds).retry([&] {
    if (run.output_dir.empty()) run.output_dir = default_folder_of_this_job(config.name, job);
    run.restarted = !run.output_dir.empty() && is_of_this_job(run.output_dir, job);
  });
}

// What must be the same on every rank: the configuration and the options that say how far and from where.
std::string compared_text(const std::string& resolved, const RunOptions& run) {
  auto compared = nlohmann::json::parse(resolved);
  compared["--steps"] = run.stop_after.value_or(-1);
  compared["--resume"] = run.resume;
  compared["--from-scratch"] = run.from_scratch;
  return json_text(compared);
}

// How a run is told of at its end.
struct Telling {
  bool json = false;
  std::optional<Hardware> hardware;  // that step times are predicted for
};

// In the run's folder, for orthant report. It is told on stdout as well, so that a folder without room has none.
void keep_result(const std::string& folder, const FolderWriter& writer, const nlohmann::ordered_json& document) {
  if (folder.empty()) return;
  try {
    WriteFence(folder, writer).check();
    const auto text = json_text(document, 1) + "\n";
    open_beneath(folder, "result.json", O_WRONLY | O_CREAT | O_TRUNC).write_all(std::as_bytes(std::span(text)));
  } catch (const Error& error) {
    say(fmt::format("{} has no result.json: {}", folder, error.message()));
  }
}

void tell_result(const RunConfig& config, const RunOutcome& outcome, const FolderWriter& writer,
                 const std::string& picture, const Telling& telling) {
  const auto& result = outcome.result;
  std::optional<RunComparison> comparison;
  if (!result.rank_memory_bytes.empty()) comparison.emplace(config, result, telling.hardware);
  auto document = result_json(result);
  if (comparison) document.update(comparison->json());
  keep_result(result.output_dir, writer, document);
  if (!telling.json) {
    auto rows = rows_of_best(config, result);
    for (auto& row : comparison ? comparison->rows() : std::vector<ResultRow>()) rows.push_back(std::move(row));
    std::cout << result_text(result, rows) << picture;
    if (outcome.profile) std::cout << '\n' << outcome.profile->text();
    std::cout << std::flush;
    return;
  }
  if (outcome.profile) document["profile"] = nlohmann::ordered_json::parse(outcome.profile->json());
  std::cout << json_text(document) << std::endl;
}

// Throws when ranks at these places lack memory; `own_rank` is this one.
using CheckPlaces = std::function<void(const std::vector<RankPlace>& places, int own_rank)>;

// Where the ranks of a launcher are only they know: each tells its place, and all refuse alike.
void check_places(const RankTraining& training, const RankPlace& own, const Mesh& mesh, const CheckPlaces& check) {
  const auto texts = training.gather_texts(mesh, "places", own.to_text());
  std::vector<RankPlace> places;
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    places.push_back(RankPlace::from_text(texts[rank], static_cast<int>(rank)));
  }
  try {
    check(places, own.rank);
  } catch (const ConfigError&) {
    training.await_readers_of(mesh, "places");
    throw;
  }
}

// One rank's part. Only rank 0 has something to say, and a rank on which an error happened.
int train_on_rank(RankContext& rank, const LoadedConfig& loaded, RunOptions run, const Telling& telling,
                  const std::function<void(const RankTraining&)>& check_memory_of_all) {
  install_counting_allocator().tell(launch::Activity::of_process().tensor_bytes());
  auto config = loaded.config;
  find_own_folder(run, rank.job, config);
  const auto resolved = resolved_config(loaded.document);
  std::optional<RankTraining> training;
  try {
    training.emplace(rank);
    if (check_memory_of_all) check_memory_of_all(*training);
    training->prepare(config, compared_text(resolved, run), "train");
  } catch (const ConfigError& error) {
    if (const auto code = said_elsewhere(rank, error)) return *code;
    throw;
  } catch (const CommError& error) {
    if (stop_requested == 0) throw;
    std::cerr << fmt::format("stopped on request before the first step; {}\n", error.message());
    return launch::kStoppedExitCode;
  }
  const auto picture = rank.is_first() ? run_picture(config, rank.job.local_world_size) : "";
  std::ostream nowhere(nullptr);
  RunOutcome outcome;
  try {
    outcome = run_training(config, resolved, run, rank.is_first() ? std::cerr : nowhere);
  } catch (const Error& error) {
    if (const auto code = said_elsewhere(rank, error)) return *code;
    throw;
  }
  if (rank.is_first() && outcome.stopped) {
    std::cerr << fmt::format("stopped on request, saved; go on with {}\n", resume_command(outcome.result));
  }
  if (rank.is_first()) tell_result(config, outcome, run.writer, picture, telling);
  return outcome.stopped ? launch::kStoppedExitCode : 0;
}

// Every attempt of a job gets further when a newer checkpoint is in its folder.
void survive_in(const OutputFolder& folder, RankOptions& ranks) {
  ranks.progress = [checkpoints = folder.checkpoints(), patience = folder.patience()]() -> std::int64_t {
    const auto found = patience.retry([&] { return list_checkpoints(checkpoints); });
    return found.empty() ? -1 : found.front().step;
  };
}

// A restart goes on from the newest checkpoint: it could not tell those that an older one was to replace.
void check_newest(const OutputFolder& folder) {
  const auto& resume = folder.resume();
  if (resume.empty() || resume == "auto") return;
  const auto is_newest = folder.patience().retry([&] {
    const auto found = list_checkpoints(folder.checkpoints());
    return found.empty() || real_path(resume) == real_path(found.front().path);
  });
  if (is_newest) return;
  throw ConfigError(fmt::format("--max-restarts with --resume {}, which is not the newest checkpoint of {}", resume,
                                folder.checkpoints()),
                    {.remedy = "go on in another --output-dir, or remove the newer checkpoints"});
}

// Throws when the folder cannot be the run's. A job that may be started again, or that is watched, takes it at once.
void choose_folder(const RunConfig& config, RunOptions& run, RankOptions& ranks, bool watched) {
  OutputFolder folder(run.output_dir, config.name, folder_use(config, run));
  if (ranks.max_restarts > 0) check_newest(folder);
  if (ranks.dry_run || (ranks.max_restarts == 0 && !watched)) return;
  folder.claim();
  run.output_dir = folder.path();
  ranks.rank_words = {"--output-dir", folder.path()};
  if (ranks.max_restarts > 0) survive_in(folder, ranks);
}

// A step's time is predicted for the machine that makes it.
void check_hardware(const Hardware& hardware, const RunConfig& config, const at::Device& device) {
  const std::string remedy = "name a file that orthant plan --calibrate made here, or leave --hardware out";
  if (!config.trainer.remade.empty()) {
    throw ConfigError("--hardware beside a list as parallel.recompute: the planner prices its memory and not its time",
                      {.remedy = "leave --hardware out, or set parallel.recompute to none, selective or full"});
  }
  if (hardware.on_host != device.is_cpu()) {
    throw ConfigError(fmt::format("--hardware {} describes {}, and this run trains on {}", hardware.name,
                                  hardware.on_host ? "cores" : "GPUs", device.is_cpu() ? "cores" : "GPUs"),
                      {.remedy = remedy});
  }
  if (config.trainer.precision.float8 && hardware.float8_flops == 0) {
    throw ConfigError(fmt::format("--hardware {} does not say how fast products in float8 are", hardware.name),
                      {.remedy = "set float8_flops in the file, or leave --hardware out"});
  }
  const DType compute = run_plan_settings(config).compute;
  if (hardware.on_host || bytes_of(compute) == 2) return;
  throw ConfigError(fmt::format("--hardware {} knows the speed of products in 16 bits, and precision.compute is {}",
                                hardware.name, dtype_name(compute)),
                    {.remedy = remedy});
}

// Where no launcher has said so, all ranks are on this machine.
at::Device device_of(const std::optional<launch::Job>& job, const RankOptions& ranks, const RunConfig& config,
                     const Context& context) {
  const auto where = job.value_or(launch::Job{.local_world_size = config.mesh.world_size()});
  return choose_device(ranks.device, count_gpus(context.environment), where, std::max(1, ranks.ranks_per_device));
}

// Options that make no sense empty, beside others, or without them.
void check_together(const OptionParser& app, bool json_of_text, const RunOptions& run) {
  refuse_empty(app, {"--resume", "--output-dir", "--hardware", "--profile", "--trace"});
  if (!run.trace.empty() && run.profile.count == 0) {
    throw ConfigError("--trace without --profile, whose events it has", {.remedy = "add --profile 5, or leave it out"});
  }
  if (json_of_text) {
    throw ConfigError("--json beside --print-config or --dry-run, which print text",
                      {.remedy = "leave --json out, or add --programs to --dry-run"});
  }
  if (run.from_scratch && run.resume != "auto") {
    throw ConfigError("--from-scratch without --resume auto: nothing would be looked for",
                      {.remedy = "add --resume auto, or name a new --output-dir"});
  }
}

// Refused before it runs: nobody would see the profile.
void check_profile(const RunConfig& config, const RunOptions& run) {
  const auto last = std::min(run.stop_after.value_or(config.steps), config.steps);
  if (run.profile.count == 0 || run.profile.first <= last) return;
  throw ConfigError(fmt::format("--profile begins at step {}, and the run ends at step {}", run.profile.first, last),
                    {.remedy = fmt::format("begin at step {} or before, or train longer", last)});
}

struct TrainCommand {
  ConfigOptions config;
  RankOptions ranks;
  RunOptions run;
  Telling telling;
  std::string hardware;
  std::string profile;
  bool print_config = false;
  bool force = false;
  bool verbose = false;
  bool programs = false;
  WatchOptions watched = {};
};

void add_options(OptionParser& app, TrainCommand& command) {
  add_config_options(app, command.config);
  app.add_option("--output-dir", command.run.output_dir, "folder of this run (default runs/NAME-N)");
  app.add_option("--resume", command.run.resume,
                 "auto: from the newest valid checkpoint of --output-dir; or a checkpoint's path");
  app.add_flag("--from-scratch", command.run.from_scratch,
               "with --resume auto: begin at step 0 where metrics tell of steps but no checkpoint is there");
  app.add_option("--steps", command.run.stop_after,
                 "stop after this step (0: save the initial weights); the learning rate follows train.steps")
      .check(NumberRange(std::int64_t{0}, std::int64_t{1} << 40));
  app.add_flag("--print-config", command.print_config, "print every value and where it came from; train nothing");
  app.add_flag("--force", command.force, "train also when the ranks need more memory than this host has free");
  app.add_flag("--verbose", command.verbose,
               "with --dry-run: also ranks and groups, placements and all actions of a step");
  app.add_flag("--programs", command.programs,
               "with --dry-run: the operations of every kind of unit, what they exchange and keep; --json as JSON");
  app.add_option("--hardware", command.hardware,
                 "preset, or file of orthant plan --calibrate: predict a step's time, too");
  app.add_option("--profile", command.profile,
                 "time every operation, exchange and wait of this many steps, or of steps FIRST-LAST");
  app.add_option("--trace", command.run.trace, "with --profile: the trace's file (default trace.json of the run)");
  add_watch_options(app, command.watched);
  app.add_flag("--json", command.telling.json, "one JSON document on stdout");
  add_seed_flags(app, command.config);
  add_rank_options(app, command.ranks);
}

// Once for all ranks: by the first one of a foreign launcher, or by who starts them.
void say_notes(const LoadedConfig& loaded, const std::optional<launch::Job>& job) {
  if (job && (job->rank > 0 || job->is_launched_by_us())) return;
  for (const auto& note : loaded.notes) say(note);
}

// Likewise, also under `orthant launch`, which knows no mesh.
void say_picked(const std::string& text, const std::optional<launch::Job>& job) {
  if (!job || job->rank == 0) say(text);
}

int dry_run(const TrainCommand& command, const LoadedConfig& loaded, const std::optional<launch::Job>& job,
            const Context& context) {
  const RankOptions& ranks = command.ranks;
  say(check_start(loaded.config, resolved_config(loaded.document), command.run));
  say_notes(loaded, job);
  if (command.programs && command.telling.json) {
    std::cout << json_text(programs_document(loaded.config)) << std::endl;
    return 0;
  }
  print_dry_run(loaded.config, ranks.ranks_per_host, command.verbose);
  if (command.programs) std::cout << programs_text(loaded.config);
  std::cout << std::flush;
  if (loaded.config.mesh.world_size() > kMostLocalRanks && ranks.ranks_per_host == 0) {
    say(fmt::format("train would need a launcher: at most {} ranks are started on one host", kMostLocalRanks));
    return 0;
  }
  const auto places = places_of_local_ranks(loaded.config, ranks.ranks_per_host, context.environment);
  say(memory_verdict(loaded, command.config, ranks, places, context.environment));
  return 0;
}

// Refuses what does not fit into this host or its cards before ranks start. To what ranks that a launcher has started
// do for that; nothing when they need not.
std::function<void(const RankTraining&)> memory_check(TrainCommand& command, const LoadedConfig& loaded,
                                                      const std::optional<launch::Job>& job, const Context& context) {
  const auto check = [&](const std::vector<RankPlace>& places, std::optional<int> own_rank) {
    check_memory(loaded, command.config, command.ranks, places, context.environment, own_rank);
  };
  if (job && !command.force) {
    return [&, check](const RankTraining& training) {
      check_places(training, place_of_this_rank(loaded.config, *job, context.environment), loaded.config.mesh, check);
    };
  }
  if (job || loaded.config.mesh.world_size() > kMostLocalRanks) return {};  // run_on_ranks() refuses more
  const auto places = places_of_local_ranks(loaded.config, /*ranks_per_host=*/0, context.environment);
  if (!command.force) check(places, std::nullopt);
  if (const auto shortage = worst_shortage(memory_needs(loaded.config, places))) {
    say(fmt::format("warning: {}; --force trains as it is", shortage->text()));
    command.ranks.watched = true;
  }
  return {};
}

}  // namespace

int run_train(const Arguments& arguments, Context& context) {
  take_signals();
  OptionParser app(help::kTrain, "orthant train");
  TrainCommand command;
  auto& [config_options, ranks, run, telling, hardware, profile, print_config, force, verbose, programs, watched] =
      command;
  add_options(app, command);
  if (!parse(app, arguments, context,
             "orthant train --config run.json --output-dir runs/first\n  orthant train --set train.steps=100"))
    return 0;

  if (!profile.empty()) run.profile = ProfiledSteps::parse(profile);
  check_watch_options(app, watched);
  check_together(app, telling.json && (print_config || (ranks.dry_run && !programs)), run);
  if (verbose && !ranks.dry_run) {
    throw ConfigError("--verbose without --dry-run, whose text it lengthens",
                      {.remedy = "add --dry-run, or leave it out"});
  }
  if (programs && !ranks.dry_run) {
    throw ConfigError("--programs without --dry-run, which prints them", {.remedy = "add --dry-run, or leave it out"});
  }
  if (!hardware.empty()) telling.hardware = find_hardware(hardware);
  const auto job = job_of_launcher(ranks, context.environment);
  if (ranks.mesh == "auto") {
    const auto picked = pick_run_mesh(config_options, ranks, hardware, context.environment);
    say_picked(picked.text, job);
    run.predicted_step_seconds = picked.step_seconds;
  }
  auto loaded = load_config(config_options, ranks, context.environment);
  if (print_config) {
    say_notes(loaded, job);
    std::cout << printed_config(loaded.document);
    return 0;
  }
  check_trainable(loaded.config);
  check_backend(ranks, context, loaded.config);
  loaded.config.trainer.device = device_of(job, ranks, loaded.config, context);  // says which units there are
  check_profile(loaded.config, run);
  if (telling.hardware) check_hardware(*telling.hardware, loaded.config, loaded.config.trainer.device);
  if (job) {
    take_signals_on_rank();
    loaded.check_world(job->world_size);
  } else {
    // Who signals one process means it: the second time it ends at once.
    if (loaded.config.mesh.world_size() == 1) std::signal(SIGTERM, request_stop_once);
    // Throws when it holds another run. Ranks of a launcher are there already: their first one looks, for all.
    choose_folder(loaded.config, run, ranks, watched.asked());
  }
  if (ranks.dry_run) return dry_run(command, loaded, job, context);
  refuse_fake_backend(ranks, loaded.config.mesh);
  const auto check_memory_of_all = memory_check(command, loaded, job, context);
  say_notes(loaded, job);
  install_counting_allocator();
  ranks.own_flags = {"--watch"};
  ranks.own_options = {"--metrics-port", "--watch-host", "--watch-key-file"};
  const auto watcher = start_watcher(watched, run.output_dir, job);
  run.color = context.color;
  run.stop_requested = ranks.stop_requested = [] { return stop_requested != 0; };
  ranks.take_signals = take_signals_on_rank;
  return run_on_ranks(ranks, context, 1, [&](RankContext& rank) {
    return train_on_rank(rank, loaded, run, telling, check_memory_of_all);
  });
}

}  // namespace orthant::cli
