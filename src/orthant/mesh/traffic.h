// What travels on each axis of a mesh, as rows of a table: who talks to whom, how often, how much, and how fast the
// links should be. For people who choose a mesh; exact bytes are priced elsewhere.
#pragma once

#include <string>
#include <vector>

#include "orthant/mesh/mesh.h"

namespace orthant {

// How fast the links of an axis should be for the rest of the job not to wait.
enum class BandwidthNeed { low, medium, high };

std::string_view bandwidth_name(BandwidthNeed need);

struct Traffic {
  std::string axis;       // "tp"; "edp" for expert replicas
  std::string pattern;    // "all-reduce"
  std::string payload;    // what is sent: "gradients"
  std::string frequency;  // "once per step"
  std::string data_size;  // of one call, as "O(...)"
  BandwidthNeed bandwidth = BandwidthNeed::low;
  int num_groups = 0;
  int group_size = 0;
  bool crosses_hosts = false;
};

// One row per axis of degree above 1, from the most to the least demanding: tp, cp, ep, fsdp, pp, dp, edp.
std::vector<Traffic> traffic(const Mesh& mesh, int ranks_per_host);

}  // namespace orthant
