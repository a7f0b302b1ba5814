#include "orthant/launch/detect.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <vector>

#include "orthant/base/error.h"
#include "orthant/base/nearest.h"
#include "orthant/base/stable_hash.h"
#include "orthant/launch/environment.h"
#include "orthant/launch/launchers.h"
#include "orthant/launch/meeting.h"
#include "orthant/launch/sockets.h"
#include "orthant/launch/store_join.h"

namespace orthant::launch {
namespace {

Sighting from_flags(const DetectOptions& options) {
  if (!options.rank || !options.world_size) {
    const bool has_rank = options.rank.has_value();
    throw ConfigError(fmt::format("{} is given without {}", has_rank ? "the rank" : "the world size",
                                  has_rank ? "the world size" : "the rank"),
                      {.remedy = "give both, or neither"});
  }
  Sighting sighting;
  Job& job = sighting.job;
  job.launcher = "flags";
  job.rank = *options.rank;
  job.world_size = *options.world_size;
  const bool one_host = job.world_size == 1 || (!options.rendezvous.empty() &&
                                                is_loopback(parse_endpoint(options.rendezvous, "--rendezvous").host));
  job.local_rank = options.local_rank.value_or(one_host ? job.rank : 0);
  job.local_world_size = options.local_world_size.value_or(one_host ? job.world_size : job.local_rank + 1);
  if (job.rank < 0 || job.rank >= job.world_size || job.local_rank < 0 || job.local_rank >= job.local_world_size) {
    throw ConfigError(fmt::format("rank {} of {}, local rank {} of {}: impossible", job.rank, job.world_size,
                                  job.local_rank, job.local_world_size),
                      {.remedy = "ranks count from 0 and stay below their world size"});
  }
  job.node_rank = job.rank / job.local_world_size;
  job.num_nodes = (job.world_size + job.local_world_size - 1) / job.local_world_size;
  return sighting;
}

// The name the user gave, as launcher_names() has it: "Open-MPI" is "openmpi".
std::string canonical_launcher(const std::string& given) {
  std::string name;
  for (const char c : given) {
    if (c != '-' && c != '_' && c != ' ') name += static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  }
  auto names = launcher_names();
  names.emplace_back("none");
  if (std::find(names.begin(), names.end(), name) != names.end()) return name;
  const auto near = nearest(name, names);
  throw ConfigError(
      fmt::format("--launcher '{}' is not known{}", given, near ? fmt::format("; did you mean {}?", *near) : ""),
      {.remedy = fmt::format("use one of {}", fmt::join(names, ", "))});
}

bool same_ranks(const Sighting& a, const Sighting& b) {
  return a.job.rank == b.job.rank && a.job.world_size == b.job.world_size;
}

// True when `outer` started one agent per host and the agent, as `inner`, started this process.
bool is_agent_of(const Sighting& outer, const Sighting& inner) {
  if (inner.has_group_ranks && inner.job.num_nodes == outer.job.world_size) {
    // torchrun's agents number the hosts in order of arrival, so only the number of hosts must agree.
    return inner.is_elastic || inner.job.node_rank == outer.job.rank;
  }
  // Inside a Slurm allocation mpirun starts its daemons with srun, one per host.
  const bool is_mpi = inner.job.launcher == "Open MPI" || inner.job.launcher == "MPICH";
  return is_mpi && outer.job.launcher == "Slurm" && outer.job.local_world_size == 1 &&
         inner.job.world_size >= outer.job.world_size;
}

std::vector<Sighting> see_all(const Environment& environment) {
  std::vector<Sighting> sightings;
  for (const auto& name : launcher_names()) {
    if (name == "slurm" && is_slurm_allocation_only(environment)) continue;
    if (auto sighting = see_launcher(name, environment)) sightings.push_back(std::move(*sighting));
  }
  // Several launchers speak PMI. Where one of them was recognised, PMI_RANK is not the sign of a second launcher.
  std::erase_if(sightings, [&](const Sighting& one) {
    return one.job.launcher == "MPICH" && !one.has_local_ranks &&
           std::any_of(sightings.begin(), sightings.end(),
                       [&](const Sighting& other) { return other.job.launcher != "MPICH" && same_ranks(one, other); });
  });
  return sightings;
}

std::optional<Sighting> choose(const Environment& environment, const DetectOptions& options) {
  if (options.rank || options.world_size) return from_flags(options);
  if (!options.launcher.empty()) {
    const auto name = canonical_launcher(options.launcher);
    if (name == "none") return std::nullopt;
    auto forced = see_launcher(name, environment);
    if (!forced) {
      throw ConfigError(fmt::format("--launcher {}: none of its variables is set here", name),
                        {.remedy = "start the program through it, or leave the flag out"});
    }
    return forced;
  }
  const auto sightings = see_all(environment);
  if (sightings.empty() && (options.local_rank || options.local_world_size)) {
    throw ConfigError("a local rank or local world size is given without the rank and the world size",
                      {.remedy = "give --rank and --world-size too, or leave it out"});
  }
  if (sightings.empty()) return std::nullopt;
  const auto& chosen = sightings.front();
  for (const auto& other : sightings) {
    if (same_ranks(chosen, other) || is_agent_of(other, chosen)) continue;
    throw ConfigError(fmt::format("two launchers contradict each other: {} says {}, {} says {}", chosen.job.launcher,
                                  chosen.variables, other.job.launcher, other.variables),
                      {.remedy = fmt::format("unset the variables of one, or choose with --launcher ({})",
                                             fmt::join(launcher_names(), ", "))});
  }
  return chosen;
}

void require_local_ranks(const Sighting& sighting) {
  const auto& launcher = sighting.job.launcher;
  if (sighting.has_local_ranks || sighting.job.world_size == 1 || launcher == "torchrun" || launcher == "flags") return;
  throw ConfigError(fmt::format("{} says {} but not this process' rank on its host: its variables are incomplete",
                                launcher, sighting.variables),
                    {.remedy = "start the program through its launcher again, or give the ranks by flags"});
}

// A port from 20000 to 29999 that all ranks of a job derive alike.
int derived_port(const std::string& job_id) {
  return 20000 + static_cast<int>(stable_hash(job_id) % 10000);
}

std::optional<Endpoint> master_of(const Environment& environment) {
  const auto* host = find_variable(environment, "MASTER_ADDR");
  const auto port = int_variable(environment, "MASTER_PORT");
  if (host == nullptr && !port) return std::nullopt;
  if (host == nullptr || !port) {
    throw ConfigError(host == nullptr ? fmt::format("MASTER_PORT={} is set but MASTER_ADDR is not", *port)
                                      : fmt::format("MASTER_ADDR={} is set but MASTER_PORT is not", *host),
                      {.remedy = "set both, or give --rendezvous HOST:PORT"});
  }
  if (*port < 1 || *port > 65535) {
    throw ConfigError(fmt::format("MASTER_PORT={} is not a port", *port),
                      {.remedy = "set it to a number from 1 to 65535"});
  }
  return Endpoint{*host, *port};
}

// A name is written into files, as one word.
std::string checked_job_name(const std::string& name) {
  constexpr std::size_t kLongest = 64;
  const bool plain = std::ranges::all_of(name, [](unsigned char c) { return std::isxdigit(c) != 0; });
  if (plain && name.size() <= kLongest) return name;
  throw ConfigError(fmt::format("{} is no name of a job: at most {} hexadecimal digits", kJobVariable, kLongest),
                    {.remedy = "leave it to orthant launch"});
}

void fill_rendezvous(const Environment& environment, const DetectOptions& options, Sighting& sighting) {
  Job& job = sighting.job;
  Rendezvous& rendezvous = job.rendezvous;
  const bool one_host = job.world_size == job.local_world_size;
  rendezvous.bind_address = !options.bind.empty() ? options.bind : one_host ? "127.0.0.1" : "";
  std::optional<Endpoint> meeting;
  if (!options.rendezvous.empty()) {
    meeting = parse_endpoint(options.rendezvous, "--rendezvous");
    if (meeting->port == 0 && job.world_size > 1) {
      throw ConfigError(fmt::format("--rendezvous is '{}': port 0 cannot be agreed upon by {} ranks",
                                    options.rendezvous, job.world_size),
                        {.remedy = "name a free port"});
    }
  }
  if (const auto* inherited = find_variable(environment, kStoreVariable); inherited && job.launcher == "torchrun") {
    rendezvous.store_fd = inherited_store(*inherited, job);
    job.executed_by_us = rendezvous.store_fd >= 0;
    if (rendezvous.store_fd >= 0) {
      if (const auto* name = find_variable(environment, kJobVariable)) job.name = checked_job_name(*name);
      rendezvous.served_by_launcher = true;
      const auto* host = find_variable(environment, "MASTER_ADDR");
      if (host != nullptr && !one_host) rendezvous.host = *host;
      return;
    }
  }
  if (!meeting && job.launcher != "flags") {
    meeting = master_of(environment);
    const auto* agent_store = find_variable(environment, "TORCHELASTIC_USE_AGENT_STORE");
    if (meeting && job.launcher == "torchrun" && agent_store != nullptr && *agent_store == "True") {
      rendezvous.served_by_launcher = true;
      rendezvous.prefix = fmt::format("/worker/attempt_{}", job.restart_count);
    }
  }
  if (meeting) {
    rendezvous.host = meeting->host;
    rendezvous.port = meeting->port;
  }
  if (one_host && !rendezvous.served_by_launcher) {
    const auto id = sighting.job_id.empty() ? launcher_process_id(sighting.rank_variable) : sighting.job_id;
    rendezvous.meeting_key = fmt::format("{}-{}", job.launcher, meeting ? fmt::format("port-{}", meeting->port) : id);
    return;
  }
  if (!meeting && !sighting.first_host.empty() && !sighting.job_id.empty()) {
    meeting = Endpoint{sighting.first_host, derived_port(sighting.job_id)};
  }
  if (!meeting) {
    throw ConfigError(fmt::format("{} starts {} ranks on {} hosts but names no place for them to meet", job.launcher,
                                  job.world_size, job.num_nodes),
                      {.remedy = "set MASTER_ADDR and MASTER_PORT to rank 0's host and a free port there, or give "
                                 "--rendezvous HOST:PORT"});
  }
  rendezvous.host = meeting->host;
  rendezvous.port = meeting->port;
}

}  // namespace

std::optional<Job> detect(const Environment& environment, const DetectOptions& options) {
  auto sighting = choose(environment, options);
  if (!sighting) return std::nullopt;
  require_local_ranks(*sighting);
  fill_rendezvous(environment, options, *sighting);
  return sighting->job;
}

}  // namespace orthant::launch
