#include "orthant/cli/rank_command.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <iostream>
#include <nlohmann/json.hpp>

#include "orthant/base/error.h"
#include "orthant/base/error_report.h"
#include "orthant/base/json_text.h"
#include "orthant/base/printable.h"
#include "orthant/cli/devices.h"
#include "orthant/cli/held_output.h"
#include "orthant/cli/option_parser.h"
#include "orthant/comm/nccl.h"
#include "orthant/comm/store.h"
#include "orthant/files/metrics_file.h"
#include "orthant/launch/device_variables.h"
#include "orthant/launch/environment.h"
#include "orthant/launch/interfaces.h"
#include "orthant/launch/local_ranks.h"
#include "orthant/launch/meeting.h"
#include "orthant/launch/restarts.h"
#include "orthant/launch/shared_devices.h"
#include "orthant/launch/sockets.h"
#include "orthant/mesh/picture.h"

namespace orthant::cli {
namespace {

Mesh mesh_for(const RankOptions& options, int world_size) {
  if (options.mesh.empty()) return Mesh(Degrees{{Axis::dp, world_size}}, options.order);
  return Mesh::parse(options.mesh, options.order);
}

launch::DetectOptions detect_options(const RankOptions& options) {
  auto detect = options.place;
  detect.launcher = options.launcher;
  detect.rendezvous = options.rendezvous;
  detect.bind = options.bind_address;
  return detect;
}

}  // namespace

Timeouts timeouts_of(const RankOptions& options) {
  return parse_timeouts(options.timeout, "--timeout");
}

std::optional<launch::Job> job_of_launcher(const RankOptions& options, const launch::Environment& environment) {
  return launch::detect(environment, detect_options(options));
}

comm::CommOptions comm_options(const RankOptions& options, const Context& context, const launch::Job& job,
                               const Mesh& mesh) {
  const int num_gpus = count_gpus(context.environment);
  const int ranks_per_device = std::max(1, options.ranks_per_device);
  comm::CommOptions comm;
  comm.device = choose_device(options.device, num_gpus, job, ranks_per_device);
  comm.backend = comm::parse_backend(options.backend);
  if (options.ranks_per_device > 0 && comm.device.is_cpu()) {
    throw ConfigError(fmt::format("--ranks-per-device {} with {} ranks on this host, device cpu and {} GPUs",
                                  options.ranks_per_device, job.local_world_size, num_gpus),
                      {.remedy = "leave it out: ranks on CPUs share no GPU", .rank = job.rank});
  }
  const bool too_many = job.local_world_size > num_gpus * ranks_per_device;
  if (comm.backend == comm::BackendKind::nccl && (comm.device.is_cpu() || too_many)) {
    const auto remedy = comm.device.is_cpu() || num_gpus == 0
                            ? std::string("use --backend gloo, or --device cuda with a GPU for each rank")
                            : fmt::format("use --backend gloo, or let ranks share GPUs, slowly: --ranks-per-device {}",
                                          (job.local_world_size + num_gpus - 1) / num_gpus);
    throw ConfigError(
        fmt::format("--backend nccl with {} ranks on this host, device {} and {} GPUs: NCCL moves CUDA tensors, one "
                    "rank per GPU",
                    job.local_world_size, comm.device.str(), num_gpus),
        {.remedy = remedy, .rank = job.rank});
  }
  if (comm.backend == comm::BackendKind::automatic && comm.device.is_cuda()) {
    comm.backend = too_many || !comm::nccl_available() ? comm::BackendKind::gloo : comm::BackendKind::nccl;
  }
  if (comm.backend == comm::BackendKind::nccl && job.world_size > 1) {
    const bool sends_messages = mesh.degree(Axis::pp) > 1 || mesh.degree(Axis::cp) > 1;
    launch::check_device_variables(context.environment, sends_messages, job.rank);
  }
  comm.phases = timeouts_of(options);
  comm.timeout_seconds = comm.phases->start_seconds;
  comm.check = options.check_collectives;
  comm.bind_address = job.rendezvous.bind_address;
  comm.leave = [](const CommError& error) {
    std::cerr << report_text(error, "orthant: error: ") << std::flush;
    _exit(error.exit_code());
  };
  return comm;
}

namespace {

// Ranks that another launcher started set for themselves what ours gives them.
void take_variables(const RankOptions& options, const Context& context, const launch::Job& job) {
  auto wanted = context.environment;
  if (!options.interface.empty()) wanted.try_emplace("NCCL_SOCKET_IFNAME", "=" + options.interface);
  launch::share_devices(wanted, job.rank, job.num_nodes, options.ranks_per_device);
  for (const auto& [name, value] : wanted) {
    const auto given = context.environment.find(name);
    if (given == context.environment.end() || given->second != value) setenv(name.c_str(), value.c_str(), 1);
  }
  setenv(launch::kQueuesVariable, launch::kMostQueues, /*overwrite=*/0);
}

int run_body(const RankOptions& options, const Context& context, const launch::Job& job,
             const std::function<int(RankContext&)>& body) {
  const auto mesh = mesh_for(options, job.world_size);
  mesh.check_world(job.world_size);
  comm::quiet_backend_log();
  at::set_num_threads(options.threads > 0 ? options.threads : 1);
  // Our own launcher puts the rank in front of every line; others do not.
  take_variables(options, context, job);
  const Log log({.rank = job.is_launched_by_us() ? -1 : job.rank, .color = context.color});
  RankContext rank{job, mesh, comm_options(options, context, job, mesh), log};
  return body(rank);
}

// `words` without an option and its value.
std::vector<std::string> without_option(const std::vector<std::string>& words, const std::string& name) {
  std::vector<std::string> kept;
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == name) {
      ++i;
    } else if (!words[i].starts_with(name + "=")) {
      kept.push_back(words[i]);
    }
  }
  return kept;
}

// Starts local ranks, again after a failure while restarts are left. Ranks that use CUDA are executed anew: a process
// that will use CUDA must not be a fork of one that has loaded it.
int start_ranks(const RankOptions& options, const Context& context, int world_size, bool on_cpu,
                const std::function<int(RankContext&)>& body) {
  launch::LocalOptions local;
  local.num_ranks = world_size;
  local.log_dir = options.log_dir;
  local.bind_cores = options.bind_cores;
  local.bind_address = options.bind_address;
  local.timeouts = timeouts_of(options);
  local.take_signals = options.take_signals;
  auto words = without_option(with_dashes(context.words), "--launcher");
  if (!options.rank_words.empty()) words = without_option(words, options.rank_words.front());
  for (const auto& name : options.own_options) words = without_option(words, name);
  std::erase_if(
      words, [&](const auto& word) { return std::ranges::find(options.own_flags, word) != options.own_flags.end(); });
  words.insert(words.end(), options.rank_words.begin(), options.rank_words.end());
  words.insert(words.begin(), context.program);
  launch::SignalWatch signals;
  local.signals = &signals;
  std::optional<HeldOutput> held;
  if (options.max_restarts > 0) local.stdout_fd = held.emplace().fd();
  say(launch::shared_devices_text(options.ranks_per_device));
  const auto attempt = [&](int number) {
    if (held) held->drop();
    launch::ProgramJob program;
    program.restart_count = local.restart_count = number;
    program.max_restarts = options.max_restarts;
    program.ranks_per_device = options.ranks_per_device;
    auto outcome =
        on_cpu
            ? launch::run_forked(local, [&](const launch::Job& job) { return run_body(options, context, job, body); })
            : launch::run_program(local, words, context.environment, program, {.after_spawn = comm::serve_store});
    keep_verdict(outcome);
    if (options.compares && outcome.exit_code == kDifferentExitCode) outcome = {.exit_code = outcome.exit_code};
    return outcome;
  };
  const auto outcome = launch::run_attempts({.max_restarts = options.max_restarts,
                                             .progress = options.progress,
                                             .stop_requested = options.stop_requested,
                                             .say = say},
                                            signals, attempt);
  if (held) held->tell();
  return report(outcome);
}

int print_plan(const Mesh& mesh, const comm::CommOptions& comm, int ranks_per_host) {
  std::cout << mesh_text(mesh, ranks_per_host > 0 ? ranks_per_host : mesh.world_size());
  std::cout << fmt::format("\nDry run: {} ranks{} would be started, device {}, backend {}.\n", mesh.world_size(),
                           ranks_per_host > 0 ? "" : " on this host", comm.device.is_cpu() ? "cpu" : "cuda",
                           comm::name_of(comm.backend));
  return 0;
}

}  // namespace

void check_rank_options(const RankOptions& options) {
  timeouts_of(options);
  launch::check_token_source(options.tokens);
  if (!options.interface.empty() && !options.bind_address.empty()) {
    throw ConfigError(fmt::format("--interface {} beside --bind {}: both say which address this host listens on",
                                  options.interface, options.bind_address),
                      {.remedy = "give one of them"});
  }
  if (!options.interface.empty()) launch::address_of_interface(options.interface);  // throws when it is not there
  if (!options.bind_address.empty()) launch::bind_tcp({options.bind_address, 0});   // throws when it is not this host's
  comm::parse_backend(options.backend);
  check_device_name(options.device);
  if (options.ranks_per_host > 0 && !options.dry_run) {
    throw ConfigError("--ranks-per-host without --dry-run: where ranks run is the launcher's matter",
                      {.remedy = "leave it out, or add --dry-run"});
  }
}

void say(const std::string& text) {
  if (!text.empty()) std::cerr << "orthant: " << printable(text, /*keep_lines=*/true) << std::endl;
}

void keep_verdict(const launch::Outcome& outcome, const FolderWriter& writer) {
  if (outcome.run_folder.empty()) return;
  const nlohmann::ordered_json line = {{"exit_code", outcome.exit_code},
                                       {"failed_rank", outcome.failed_rank},
                                       {"stop_asked", outcome.stop_asked},
                                       {"report", outcome.report}};
  try {
    LineFile(outcome.run_folder, "log/launcher.jsonl", WriteFence(outcome.run_folder, writer)).append(json_text(line));
  } catch (const Error&) {
    // It is said on stderr as well.
  }
}

int report(const launch::Outcome& outcome) {
  say(outcome.report);
  return outcome.exit_code;
}

void add_rank_options(OptionParser& app, RankOptions& options) {
  constexpr const char* kRanks = "Ranks";
  constexpr const char* kManyHosts = "Several hosts, other launchers, waiting and logs";
  app.add_option("--mesh", options.mesh, "degrees of the axes, e.g. pp=2,dp=2,tp=2; of orthant train also auto")
      .check([](const std::string& text) {
        if (text.empty()) throw ConfigError("--mesh is empty", {.remedy = "use --mesh dp=1 for one rank"});
        return std::string();
      })
      .group(kRanks);
  app.add_option("--order", options.order, "axes from the outermost to the innermost (default pp,dp,fsdp,cp,tp)")
      .group(kRanks);
  app.add_option("--device", options.device, "auto, cpu or cuda (default auto)").group(kRanks);
  app.add_option("--backend", options.backend,
                 "auto, gloo, shm, nccl or fake (default auto: shm within a host, nccl on GPUs)")
      .group(kRanks);
  app.add_option("--ranks-per-device", options.ranks_per_device,
                 "ranks that share a GPU over NCCL, slowly: for tests and small models (default 1)")
      .check(NumberRange(1, 64))
      .group(kRanks);
  app.add_option("--threads", options.threads, "compute threads per rank (default 1)")
      .check(NumberRange(0, 4096))
      .group(kRanks);
  app.add_option("--timeout", options.timeout,
                 fmt::format("seconds a rank waits for another: one number, or by phase (default {})", options.timeout))
      .group(kManyHosts);
  app.add_flag("--check-collectives", options.check_collectives, "compare calls across ranks before they run")
      .group(kManyHosts);
  app.add_option("--bind", options.bind_address, "address of this host to listen on (default: loopback on one host)")
      .group(kManyHosts);
  app.add_option("--interface", options.interface,
                 "network interface of this host, by name: its address to listen on, and NCCL's sockets")
      .group(kManyHosts);
  app.add_option("--launcher", options.launcher,
                 "which launcher to believe when several are seen: torchrun, openmpi, ...")
      .group(kManyHosts);
  app.add_option("--rendezvous", options.rendezvous, "HOST:PORT where ranks of a foreign launcher meet")
      .group(kManyHosts);
  app.add_option("--token-file", options.tokens.file,
                 "ranks of a foreign launcher on several hosts: file of mode 0600 with the job token (default: "
                 "ORTHANT_TOKEN)")
      .group(kManyHosts);
  app.add_flag("--no-token", options.tokens.none, "ranks on several hosts believe whoever connects").group(kManyHosts);
  app.add_option("--rank", options.place.rank, "this process' rank, when no launcher tells (with --world-size)")
      .group(kManyHosts);
  app.add_option("--world-size", options.place.world_size, "ranks of the job, when no launcher tells")
      .group(kManyHosts);
  app.add_option("--local-rank", options.place.local_rank, "this process' number on its host").group(kManyHosts);
  app.add_option("--local-world-size", options.place.local_world_size, "ranks on this host").group(kManyHosts);
  app.add_option("--max-restarts", options.max_restarts,
                 "start all local ranks again after a failure, so often without progress (default 0)")
      .check(NumberRange(0, 1000000))
      .group(kManyHosts);
  app.add_flag("--dry-run", options.dry_run, "print the mesh and what would be started; run nothing").group(kRanks);
  app.add_option("--ranks-per-host", options.ranks_per_host, "ranks on one host, for --dry-run (default: all)")
      .check(NumberRange(1, Mesh::kMaxRanks))
      .group(kManyHosts);
  app.add_option("--log-dir", options.log_dir, "folder for rank-R.log of ranks started here").group(kManyHosts);
  app.add_flag("--bind-cores", options.bind_cores, "pin ranks started here to cores in turn").group(kManyHosts);
}

int run_on_ranks(const RankOptions& asked, Context& context, int default_world_size,
                 const std::function<int(RankContext&)>& body) {
  check_rank_options(asked);
  auto options = asked;
  if (!options.interface.empty()) options.bind_address = launch::address_of_interface(options.interface);
  if (!options.dry_run) {
    auto tokens = options.tokens;
    tokens.variable = context.token_variable;
    if (const auto job = launch::join_launcher(context.environment, detect_options(options),
                                               timeouts_of(options).start_seconds, tokens)) {
      return run_body(options, context, *job, body);
    }
  }
  if (!options.rendezvous.empty()) {
    throw ConfigError("--rendezvous, but no launcher started this process and no --rank was given",
                      {.remedy = "leave it out: ranks started here meet by themselves"});
  }
  const auto mesh = mesh_for(options, default_world_size);
  launch::Job first;  // what rank 0 of the ranks to be started will be told
  first.world_size = first.local_world_size = mesh.world_size();
  const auto comm = comm_options(options, context, first, mesh);
  if (options.dry_run) return print_plan(mesh, comm, options.ranks_per_host);
  // A fake world is walked through by its first rank alone. One rank is a process of its own when its death is to be
  // survived or told of.
  const bool alone = mesh.world_size() == 1 && options.max_restarts == 0 && !options.watched;
  if (comm.backend == comm::BackendKind::fake || alone) {
    if (options.stop_requested && options.stop_requested()) return report(launch::stopped_before_start());
    return run_body(options, context, first, body);
  }
  if (mesh.world_size() > kMostLocalRanks) {
    throw ConfigError(fmt::format("mesh {} asks for {} ranks on this host; at most {} are started on one",
                                  mesh.to_string(), mesh.world_size(), kMostLocalRanks),
                      {.remedy = "look at it with --dry-run, or start the ranks on several hosts with a launcher"});
  }
  return start_ranks(options, context, mesh.world_size(), comm.device.is_cpu(), body);
}

}  // namespace orthant::cli
