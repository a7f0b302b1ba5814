#include "orthant/cli/rank_command.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <iostream>

#include "orthant/base/error.h"
#include "orthant/cli/devices.h"
#include "orthant/comm/store.h"
#include "orthant/launch/local_ranks.h"
#include "orthant/launch/meeting.h"

namespace orthant::cli {
namespace {

Mesh mesh_for(const RankOptions& options, int world_size) {
  if (options.mesh.empty()) return Mesh(Degrees{{Axis::dp, world_size}}, options.order);
  return Mesh::parse(options.mesh, options.order);
}

comm::CommOptions comm_options(const RankOptions& options, const launch::Job& job) {
  const int num_gpus = count_gpus();
  comm::CommOptions comm;
  comm.device = choose_device(options.device, num_gpus, job);
  comm.backend = comm::parse_backend(options.backend);
  if (comm.backend == comm::BackendKind::nccl && (comm.device.is_cpu() || job.local_world_size > num_gpus)) {
    throw ConfigError(
        fmt::format("--backend nccl with {} ranks on this host, device {} and {} GPUs: NCCL moves CUDA tensors, one "
                    "rank per GPU",
                    job.local_world_size, comm.device.str(), num_gpus),
        {.remedy = "use --backend gloo, or --device cuda with a GPU for each rank", .rank = job.rank});
  }
  // NCCL wants a GPU for each rank; ranks that share one talk over Gloo.
  if (comm.backend == comm::BackendKind::automatic && job.local_world_size > num_gpus)
    comm.backend = comm::BackendKind::gloo;
  comm.timeout_seconds = options.timeout_seconds;
  comm.check = options.check_collectives;
  comm.bind_address = job.rendezvous.bind_address;
  return comm;
}

int run_body(const RankOptions& options, const Context& context, const launch::Job& job,
             const std::function<int(RankContext&)>& body) {
  const auto mesh = mesh_for(options, job.world_size);
  mesh.check_world(job.world_size);
  at::set_num_threads(options.threads > 0 ? options.threads : 1);
  RankContext rank{job, mesh, comm_options(options, job), Log({.color = context.color})};
  return body(rank);
}

// What the launcher says on stderr after the ranks have ended.
int report(const launch::Outcome& outcome) {
  if (!outcome.report.empty()) std::cerr << "orthant: " << outcome.report << std::endl;
  return outcome.exit_code;
}

void check_values(const RankOptions& options) {
  if (!(options.timeout_seconds > 0)) {
    throw ConfigError(fmt::format("--timeout {} is not a positive number of seconds", options.timeout_seconds),
                      {.remedy = "use e.g. --timeout 300"});
  }
  comm::parse_backend(options.backend);
  check_device_name(options.device);
}

}  // namespace

void add_rank_options(CLI::App& app, RankOptions& options) {
  app.add_option("--mesh", options.mesh, "degrees of the axes, e.g. pp=2,dp=2,tp=2");
  app.add_option("--order", options.order, "axes from the outermost to the innermost (default pp,dp,fsdp,cp,tp)");
  app.add_option("--device", options.device, "auto, cpu or cuda (default auto)");
  app.add_option("--backend", options.backend, "auto, gloo, shm, nccl or fake (default auto: shm within a host)");
  app.add_option("--threads", options.threads, "compute threads per rank (default 1)")->check(CLI::Range(0, 4096));
  app.add_option("--timeout", options.timeout_seconds, "seconds a rank waits for another (default 300)");
  app.add_flag("--check-collectives", options.check_collectives, "compare calls across ranks before they run");
  app.add_option("--bind", options.bind_address, "address of this host to listen on (default: loopback on one host)");
  app.add_option("--launcher", options.launcher,
                 "which launcher to believe when several are seen: torchrun, openmpi, ...");
  app.add_option("--rendezvous", options.rendezvous, "HOST:PORT where ranks of a foreign launcher meet");
  app.add_option("--log-dir", options.log_dir, "folder for rank-R.log of ranks started here");
  app.add_flag("--bind-cores", options.bind_cores, "pin ranks started here to cores in turn");
}

int run_on_ranks(const RankOptions& options, Context& context, int default_world_size,
                 const std::function<int(RankContext&)>& body) {
  check_values(options);
  launch::DetectOptions detect_options;
  detect_options.launcher = options.launcher;
  detect_options.rendezvous = options.rendezvous;
  detect_options.bind = options.bind_address;
  if (const auto job = launch::join_launcher(context.environment, detect_options, options.timeout_seconds)) {
    return run_body(options, context, *job, body);
  }

  const auto mesh = mesh_for(options, default_world_size);
  launch::Job alone;
  if (!options.bind_address.empty()) alone.rendezvous.bind_address = options.bind_address;
  // A fake world is walked through by its first rank alone.
  const bool fake = comm::parse_backend(options.backend) == comm::BackendKind::fake;
  if (fake) alone.world_size = mesh.world_size();
  if (fake || mesh.world_size() == 1) return run_body(options, context, alone, body);

  launch::LocalOptions local;
  local.num_ranks = mesh.world_size();
  local.log_dir = options.log_dir;
  local.bind_cores = options.bind_cores;
  alone.world_size = alone.local_world_size = mesh.world_size();
  if (comm_options(options, alone).device.is_cpu()) {
    return report(
        launch::run_forked(local, [&](const launch::Job& job) { return run_body(options, context, job, body); }));
  }
  // A process that will use CUDA must not be a fork of one that has loaded it.
  auto words = context.words;
  words.insert(words.begin(), context.program);
  return report(launch::run_program(local, words, context.environment, {}, {.after_spawn = comm::serve_store}));
}

}  // namespace orthant::cli
