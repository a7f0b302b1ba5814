#include "orthant/layout/flat_unit.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "orthant/base/error.h"
#include "orthant/layout/expert_view.h"
#include "orthant/layout/local_parameter.h"

namespace orthant {
namespace {

std::int64_t round_up(std::int64_t n, std::int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

// Parameters that share a buffer.
struct Members {
  std::vector<int> users;
  bool trainable = true;
  bool experts = false;
  std::vector<const ParameterSpec*> parameters = {};

  // Own trainable ones, own frozen ones, tied ones.
  int place() const { return users.size() > 1 ? 2 : (trainable ? 0 : 1); }
};

std::vector<Members> members_of(const GraphSpec& graph, int unit_index) {
  std::map<std::string_view, std::vector<int>> borrowers;
  for (std::size_t u = 0; u < graph.units.size(); ++u) {
    for (const auto& name : graph.units[u].borrowed) borrowers[name].push_back(static_cast<int>(u));
  }
  std::vector<Members> all;
  for (const ParameterSpec& parameter : graph.units[static_cast<std::size_t>(unit_index)].parameters) {
    std::vector<int> users = {unit_index};
    if (const auto found = borrowers.find(parameter.name); found != borrowers.end()) {
      users.insert(users.end(), found->second.begin(), found->second.end());
    }
    const bool experts = parameter.expert.has_value();
    auto same = std::ranges::find_if(all, [&](const Members& one) {
      return one.users == users && one.trainable == parameter.trainable && one.experts == experts;
    });
    if (same == all.end()) {
      same = all.insert(all.end(), {.users = users, .trainable = parameter.trainable, .experts = experts});
    }
    same->parameters.push_back(&parameter);
  }
  std::vector<Members> ordered;
  for (int place = 0; place < 3; ++place) {
    for (const bool experts : {false, true}) {
      std::ranges::copy_if(all, std::back_inserter(ordered),
                           [&](const Members& one) { return one.place() == place && one.experts == experts; });
    }
  }
  return ordered;
}

// A label that is met again after its run has ended would lie in two places.
void check_joined(const std::string& unit, const std::vector<FlatEntry>& entries, const FlatEntry& next) {
  for (const FlatEntry& entry : entries) {
    if (next.joined.empty() || entry.joined != next.joined) continue;
    throw ConfigError(fmt::format("unit {}: parameters {} and {} are joined as \"{}\" but would not lie side by side",
                                  unit, entry.parameter, next.parameter, next.joined),
                      {.remedy = "list joined parameters one after another, all decayed or none, or join them under "
                                 "another label"});
  }
}

// The tp ranks that share each expert of a buffer.
int expert_tp_of(const std::vector<const ParameterSpec*>& parameters, const Mesh& mesh) {
  return parameters.front()->tp ? mesh.degree(Axis::tp) : 1;
}

// Decayed ones first, otherwise as in the spec.
std::vector<const ParameterSpec*> decayed_first(const std::vector<const ParameterSpec*>& parameters) {
  std::vector<const ParameterSpec*> ordered;
  for (const bool decay : {true, false}) {
    std::ranges::copy_if(parameters, std::back_inserter(ordered),
                         [&](const ParameterSpec* parameter) { return parameter->decay == decay; });
  }
  return ordered;
}

void lay_out(FlatBuffer& buffer, const std::string& unit, const std::vector<const ParameterSpec*>& parameters,
             const Mesh& mesh, const Coordinate& coordinate) {
  const int tp_degree = mesh.degree(Axis::tp);
  const int tp_coordinate = coordinate[Axis::tp];
  std::int64_t end = 0;
  for (const ParameterSpec* parameter : buffer.trainable ? decayed_first(parameters) : parameters) {
    if (buffer.expert_tp > 0 && !holds_expert(*parameter, tp_degree, tp_coordinate, buffer.expert_tp)) continue;
    LocalParameter local = buffer.expert_tp > 0 ? local_expert(*parameter, tp_coordinate, buffer.expert_tp)
                                                : local_parameter(*parameter, tp_degree, tp_coordinate);
    FlatEntry entry{.parameter = parameter->name,
                    .shape = std::move(local.shape),
                    .offset = 0,
                    .elements = 0,
                    .decay = parameter->decay,
                    .joined = parameter->joined,
                    .dim = local.dim,
                    .boxes = std::move(local.boxes),
                    .holders = std::move(local.holders)};
    const bool same_class =
        !buffer.entries.empty() && (!buffer.trainable || buffer.entries.back().decay == entry.decay);
    const bool continues = same_class && !entry.joined.empty() && buffer.entries.back().joined == entry.joined;
    if (!continues) {
      check_joined(unit, buffer.entries, entry);
      end = round_up(end, kFlatAlignment);
    }
    entry.offset = end;
    entry.elements = num_elements(entry.shape);
    end += entry.elements;
    if (buffer.trainable && entry.decay) buffer.decayed = round_up(end, kFlatAlignment);
    buffer.entries.push_back(std::move(entry));
  }
  buffer.size = round_up(end, kFlatAlignment * buffer.num_shards);
}

}  // namespace

Range FlatBuffer::shard(int fsdp_coordinate) const {
  if (fsdp_coordinate < 0 || fsdp_coordinate >= num_shards) {
    throw InternalError(fmt::format("buffer {} has {} shards and none of index {}", name, num_shards, fsdp_coordinate));
  }
  const std::int64_t length = size / num_shards;
  return {fsdp_coordinate * length, (fsdp_coordinate + 1) * length};
}

const FlatEntry* FlatBuffer::find(std::string_view parameter) const {
  const auto found = std::ranges::find(entries, parameter, &FlatEntry::parameter);
  return found == entries.end() ? nullptr : &*found;
}

const FlatEntry& FlatBuffer::entry(std::string_view parameter) const {
  if (const FlatEntry* found = find(parameter)) return *found;
  throw InternalError(fmt::format("buffer {} holds no parameter {}", name, parameter));
}

std::vector<FlatBuffer> flat_buffers(const GraphSpec& graph, int unit_index, const Mesh& mesh,
                                     const Coordinate& coordinate) {
  if (unit_index < 0 || unit_index >= static_cast<int>(graph.units.size())) {
    throw InternalError(
        fmt::format("graph {} has {} units and none of index {}", graph.name, graph.units.size(), unit_index));
  }
  const std::string& unit = graph.units[static_cast<std::size_t>(unit_index)].name;
  std::vector<FlatBuffer> buffers;
  std::vector<std::vector<int>> tied_sets;
  for (Members& members : members_of(graph, unit_index)) {
    std::string name = unit;
    if (members.users.size() > 1) {
      auto set = std::ranges::find(tied_sets, members.users);
      if (set == tied_sets.end()) set = tied_sets.insert(set, members.users);
      const auto number = set - tied_sets.begin() + 1;
      name += number == 1 ? ".tied" : fmt::format(".tied.{}", number);
    }
    if (members.experts) name += ".experts";
    if (!members.trainable) name += ".frozen";
    const int expert_tp = members.experts ? expert_tp_of(members.parameters, mesh) : 0;
    const Mesh lies_on = expert_tp > 0 ? expert_mesh(mesh, expert_tp) : mesh;
    FlatBuffer buffer{.name = std::move(name),
                      .trainable = members.trainable,
                      .owner = unit_index,
                      .users = std::move(members.users),
                      .entries = {},
                      .decayed = 0,
                      .size = 0,
                      .num_shards = lies_on.degree(Axis::fsdp),
                      .expert_tp = expert_tp};
    lay_out(buffer, unit, members.parameters, lies_on, lies_on.coordinate(mesh.rank_of(coordinate)));
    buffers.push_back(std::move(buffer));
  }
  return buffers;
}

JoinedRun joined_entry(const FlatBuffer& buffer, std::string_view label) {
  JoinedRun run;
  for (std::size_t i = 0; i < buffer.entries.size(); ++i) {
    const FlatEntry& entry = buffer.entries[i];
    if (label.empty() || entry.joined != label) continue;
    if (run.num_entries == 0) run = {.offset = entry.offset, .elements = 0, .first_entry = i, .num_entries = 0};
    run.elements = entry.offset + entry.elements - run.offset;
    ++run.num_entries;
  }
  if (run.num_entries == 0) {
    throw InternalError(fmt::format("buffer {} holds no parameters joined as \"{}\"", buffer.name, label));
  }
  return run;
}

}  // namespace orthant
