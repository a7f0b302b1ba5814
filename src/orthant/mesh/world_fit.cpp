#include "orthant/mesh/world_fit.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "orthant/base/error.h"

namespace orthant {
namespace {

std::vector<int> divisors(int number) {
  std::vector<int> small;
  std::vector<int> large;
  for (int i = 1; i * i <= number; ++i) {
    if (number % i != 0) continue;
    small.push_back(i);
    if (i != number / i) large.push_back(number / i);
  }
  small.insert(small.end(), large.rbegin(), large.rend());
  return small;
}

int largest_divisor_up_to(int number, int bound) {
  int best = 1;
  for (int divisor : divisors(number)) {
    if (divisor <= bound) best = divisor;
  }
  return best;
}

// How much a change of each axis weighs: moving data between replicas costs least, splitting matrices otherwise most.
double weight(Axis axis) {
  switch (axis) {
    case Axis::dp:
      return 1.0;
    case Axis::fsdp:
      return 1.01;
    case Axis::pp:
      return 1.1;
    case Axis::cp:
      return 1.15;
    default:
      return 1.2;
  }
}

// The ways to write the world as a product over some axes that are nearest to the wanted degrees: so many of them, the
// nearest first.
class NearestFactors {
 public:
  NearestFactors(const Mesh& wanted, int world_size, std::size_t most)
      : wanted_(wanted), most_(most), world_divisors_(divisors(world_size)) {
    for (Axis axis : kMeshAxes) {
      if (wanted.degree(axis) > 1) axes_.push_back(axis);
    }
    if (wanted.degree(Axis::dp) == 1 && wanted.degree(Axis::fsdp) == 1) axes_.push_back(Axis::dp);
    choose(0, world_size, 0.0);
  }

  struct Factors {
    double cost = 0;
    Degrees degrees;
  };
  const std::vector<Factors>& found() const { return found_; }

 private:
  bool is_too_far(double cost) const { return found_.size() == most_ && cost >= found_.back().cost; }

  void add(double cost) {
    if (is_too_far(cost)) return;
    found_.insert(std::ranges::upper_bound(found_, cost, {}, &Factors::cost), Factors{cost, current_});
    if (found_.size() > most_) found_.pop_back();
  }

  void choose(std::size_t place, int left, double cost) {
    if (is_too_far(cost)) return;
    const Axis axis = axes_[place];
    if (place + 1 == axes_.size()) {
      current_[axis] = left;
      add(cost + distance(axis, left));
      return;
    }
    for (int degree : world_divisors_) {
      if (left % degree != 0) continue;
      current_[axis] = degree;
      choose(place + 1, left / degree, cost + distance(axis, degree));
    }
  }

  double distance(Axis axis, int degree) const {
    return weight(axis) * std::abs(std::log2(static_cast<double>(degree) / wanted_.degree(axis)));
  }

  const Mesh& wanted_;
  std::size_t most_;
  std::vector<int> world_divisors_;
  std::vector<Axis> axes_;
  Degrees current_;
  std::vector<Factors> found_;
};

// The degrees that fill the world when only one data axis changes, else the nearest over all axes.
Degrees fitting_degrees(const Mesh& mesh, int world_size) {
  const bool shards_only = mesh.degree(Axis::dp) == 1 && mesh.degree(Axis::fsdp) > 1;
  for (Axis axis : {shards_only ? Axis::fsdp : Axis::dp, shards_only ? Axis::dp : Axis::fsdp}) {
    const int others = mesh.world_size() / mesh.degree(axis);
    if (world_size % others != 0) continue;
    Degrees degrees = mesh.degrees();
    degrees[axis] = world_size / others;
    return degrees;
  }
  return NearestFactors(mesh, world_size, 1).found().front().degrees;
}

// "1, 2, 4, 8": at most eight of them, nearest to `wanted` as factors.
std::string nearest_divisors(int number, int wanted) {
  constexpr std::size_t kShown = 8;
  std::vector<int> all = divisors(number);
  const auto distance = [wanted](int divisor) {
    return std::pair(std::abs(std::log2(static_cast<double>(divisor) / wanted)), divisor);
  };
  std::ranges::sort(all, {}, distance);
  all.resize(std::min(all.size(), kShown));
  std::ranges::sort(all);
  return fmt::format("{}", fmt::join(all, ", "));
}

// The mesh of these degrees with the largest ep up to `ep` that divides a stage.
Mesh with_fitting_experts(Degrees degrees, int ep, std::string_view order) {
  degrees.erase(Axis::ep);
  const Mesh dense(degrees, order);
  degrees[Axis::ep] = largest_divisor_up_to(dense.stage_size(), ep);
  return Mesh(degrees, order);
}

}  // namespace

void check_world_size(int world_size) {
  if (world_size >= 1 && world_size <= Mesh::kMaxRanks) return;
  throw ConfigError(fmt::format("a world of {} ranks: it must have 1 to {}", world_size, Mesh::kMaxRanks),
                    {.remedy = "start at least one rank, and as many as the product of the mesh's degrees"});
}

void check_expert_degree(int stage_size, int ep, std::string_view mesh) {
  if (stage_size % ep == 0) return;
  throw ConfigError(fmt::format("mesh {}: ep={} does not divide the {} rank{} of a pipeline stage", mesh, ep,
                                stage_size, stage_size == 1 ? "" : "s"),
                    {.remedy = stage_size == 1 ? std::string("leave ep out: it splits ranks that other axes provide")
                                               : fmt::format("set ep to one of {}", nearest_divisors(stage_size, ep))});
}

int inferred_degree(const Degrees& degrees, Axis axis, int world_size) {
  if (axis == Axis::ep) {
    throw ConfigError("the degree of ep cannot be inferred: it does not add to the world", {.remedy = "set ep"});
  }
  check_world_size(world_size);
  Degrees others = degrees;
  others.erase(axis);
  others.erase(Axis::ep);
  const Mesh rest(others);
  const int needed = rest.world_size();
  if (world_size % needed == 0) return world_size / needed;
  const int below = world_size / needed * needed;
  throw ConfigError(
      fmt::format("{} cannot be inferred: {} needs {} ranks, which does not divide the world of {}", axis_name(axis),
                  rest.to_string(), needed, world_size),
      {.remedy = fmt::format("start {}{} ranks, or set the mesh to {}", below > 0 ? fmt::format("{} or ", below) : "",
                             below + needed, nearest_mesh(rest, world_size).to_string())});
}

Mesh nearest_mesh(const Mesh& mesh, int world_size) {
  check_world_size(world_size);
  return with_fitting_experts(fitting_degrees(mesh, world_size), mesh.degree(Axis::ep), order_text(mesh.order()));
}

std::optional<Mesh> nearest_mesh_that(const Mesh& mesh, int world_size,
                                      const std::function<bool(const Mesh&)>& accepts) {
  constexpr std::size_t kMostTried = 64;
  auto nearest = nearest_mesh(mesh, world_size);
  if (accepts(nearest)) return nearest;
  const NearestFactors nearest_first(mesh, world_size, kMostTried);
  for (const auto& factors : nearest_first.found()) {
    auto candidate = with_fitting_experts(factors.degrees, mesh.degree(Axis::ep), order_text(mesh.order()));
    if (accepts(candidate)) return candidate;
  }
  return std::nullopt;
}

}  // namespace orthant
