// What this machine has, as `orthant doctor` tells it, and what is wrong with it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "orthant/launch/job.h"

namespace orthant::cli {

struct Problem {
  std::string text;
  std::string remedy;
};

struct Machine {
  std::string torch_version;
  std::vector<std::string> backends;
  int num_gpus = 0;
  bool built_with_cuda = false;
  int num_cores = 0;  // this process may use
  std::string cpu_capability;
  int64_t memory_bytes = 0;
  int64_t available_memory_bytes = 0;
  int64_t shared_memory_bytes = 0;  // free in /dev/shm
  int64_t max_open_files = 0;
  std::string launcher;  // seen in the environment; empty: none
  std::vector<Problem> problems;
};

// Local; starts nothing and initialises no device.
Machine look_at_machine(const launch::Environment& environment);

// That this process may use. Local.
int usable_cores();

// All of this host. Local.
int64_t host_memory_bytes();

nlohmann::ordered_json to_json(const Machine& machine);
std::string to_text(const Machine& machine);

}  // namespace orthant::cli
