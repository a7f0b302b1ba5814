#include "orthant/launch/launchers.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <initializer_list>

#include "orthant/base/error.h"
#include "orthant/launch/environment.h"
#include "orthant/launch/node_list.h"

namespace orthant::launch {
namespace {

struct RankNames {
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;
};

int required(const Environment& environment, const char* name, const std::string& launcher, const std::string& seen) {
  const auto value = int_variable(environment, name);
  if (!value) {
    throw ConfigError(fmt::format("{} is set but {} is not: the variables of {} are incomplete", seen, name, launcher),
                      {.remedy = fmt::format("set {}, or unset {}", name, seen.substr(0, seen.find('=')))});
  }
  return *value;
}

void check_below(const std::string& rank_name, int rank, const std::string& size_name, int size) {
  if (rank < size) return;
  throw ConfigError(fmt::format("{}={} is not below {}={}", rank_name, rank, size_name, size),
                    {.remedy = "ranks count from 0; start the program through its launcher again"});
}

// The first of several variables that is set, as "NAME=value" and as its value.
const std::string* first_set(const Environment& environment, std::initializer_list<const char*> names,
                             const char** which = nullptr) {
  for (const char* name : names) {
    if (const auto* value = find_variable(environment, name)) {
      if (which != nullptr) *which = name;
      return value;
    }
  }
  return nullptr;
}

// Rank and world, and the local pair where it is given. Empty when neither rank nor world is set.
std::optional<Sighting> see_ranks(const Environment& environment, const std::string& launcher, const RankNames& names) {
  const char* seen_name = nullptr;
  const auto* seen_value = first_set(environment, {names.rank, names.size}, &seen_name);
  if (seen_value == nullptr) return std::nullopt;
  const auto seen = fmt::format("{}={}", seen_name, *seen_value);
  Sighting sighting;
  Job& job = sighting.job;
  job.launcher = launcher;
  job.rank = required(environment, names.rank, launcher, seen);
  job.world_size = required(environment, names.size, launcher, seen);
  check_below(names.rank, job.rank, names.size, job.world_size);
  sighting.variables = fmt::format("{}={} {}={}", names.rank, job.rank, names.size, job.world_size);
  sighting.rank_variable = names.rank;
  const char* local_name = nullptr;
  const auto* local_value = first_set(environment, {names.local_rank, names.local_size}, &local_name);
  sighting.has_local_ranks = local_value != nullptr;
  if (local_value != nullptr) {
    const auto local_seen = fmt::format("{}={}", local_name, *local_value);
    job.local_rank = required(environment, names.local_rank, launcher, local_seen);
    job.local_world_size = required(environment, names.local_size, launcher, local_seen);
    check_below(names.local_rank, job.local_rank, names.local_size, job.local_world_size);
  }
  return sighting;
}

// Nodes of equal size, filled in order: what a launcher that does not number its nodes does by default.
void derive_nodes(Job& job) {
  job.node_rank = job.rank / job.local_world_size;
  job.num_nodes = (job.world_size + job.local_world_size - 1) / job.local_world_size;
}

std::optional<Sighting> see_torchrun(const Environment& environment) {
  auto sighting = see_ranks(environment, "torchrun", {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"});
  if (!sighting) return sighting;
  Job& job = sighting->job;
  const auto* master = find_variable(environment, "MASTER_ADDR");
  if (!sighting->has_local_ranks && master != nullptr && (*master == "localhost" || *master == "127.0.0.1")) {
    job.local_rank = job.rank;
    job.local_world_size = job.world_size;
  }  // else one rank per host, as Kubernetes operators start them
  derive_nodes(job);
  const auto group_rank = int_variable(environment, "GROUP_RANK");
  const auto group_size = int_variable(environment, "GROUP_WORLD_SIZE");
  if (group_rank && group_size) {
    check_below("GROUP_RANK", *group_rank, "GROUP_WORLD_SIZE", *group_size);
    job.node_rank = *group_rank;
    job.num_nodes = *group_size;
    sighting->has_group_ranks = true;
    sighting->variables += fmt::format(" GROUP_RANK={} GROUP_WORLD_SIZE={}", *group_rank, *group_size);
  }
  job.restart_count = int_variable(environment, "TORCHELASTIC_RESTART_COUNT").value_or(0);
  if (const auto* run_id = find_variable(environment, "TORCHELASTIC_RUN_ID")) {
    sighting->is_elastic = true;
    sighting->job_id = *run_id == "none" ? "" : *run_id;
  }
  return sighting;
}

std::optional<Sighting> see_open_mpi(const Environment& environment) {
  auto sighting = see_ranks(
      environment, "Open MPI",
      {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"});
  if (!sighting) return sighting;
  derive_nodes(sighting->job);
  if (const auto* name = find_variable(environment, "PMIX_NAMESPACE")) sighting->job_id = *name;
  return sighting;
}

std::optional<Sighting> see_mpich(const Environment& environment) {
  if (find_variable(environment, "PALS_RANKID") != nullptr) return std::nullopt;  // PALS sets PMI_* too
  auto sighting = see_ranks(environment, "MPICH", {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"});
  if (sighting) derive_nodes(sighting->job);
  return sighting;
}

std::optional<Sighting> see_pals(const Environment& environment) {
  if (find_variable(environment, "PALS_RANKID") == nullptr) return std::nullopt;
  auto sighting = see_ranks(environment, "PALS", {"PALS_RANKID", "PMI_SIZE", "PALS_LOCAL_RANKID", "PALS_LOCAL_SIZE"});
  derive_nodes(sighting->job);
  if (const auto node = int_variable(environment, "PALS_NODEID")) sighting->job.node_rank = *node;
  const auto* job_id = find_variable(environment, "PBS_JOBID");
  const auto* application = find_variable(environment, "PALS_APID");
  if (job_id != nullptr) sighting->job_id = *job_id;
  if (application != nullptr) sighting->job_id += "." + *application;
  if (const auto* file = find_variable(environment, "PBS_NODEFILE"); file != nullptr && sighting->job.num_nodes > 1) {
    sighting->first_host = read_node_file(*file, "PBS_NODEFILE").front();
  }
  return sighting;
}

std::vector<std::string> lsf_hosts(const Environment& environment) {
  if (const auto* file = find_variable(environment, "LSB_DJOB_HOSTFILE")) {
    return lsf_compute_hosts(read_node_file(*file, "LSB_DJOB_HOSTFILE"));
  }
  const auto* hosts = find_variable(environment, "LSB_HOSTS");
  return hosts != nullptr ? lsf_compute_hosts(split_words(*hosts)) : std::vector<std::string>{};
}

std::optional<Sighting> see_lsf(const Environment& environment) {
  auto sighting = see_ranks(environment, "LSF", {"JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE", "", ""});
  if (!sighting) return sighting;
  Job& job = sighting->job;
  const auto hosts = lsf_hosts(environment);
  if (!hosts.empty()) sighting->first_host = hosts.front();
  const int num_hosts = std::max<int>(1, static_cast<int>(hosts.size()));
  job.local_rank = required(environment, "JSM_NAMESPACE_LOCAL_RANK", "LSF", sighting->variables);
  job.local_world_size = int_variable(environment, "JSM_NAMESPACE_LOCAL_SIZE").value_or(0);
  if (job.local_world_size == 0) job.local_world_size = (job.world_size + num_hosts - 1) / num_hosts;
  check_below("JSM_NAMESPACE_LOCAL_RANK", job.local_rank, "ranks on this host", job.local_world_size);
  sighting->has_local_ranks = true;
  derive_nodes(job);
  if (const auto* id = find_variable(environment, "LSB_JOBID")) sighting->job_id = *id;
  if (const auto* step = find_variable(environment, "JSM_JSRUN_ID")) sighting->job_id += "." + *step;
  return sighting;
}

void see_slurm_nodes(const Environment& environment, Sighting& sighting) {
  Job& job = sighting.job;
  const char* name = nullptr;
  if (const auto* list =
          first_set(environment, {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"}, &name)) {
    const auto hosts = expand_node_list(*list, name);
    sighting.first_host = hosts.front();
    job.num_nodes = static_cast<int>(hosts.size());
  }
  const auto nodes = int_variable(environment, "SLURM_STEP_NUM_NODES");
  if (nodes && *nodes > 0) job.num_nodes = *nodes;
  job.node_rank = int_variable(environment, "SLURM_NODEID").value_or(0);
  check_below("SLURM_NODEID", job.node_rank, "number of nodes", job.num_nodes);
}

int slurm_tasks_here(const Environment& environment, const Job& job) {
  const char* name = nullptr;
  if (const auto* tasks = first_set(environment, {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"}, &name)) {
    const auto counts = expand_tasks_per_node(*tasks, name);
    if (job.node_rank < static_cast<int>(counts.size())) return counts[job.node_rank];
  }
  if (const auto each = int_variable(environment, "SLURM_NTASKS_PER_NODE")) return *each;
  if (job.num_nodes == 1) return job.world_size;
  throw ConfigError(
      fmt::format("SLURM_PROCID={} is set but neither SLURM_STEP_TASKS_PER_NODE nor SLURM_NTASKS_PER_NODE is: "
                  "the variables of Slurm are incomplete",
                  job.rank),
      {.remedy = "start the ranks with srun --ntasks-per-node N"});
}

std::optional<Sighting> see_slurm(const Environment& environment) {
  if (find_variable(environment, "SLURM_PROCID") == nullptr) return std::nullopt;
  const char* size_name =
      find_variable(environment, "SLURM_STEP_NUM_TASKS") != nullptr ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
  auto sighting = see_ranks(environment, "Slurm", {"SLURM_PROCID", size_name, "", ""});
  Job& job = sighting->job;
  see_slurm_nodes(environment, *sighting);
  job.local_world_size = slurm_tasks_here(environment, job);
  job.local_rank = required(environment, "SLURM_LOCALID", "Slurm", fmt::format("SLURM_PROCID={}", job.rank));
  check_below("SLURM_LOCALID", job.local_rank, "tasks on this node", job.local_world_size);
  sighting->has_local_ranks = true;
  const auto* id = first_set(environment, {"SLURM_JOB_ID", "SLURM_JOBID"});
  const auto* step = first_set(environment, {"SLURM_STEP_ID", "SLURM_STEPID"});
  if (id != nullptr) sighting->job_id = fmt::format("{}.{}", *id, step != nullptr ? *step : "");
  return sighting;
}

}  // namespace

const std::vector<std::string>& launcher_names() {
  static const std::vector<std::string> names{"torchrun", "pals", "openmpi", "mpich", "lsf", "slurm"};
  return names;
}

std::optional<Sighting> see_launcher(const std::string& name, const Environment& environment) {
  if (name == "torchrun") return see_torchrun(environment);
  if (name == "pals") return see_pals(environment);
  if (name == "openmpi") return see_open_mpi(environment);
  if (name == "mpich") return see_mpich(environment);
  if (name == "lsf") return see_lsf(environment);
  if (name == "slurm") return see_slurm(environment);
  throw InternalError("unknown launcher " + name);
}

bool is_slurm_allocation_only(const Environment& environment) {
  const auto* step = first_set(environment, {"SLURM_STEP_ID", "SLURM_STEPID"});
  if (step == nullptr) return true;
  // Slurm's own steps (batch, interactive, external) have numbers from 0xfffffff0 up.
  unsigned long long number = 0;
  std::from_chars(step->data(), step->data() + step->size(), number);
  if (number >= 0xfffffff0ULL) return true;
  const auto* tasks = first_set(environment, {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"});
  return tasks != nullptr && *tasks == "1";
}

}  // namespace orthant::launch
