// Ready job scripts that run a program through `orthant launch` on several nodes: for Slurm, PBS and Kubernetes.
#pragma once

#include <string>
#include <vector>

#include "orthant/base/shell_quote.h"

namespace orthant::launch {

struct ScriptOptions {
  std::vector<std::string> command;  // PROGRAM ARGS
  int num_nodes = 1;
  int ranks_per_node = 1;
  int gpus_per_node = 0;
  int cores_per_node = 0;  // 0: one per rank on Slurm and Kubernetes, 64 on PBS
  std::string gpu_type;    // Slurm's gres type, PBS' gpu_type, Kubernetes' node label; empty: any
  std::string walltime = "01:00:00";
  std::string account;  // empty: the line is left out
  std::string queue;    // Slurm partition, PBS queue, Kubernetes namespace
  std::string job_name = "orthant";
  std::string image = "orthant:latest";   // Kubernetes
  std::string orthant = "orthant";        // the launcher, as found on the nodes
  std::vector<std::string> launch_flags;  // passed on to `orthant launch`, e.g. --log-dir logs
  int port = 29400;
  bool makes_token = false;  // the job makes its own token: a fresh one every time it runs
};

// `kind` is slurm, pbs or k8s; ConfigError with the nearest valid one otherwise, or when the options make no sense.
// Local.
std::string job_script(const std::string& kind, const ScriptOptions& options);

using orthant::shell_quote;

}  // namespace orthant::launch
