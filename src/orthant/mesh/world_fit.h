// Fitting a mesh to a number of ranks: the degree that fills the world, and the mesh nearest to one that does not fit.
// What the errors of Mesh offer as a remedy comes from here.
#pragma once

#include <functional>
#include <optional>
#include <string_view>

#include "orthant/mesh/mesh.h"

namespace orthant {

// ConfigError unless 1 <= world_size <= Mesh::kMaxRanks.
void check_world_size(int world_size);

// ConfigError that names degrees which fit when `ep` does not divide the ranks of a stage. `mesh` is shown in it.
void check_expert_degree(int stage_size, int ep, std::string_view mesh);

// The degree of `axis` with which the other degrees fill the world. ConfigError when there is none.
int inferred_degree(const Degrees& degrees, Axis axis, int world_size);

// A mesh of exactly `world_size` ranks with the same order. Only the degree of dp changes when that can do it (of fsdp
// when the mesh has fsdp and no dp), then only the other of the two; else the one whose degrees, as factors, are
// nearest over all, where changing dp costs least and tp most. An ep that no longer divides a stage falls to the next
// divisor.
Mesh nearest_mesh(const Mesh& mesh, int world_size);

// That mesh or, where somebody does not accept it, the next nearest of the 64 nearest; nothing when none is accepted.
std::optional<Mesh> nearest_mesh_that(const Mesh& mesh, int world_size,
                                      const std::function<bool(const Mesh&)>& accepts);

}  // namespace orthant
