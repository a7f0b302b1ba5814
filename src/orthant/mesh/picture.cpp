#include "orthant/mesh/picture.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "orthant/mesh/fields.h"
#include "orthant/mesh/hosts.h"
#include "orthant/mesh/traffic.h"

namespace orthant {
namespace {

constexpr std::size_t kLineWidth = 110;

// How much is shown of a mesh too large to be shown whole.
constexpr std::size_t kGroupsShown = 4;
constexpr std::size_t kMembersShown = 8;

std::string plural(std::size_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

// "[0, 4, 8, 12]"; beyond `members` of them "[0, 4, 8, ..., 60]".
std::string group_text(const RankList& group, std::size_t members) {
  if (group.size() <= members) return fmt::format("[{}]", fmt::join(group, ", "));
  return fmt::format("[{}, ..., {}]", fmt::join(group.begin(), group.begin() + 3, ", "), group.back());
}

// Puts pieces side by side on indented lines; a piece longer than a line is broken at its blanks.
std::string wrapped(const std::vector<std::string>& pieces) {
  const std::string indent = "   ";
  std::string text;
  std::string line = indent;
  const auto add = [&](std::string_view word) {
    if (line.size() > indent.size() && line.size() + 1 + word.size() > kLineWidth) {
      text += line + "\n";
      line = indent;
    }
    line += fmt::format(" {}", word);
  };
  for (const std::string& piece : pieces) {
    if (piece.size() + indent.size() < kLineWidth) {
      add(piece);
    } else {
      for (std::string_view word : split_fields(piece, ' ')) add(word);
    }
  }
  return text + line + "\n";
}

nlohmann::ordered_json rank_or_null(std::optional<int> rank) {
  return rank ? nlohmann::ordered_json(*rank) : nlohmann::ordered_json(nullptr);
}

nlohmann::ordered_json rank_json(const Mesh& mesh, int rank, int ranks_per_host) {
  nlohmann::ordered_json coordinate;
  const Coordinate place = mesh.coordinate(rank);
  for (Axis axis : kMeshAxes) coordinate[std::string(axis_name(axis))] = place[axis];
  if (mesh.degree(Axis::ep) > 1) coordinate["ep"] = mesh.expert_coordinate(rank).ep;
  return {{"rank", rank},
          {"host", host_of(rank, ranks_per_host)},
          {"coordinate", coordinate},
          {"pp_previous", rank_or_null(mesh.neighbour(rank, Axis::pp, -1))},
          {"pp_next", rank_or_null(mesh.neighbour(rank, Axis::pp, +1))}};
}

nlohmann::ordered_json traffic_json(const Traffic& row) {
  return {{"axis", row.axis},
          {"pattern", row.pattern},
          {"payload", row.payload},
          {"groups", row.num_groups},
          {"group_size", row.group_size},
          {"frequency", row.frequency},
          {"data_size", row.data_size},
          {"bandwidth", bandwidth_name(row.bandwidth)},
          {"crosses_hosts", row.crosses_hosts}};
}

}  // namespace

std::vector<NamedGroups> named_groups(const Mesh& mesh) {
  const AxisSet active = mesh.active_axes();
  std::vector<AxisSet> sets(active.begin(), active.end());
  for (AxisSet combined : {AxisSet{Axis::dp, Axis::fsdp}, AxisSet{Axis::dp, Axis::fsdp, Axis::cp}}) {
    combined = combined & active;
    if (combined.size() > 1 && std::ranges::find(sets, combined) == sets.end()) sets.push_back(combined);
  }
  std::vector<NamedGroups> all;
  all.reserve(sets.size() + 1);
  for (AxisSet set : sets) all.push_back({set.name(), mesh.groups(set)});
  if (mesh.degree(Axis::ep) > 1 && mesh.num_expert_replicas() > 1) all.push_back({"edp", mesh.expert_replica_groups()});
  return all;
}

std::string groups_text(const Mesh& mesh) {
  const bool whole = mesh.world_size() <= kRanksShownWhole;
  std::string text;
  for (const auto& [name, groups] : named_groups(mesh)) {
    text += fmt::format("  {}: {} of {}\n", name, plural(groups.size(), "group"), groups.front().size());
    std::vector<std::string> pieces;
    for (std::size_t i = 0; i < (whole ? groups.size() : std::min(groups.size(), kGroupsShown)); ++i) {
      pieces.push_back(group_text(groups[i], whole ? groups[i].size() : kMembersShown));
    }
    if (pieces.size() < groups.size()) pieces.push_back(fmt::format("... {} more", groups.size() - pieces.size()));
    text += wrapped(pieces);
  }
  return text.empty() ? "  none: one rank has nobody to talk to\n" : text;
}

std::string traffic_text(const Mesh& mesh, int ranks_per_host) {
  std::string text;
  std::string advice;
  for (const Traffic& row : traffic(mesh, ranks_per_host)) {
    text += fmt::format("  {:<4}  {} of {}, {} hosts, {} bandwidth\n        {} of {}, {}; each {}\n", row.axis,
                        plural(row.num_groups, "group"), row.group_size, row.crosses_hosts ? "across" : "inside",
                        bandwidth_name(row.bandwidth), row.pattern, row.payload, row.frequency, row.data_size);
    if (!row.crosses_hosts || row.bandwidth != BandwidthNeed::high) continue;
    advice +=
        fmt::format("  note: {} needs fast links, but its groups of {} cross hosts of {}: {}\n", row.axis,
                    row.group_size, ranks_per_host,
                    row.group_size > ranks_per_host ? fmt::format("lower {} to at most {}", row.axis, ranks_per_host)
                                                    : "choose degrees and an order that keep each group on one host");
  }
  return text.empty() ? "  nothing: one rank has nobody to talk to\n" : text + advice;
}

std::string ranks_text(const Mesh& mesh, int ranks_per_host) {
  const int hosts = num_hosts(mesh.world_size(), ranks_per_host);
  return fmt::format("mesh {}: {} on {} of up to {}, order {} (outermost first)\n", mesh.to_string(),
                     plural(mesh.world_size(), "rank"), plural(hosts, "host"), ranks_per_host,
                     order_text(mesh.order())) +
         "\nranks, with | where the next host begins\n" + grid_text(mesh, ranks_per_host) + "\ngroups\n" +
         groups_text(mesh);
}

std::string mesh_text(const Mesh& mesh, int ranks_per_host) {
  return ranks_text(mesh, ranks_per_host) + "\nwhat travels\n" + traffic_text(mesh, ranks_per_host);
}

nlohmann::ordered_json mesh_json(const Mesh& mesh, int ranks_per_host) {
  nlohmann::ordered_json json;
  json["world_size"] = mesh.world_size();
  for (Axis axis : mesh.order()) json["order"].push_back(axis_name(axis));
  for (Axis axis : kAxes) json["degrees"][std::string(axis_name(axis))] = mesh.degree(axis);
  json["ranks_per_host"] = ranks_per_host;
  json["num_hosts"] = num_hosts(mesh.world_size(), ranks_per_host);
  for (int rank = 0; rank < mesh.world_size(); ++rank) json["ranks"].push_back(rank_json(mesh, rank, ranks_per_host));
  json["groups"] = nlohmann::ordered_json::object();
  for (const auto& [name, groups] : named_groups(mesh)) json["groups"][name] = groups;
  json["traffic"] = nlohmann::ordered_json::array();
  for (const Traffic& row : traffic(mesh, ranks_per_host)) json["traffic"].push_back(traffic_json(row));
  return json;
}

}  // namespace orthant
