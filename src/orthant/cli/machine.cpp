#include "orthant/cli/machine.h"

#include <ATen/Version.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <torch/headeronly/version.h>

#include <nlohmann/json.hpp>

#include "orthant/base/error.h"
#include "orthant/base/human.h"
#include "orthant/cli/devices.h"
#include "orthant/comm/nccl.h"
#include "orthant/launch/detect.h"
#include "orthant/launch/environment.h"
#include "orthant/launch/memory_group.h"
#include "orthant/launch/shared_devices.h"

namespace orthant::cli {
namespace {

int64_t free_bytes_of(const char* folder) {
  struct statvfs status{};
  if (statvfs(folder, &status) != 0) return 0;
  return static_cast<int64_t>(status.f_bavail) * static_cast<int64_t>(status.f_frsize);
}

// Variables that make exchanges over NCCL slow, or hang: what was set for one experiment and stayed.
struct HarmfulVariable {
  const char* name;
  const char* harmless;  // a value that does no harm; any other does
  const char* harm;
};
constexpr HarmfulVariable kHarmfulVariables[] = {
    {"CUDA_LAUNCH_BLOCKING", "0", "the host waits for every kernel, receives that are started early among them"},
    {"NCCL_P2P_DISABLE", "0", "GPUs of a host do not reach each other's memory"},
    {"NCCL_SHM_DISABLE", "0", "GPUs of a host without NVLink talk through the network"},
    {"NCCL_IB_DISABLE", "0", "hosts talk through sockets even where there is InfiniBand"},
    {"NCCL_NET_GDR_LEVEL", "", "it overrides which GPUs the network reaches directly"},
    {"NCCL_ALGO", "", "one algorithm for every size and operation"},
    {"NCCL_PROTO", "", "one protocol for every size and operation"},
    {"NCCL_MAX_NCHANNELS", "", "fewer channels than the links can fill"},
    {"NCCL_MAX_CTAS", "", "fewer blocks than the links can fill"},
    {"NCCL_BUFFSIZE", "", "buffers of another size than NCCL's own"},
    {"NCCL_HOSTID", "", "ranks with one identity are taken for one host, ranks with several for hosts of their own"},
    {"NCCL_BLOCKING_WAIT", "0", "the host waits for every call"},
    {"TORCH_NCCL_BLOCKING_WAIT", "0", "the host waits for every call"},
    {"TORCH_NCCL_USE_COMM_NONBLOCKING", "0",
     "communicators are connected at the first call, not before the first step"},
    {"NCCL_LAUNCH_MODE", "", "all ranks of a process are started together"},
};

void find_harmful_variables(const launch::Environment& environment, Machine& machine) {
  const auto* identity = launch::find_variable(environment, "NCCL_HOSTID");
  const bool shares_device = identity != nullptr && identity->starts_with(launch::kSharedIdentity);  // set by us
  for (const auto& [name, harmless, harm] : kHarmfulVariables) {
    const auto* value = launch::find_variable(environment, name);
    if (value == nullptr || *value == harmless) continue;
    if (shares_device && (value == identity || std::string_view(name) == "NCCL_IB_DISABLE")) continue;
    machine.problems.push_back({fmt::format("{}={}: {}", name, *value, harm), fmt::format("unset {}", name)});
  }
  const auto* debug = launch::find_variable(environment, "NCCL_DEBUG");
  if (debug != nullptr && (*debug == "INFO" || *debug == "TRACE")) {
    machine.problems.push_back(
        {fmt::format("NCCL_DEBUG={}: every rank writes lines on its own", *debug), "set NCCL_DEBUG=WARN"});
  }
  const auto* queues = launch::find_variable(environment, "CUDA_DEVICE_MAX_CONNECTIONS");
  if (queues != nullptr && queues->size() == 1) {
    machine.problems.push_back(
        {fmt::format("CUDA_DEVICE_MAX_CONNECTIONS={}: streams share queues of the device, so that a receive that waits "
                     "may hold up what its peer waits for",
                     *queues),
         "unset it: ranks set 32"});
  }
}

void find_problems(const launch::Environment& environment, Machine& machine) {
  try {
    const auto job = launch::detect(environment);
    if (job) machine.launcher = fmt::format("{} (rank {} of {})", job->launcher, job->rank, job->world_size);
  } catch (const Error& error) {
    machine.problems.push_back({error.message(), error.remedy()});
  }
  find_harmful_variables(environment, machine);
  if (machine.num_gpus > 0 && !machine.built_with_cuda) {
    machine.problems.push_back(
        {fmt::format("{} GPU(s) here, but this program was built without CUDA", machine.num_gpus),
         "build with make program PRESET=cuda"});
  }
  if (machine.shared_memory_bytes < (int64_t{64} << 20)) {
    machine.problems.push_back({fmt::format("/dev/shm has only {} free", format_bytes(machine.shared_memory_bytes)),
                                "give the container more shared memory, e.g. --shm-size 1g"});
  }
  if (machine.max_open_files < 1024) {
    machine.problems.push_back({fmt::format("only {} open files are allowed per process", machine.max_open_files),
                                "raise the limit: ulimit -n 4096"});
  }
}

}  // namespace

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
}

int64_t host_memory_bytes() {
  return launch::counter_in("/proc/meminfo", "MemTotal").value_or(0) * 1024;
}

Machine look_at_machine(const launch::Environment& environment) {
  Machine machine;
  machine.torch_version = fmt::format("{}.{}.{}", TORCH_VERSION_MAJOR, TORCH_VERSION_MINOR, TORCH_VERSION_PATCH);
  machine.backends = {"gloo", "shm", "fake"};
  if (comm::nccl_available()) machine.backends.insert(machine.backends.begin() + 2, "nccl");
  machine.num_gpus = count_gpus(environment);
  machine.built_with_cuda = built_with_cuda();
  machine.num_cores = usable_cores();
  machine.cpu_capability = at::get_cpu_capability();
  machine.memory_bytes = host_memory_bytes();
  machine.available_memory_bytes = launch::free_memory().value_or(launch::FreeMemory{}).bytes;
  machine.shared_memory_bytes = free_bytes_of("/dev/shm");
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  machine.max_open_files = static_cast<int64_t>(files.rlim_cur);
  find_problems(environment, machine);
  return machine;
}

nlohmann::ordered_json to_json(const Machine& machine) {
  auto problems = nlohmann::ordered_json::array();
  for (const auto& problem : machine.problems) problems.push_back({{"problem", problem.text}, {"fix", problem.remedy}});
  return {{"torch", machine.torch_version},
          {"backends", machine.backends},
          {"built_with_cuda", machine.built_with_cuda},
          {"gpus", machine.num_gpus},
          {"cores", machine.num_cores},
          {"cpu_capability", machine.cpu_capability},
          {"memory_bytes", machine.memory_bytes},
          {"available_memory_bytes", machine.available_memory_bytes},
          {"shared_memory_bytes", machine.shared_memory_bytes},
          {"max_open_files", machine.max_open_files},
          {"launcher", machine.launcher.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(machine.launcher)},
          {"problems", problems}};
}

std::string to_text(const Machine& machine) {
  std::string text;
  const auto line = [&text](const char* name, const std::string& value) {
    text += fmt::format("  {:14} {}\n", name, value);
  };
  text += "This machine\n";
  line("libtorch", fmt::format("{}{}", machine.torch_version, machine.built_with_cuda ? " with CUDA" : ", CPU only"));
  line("backends", fmt::format("{}", fmt::join(machine.backends, ", ")));
  line("GPUs", std::to_string(machine.num_gpus));
  line("cores", fmt::format("{} ({})", machine.num_cores, machine.cpu_capability));
  line("memory", fmt::format("{}, {} available", format_bytes(machine.memory_bytes),
                             format_bytes(machine.available_memory_bytes)));
  line("shared memory", fmt::format("{} free", format_bytes(machine.shared_memory_bytes)));
  line("open files", std::to_string(machine.max_open_files));
  line("launcher", machine.launcher.empty() ? "none seen: commands start their own ranks" : machine.launcher);
  if (machine.problems.empty()) return text + "  no problem found\n";
  for (const auto& problem : machine.problems)
    text += fmt::format("  problem: {}\n      fix: {}\n", problem.text, problem.remedy);
  return text;
}

}  // namespace orthant::cli
