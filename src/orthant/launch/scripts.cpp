#include "orthant/launch/scripts.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "orthant/base/error.h"
#include "orthant/base/nearest.h"
#include "orthant/launch/failure.h"

namespace orthant::launch {
namespace {

// `orthant launch ... -- PROGRAM ARGS`; node_rank and first_host are shell text such as "$SLURM_NODEID".
std::string launch_command(const ScriptOptions& options, const std::string& node_rank, const std::string& first_host) {
  std::string flags;
  for (const auto& word : options.launch_flags) flags += " " + shell_quote(word);
  std::string words;
  for (const auto& word : options.command) words += " " + shell_quote(word);
  return fmt::format("{} launch --nproc {} --nnodes {} --node_rank {} --rendezvous {}:{}{} --{}",
                     shell_quote(options.orthant), options.ranks_per_node, options.num_nodes, node_rank, first_host,
                     options.port, flags, words);
}

// What a node runs, as shell text. NCCL registers memory with the network, which a limit on locked memory would refuse.
std::string node_command(const ScriptOptions& options, const std::string& node_rank, const std::string& first_host) {
  const char* unlocked = options.gpus_per_node > 0 ? "ulimit -l unlimited 2>/dev/null; " : "";
  return unlocked + ("exec " + launch_command(options, node_rank, first_host));
}

// A scheduler's option line, or nothing when there is no value for it.
std::string optional_line(const std::string& before, const std::string& value) {
  return value.empty() ? "" : before + value + "\n";
}

// A fresh token in the environment of a batch script, from where the launchers inherit it: in no file and in no
// argument.
std::string make_token_lines(const ScriptOptions& options) {
  if (!options.makes_token) return "";
  return "\n# The job token, by which the launchers know each other: made now, only in the environment.\n"
         "ORTHANT_TOKEN=$(od -An -v -tx1 -N32 /dev/urandom | tr -d ' \\n')\nexport ORTHANT_TOKEN\n";
}

// A job that was told to stop has ended by itself, so that Slurm does not put it back as it does what it had to kill.
std::string requeue_lines() {
  static_assert(kStoppedExitCode == 75);
  return R"(
# 75: told to stop, by preemption or shortly before the time limit, the training has saved. The job goes back into the
# queue, unless it is being cancelled; there orthant train goes on where it is given --output-dir and --resume auto.
if [[ $status == 75 && $(squeue --noheader --jobs="$SLURM_JOB_ID" --format=%T) == RUNNING ]]; then
  scontrol requeue "$SLURM_JOB_ID"
fi
exit "$status"
)";
}

std::string slurm_script(const ScriptOptions& options) {
  const int cores = options.cores_per_node > 0 ? options.cores_per_node : options.ranks_per_node;
  std::string gpus;
  if (options.gpus_per_node > 0) {
    const auto type = options.gpu_type.empty() ? "" : options.gpu_type + ":";
    gpus = fmt::format("#SBATCH --gpus-per-node={}{}\n", type, options.gpus_per_node);
  }
  std::string script = "#!/bin/bash\n";
  script += fmt::format("#SBATCH --job-name={}\n#SBATCH --nodes={}\n", options.job_name, options.num_nodes);
  script += fmt::format("#SBATCH --ntasks-per-node=1\n#SBATCH --cpus-per-task={}\n", cores) + gpus;
  script += fmt::format("#SBATCH --time={}\n", options.walltime);
  script += optional_line("#SBATCH --account=", options.account) + optional_line("#SBATCH --partition=", options.queue);
  script += "#SBATCH --signal=TERM@120\n#SBATCH --requeue\n#SBATCH --open-mode=append\n\nset -euo pipefail\n";
  script += "mapfile -t HOSTS < <(scontrol show hostnames \"$SLURM_JOB_NODELIST\")\nexport FIRST_HOST=${HOSTS[0]}\n";
  script += make_token_lines(options);
  script += "\n# One launcher per node; it starts the node's ranks. The single-quoted text runs on the nodes.\n";
  script += fmt::format("status=0\nsrun --export=ALL --cpus-per-task={} --kill-on-bad-exit=1 bash -c ", cores) +
            shell_quote(node_command(options, "\"$SLURM_NODEID\"", "\"$FIRST_HOST\"")) + " || status=$?\n";
  return script + requeue_lines();
}

std::string pbs_script(const ScriptOptions& options) {
  const int cores = options.cores_per_node > 0 ? options.cores_per_node : 64;
  std::string select = fmt::format("{}:ncpus={}:mpiprocs={}", options.num_nodes, cores, options.ranks_per_node);
  if (options.gpus_per_node > 0) select += fmt::format(":ngpus={}", options.gpus_per_node);
  std::string script = "#!/bin/bash\n";
  script += fmt::format("#PBS -N {}\n#PBS -l select={}\n#PBS -l place=scatter\n#PBS -l walltime={}\n", options.job_name,
                        select, options.walltime);
  script += optional_line("#PBS -A ", options.account) + optional_line("#PBS -q ", options.queue);
  if (options.gpus_per_node > 0) script += optional_line("#PBS -l gpu_type=", options.gpu_type);
  script += "#PBS -j oe\n#PBS -k eod\n\nset -euo pipefail\ncd \"$PBS_O_WORKDIR\"\n";
  script += "mapfile -t HOSTS < <(awk '!seen[$0]++' \"$PBS_NODEFILE\")\n";
  script += "export FIRST_HOST=${HOSTS[0]}\n" + make_token_lines(options);
  script +=
      "\n# One launcher per node; it starts the node's ranks. The single-quoted text runs on the nodes. This is the "
      "mpiexec\n";
  script += "# of Cray PALS or MPICH.\n";
  script +=
      fmt::format("mpiexec -n {} --ppn 1 --hosts \"$(IFS=,; echo \"${{HOSTS[*]}}\")\" bash -c ", options.num_nodes) +
      shell_quote(node_command(options, "\"${PALS_NODEID:-${PMI_RANK:-0}}\"", "\"$FIRST_HOST\"")) + "\n";
  return script;
}

// JSON strings are YAML strings, whatever they contain.
std::string yaml_quote(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

// Kubernetes expands $(NAME) in commands and reads $$ as $.
std::string escape_expansion(const std::string& text) {
  std::string escaped;
  for (std::size_t i = 0; i < text.size(); ++i) {
    escaped += text[i];
    if (text[i] == '$' && i + 1 < text.size() && (text[i + 1] == '$' || text[i + 1] == '(')) escaped += '$';
  }
  return escaped;
}

long walltime_seconds(const std::string& walltime) {
  long total = 0, part = 0;
  for (const char c : walltime) {
    if (c == ':') {
      total = (total + part) * 60;
      part = 0;
    } else if (c >= '0' && c <= '9' && part < 1'000'000) {
      part = part * 10 + (c - '0');
    } else {
      throw ConfigError(fmt::format("walltime '{}' is not HH:MM:SS", walltime), {.remedy = "write it like 01:30:00"});
    }
  }
  return total + part;
}

struct PodToken {
  std::string comment;
  std::string variable;
};

// Pods of one job have no common place to make a token: it is a secret of the cluster, made by whoever starts the job.
PodToken token_of_pods(const ScriptOptions& options) {
  if (!options.makes_token) return {};
  const auto name = options.job_name + "-token";
  const auto space = options.queue.empty() ? "" : " --namespace " + options.queue;
  PodToken token;
  token.comment = fmt::format(
      R"(# The job token, by which the launchers know each other, is a secret. Make it before each start (no argument shows it):
#   kubectl delete secret {0}{1} --ignore-not-found
#   od -An -v -tx1 -N32 /dev/urandom | tr -d ' \n' | kubectl create secret generic {0}{1} --from-file=token=/dev/stdin
)",
      name, space);
  token.variable = fmt::format(R"(          env:
            - name: ORTHANT_TOKEN
              valueFrom:
                secretKeyRef:
                  name: {}
                  key: token
)",
                               name);
  return token;
}

std::string kubernetes_script(const ScriptOptions& options) {
  const auto& name = options.job_name;
  const auto space = options.queue.empty() ? "" : fmt::format("  namespace: {}\n", yaml_quote(options.queue));
  const int cores = options.cores_per_node > 0 ? options.cores_per_node : options.ranks_per_node;
  const auto gpus =
      options.gpus_per_node > 0 ? fmt::format("              nvidia.com/gpu: {}\n", options.gpus_per_node) : "";
  const auto selector =
      options.gpu_type.empty() || options.gpus_per_node == 0
          ? ""
          : fmt::format("      nodeSelector:\n        nvidia.com/gpu.product: {}\n", yaml_quote(options.gpu_type));
  const auto first_host = fmt::format("{0}-0.{0}", name);
  const auto command = node_command(options, "\"$JOB_COMPLETION_INDEX\"", first_host);
  const auto locks = options.gpus_per_node > 0 ? R"(          securityContext:
            capabilities:
              add: ["IPC_LOCK"]
)"
                                               : "";
  const auto token = token_of_pods(options);
  return fmt::format(
      R"(# One pod per node; pod 0 is reached as {first_host} through the headless service.
{token_comment}apiVersion: v1
kind: Service
metadata:
  name: {name}
{space}spec:
  clusterIP: None
  publishNotReadyAddresses: true
  selector:
    job-name: {name}
---
apiVersion: batch/v1
kind: Job
metadata:
  name: {name}
{space}spec:
  completionMode: Indexed
  completions: {nodes}
  parallelism: {nodes}
  backoffLimit: 0
  activeDeadlineSeconds: {seconds}
  template:
    spec:
      subdomain: {name}
      restartPolicy: Never
{selector}      containers:
        - name: orthant
          image: {image}
          command: ["/bin/sh", "-c", {command}]
{token_variable}{locks}          resources:
            limits:
              cpu: {cores}
{gpus}          volumeMounts:
            - name: shared-memory
              mountPath: /dev/shm
      volumes:
        - name: shared-memory
          emptyDir:
            medium: Memory
)",
      fmt::arg("token_comment", token.comment), fmt::arg("token_variable", token.variable),
      fmt::arg("first_host", first_host), fmt::arg("name", name), fmt::arg("space", space),
      fmt::arg("nodes", options.num_nodes), fmt::arg("seconds", walltime_seconds(options.walltime)),
      fmt::arg("selector", selector), fmt::arg("locks", locks), fmt::arg("image", yaml_quote(options.image)),
      fmt::arg("command", yaml_quote(escape_expansion(command))), fmt::arg("cores", cores), fmt::arg("gpus", gpus));
}

// Values that stand in option lines or names cannot be quoted there, so they must not need it.
void check_plain(const std::string& what, const std::string& value, const std::string& also_allowed) {
  const auto plain = [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           also_allowed.find(c) != std::string::npos;
  };
  if (std::all_of(value.begin(), value.end(), plain)) return;
  throw ConfigError(fmt::format("{} '{}' has characters that a job script cannot hold", what, value),
                    {.remedy = fmt::format("use letters, digits and any of {}", also_allowed)});
}

void check(const std::string& kind, const ScriptOptions& options) {
  if (options.command.empty())
    throw ConfigError("no program to run", {.remedy = "write it after --, for example -- ./program"});
  if (options.num_nodes < 1 || options.ranks_per_node < 1 || options.gpus_per_node < 0 || options.cores_per_node < 0) {
    throw ConfigError(fmt::format("{} nodes with {} ranks, {} GPUs and {} cores each make no job", options.num_nodes,
                                  options.ranks_per_node, options.gpus_per_node, options.cores_per_node),
                      {.remedy = "ask for at least one node and one rank per node"});
  }
  check_plain("job name", options.job_name, kind == "k8s" ? "-" : "-_.");
  const auto is_capital = [](char c) { return c >= 'A' && c <= 'Z'; };
  const auto& name = options.job_name;
  const bool is_kubernetes_name = !name.empty() && name.size() <= 50 &&
                                  std::none_of(name.begin(), name.end(), is_capital) && name.front() >= 'a' &&
                                  name.back() != '-';
  if (name.empty() || (kind == "k8s" && !is_kubernetes_name)) {
    throw ConfigError(fmt::format("job name '{}' does not serve", name),
                      {.remedy = "use up to 50 lower-case letters, digits and -, a letter first"});
  }
  walltime_seconds(options.walltime);  // throws when it is not HH:MM:SS
  check_plain("account", options.account, "-_.");
  check_plain("queue", options.queue, "-_.,@");
  check_plain("GPU type", options.gpu_type, "-_.");
}

}  // namespace

std::string job_script(const std::string& kind, const ScriptOptions& options) {
  const std::vector<std::string> kinds{"slurm", "pbs", "k8s"};
  if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) {
    const auto near = kind == "kubernetes" ? "k8s" : nearest(kind, kinds).value_or("");
    throw ConfigError(fmt::format("no job script for '{}'{}", kind, near.empty() ? "" : "; did you mean " + near + "?"),
                      {.remedy = "use slurm, pbs or k8s"});
  }
  check(kind, options);
  if (kind == "slurm") return slurm_script(options);
  return kind == "pbs" ? pbs_script(options) : kubernetes_script(options);
}

}  // namespace orthant::launch
