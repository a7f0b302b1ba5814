#include "orthant/layout/flat_unit.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "orthant/base/error.h"
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
    auto same = std::ranges::find_if(
        all, [&](const Members& one) { return one.users == users && one.trainable == parameter.trainable; });
    if (same == all.end()) same = all.insert(all.end(), {.users = users, .trainable = parameter.trainable});
    same->parameters.push_back(&parameter);
  }
  std::vector<Members> ordered;
  for (int place = 0; place < 3; ++place) {
    std::ranges::copy_if(all, std::back_inserter(ordered), [&](const Members& one) { return one.place() == place; });
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
             int tp_degree, int tp_coordinate) {
  std::int64_t end = 0;
  for (const ParameterSpec* parameter : buffer.trainable ? decayed_first(parameters) : parameters) {
    LocalParameter local = local_parameter(*parameter, tp_degree, tp_coordinate);
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
    if (!members.trainable) name += ".frozen";
    FlatBuffer buffer{.name = std::move(name),
                      .trainable = members.trainable,
                      .owner = unit_index,
                      .users = std::move(members.users),
                      .entries = {},
                      .decayed = 0,
                      .size = 0,
                      .num_shards = mesh.degree(Axis::fsdp)};
    lay_out(buffer, unit, members.parameters, mesh.degree(Axis::tp), coordinate[Axis::tp]);
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
