#include "orthant/train/bad_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

namespace orthant {
namespace {

BadStep bad_step(const GraphSpec& graph, int rank, int unit, const std::string& parameter, const std::string& what) {
  const auto& name = graph.units[static_cast<std::size_t>(unit)].name;
  return {.rank = rank,
          .unit = name,
          .parameter = parameter,
          .text = fmt::format("rank {}, unit {}: {} not finite", rank, name, what)};
}

// The lowest rank of which that is so; -1: of none.
template <typename Has>
int lowest_rank(const std::vector<RankFindings>& ranks, Has has) {
  const auto found = std::ranges::find_if(ranks, has);
  return found == ranks.end() ? -1 : static_cast<int>(found - ranks.begin());
}

BadStep blame_output(const GraphSpec& graph, const std::vector<RankFindings>& ranks, int unit) {
  const int rank = lowest_rank(
      ranks, [&](const RankFindings& one) { return std::ranges::find(one.outputs, unit) != one.outputs.end(); });
  const bool loss = graph.units[static_cast<std::size_t>(unit)].is_loss;
  return bad_step(graph, rank, unit, "", loss ? "its loss is" : "its output is");
}

BadStep blame_backward(const GraphSpec& graph, const std::vector<RankFindings>& ranks, int unit) {
  const int handed = lowest_rank(ranks, [&](const RankFindings& one) {
    return std::ranges::find(one.input_gradients, unit) != one.input_gradients.end();
  });
  if (handed >= 0) return bad_step(graph, handed, unit, "", "the gradients of its inputs are");
  std::set<std::string_view> summed;
  for (const auto& one : ranks) summed.insert(one.sums.begin(), one.sums.end());
  const auto of_unit = [&](const RankFindings& one) {
    return std::ranges::find(one.uses, unit, &RankFindings::Use::unit);
  };
  const int rank = lowest_rank(ranks, [&](const RankFindings& one) { return of_unit(one) != one.uses.end(); });
  const auto& names = of_unit(ranks[static_cast<std::size_t>(rank)])->parameters;
  const auto name = std::ranges::find_if(names, [&](const auto& one) { return summed.contains(one); });
  if (name == names.end()) return bad_step(graph, rank, unit, "", "the gradients of its parameters are");
  return bad_step(graph, rank, unit, *name, fmt::format("the gradient of {} is", *name));
}

}  // namespace

std::string RankFindings::to_text() const {
  using nlohmann::json;
  auto told = json{{"outputs", outputs}, {"input_gradients", input_gradients}, {"sums", sums}};
  told["parameters"] = json::array();
  told["uses"] = json::array();
  for (const auto& one : parameters) told["parameters"].push_back({one.unit, one.parameter});
  for (const auto& use : uses) told["uses"].push_back({use.unit, use.parameters});
  return told.dump(-1, ' ', false, json::error_handler_t::replace);
}

RankFindings RankFindings::from_text(const std::string& text) {
  const auto told = nlohmann::json::parse(text);
  RankFindings found;
  found.outputs = told.at("outputs").get<std::vector<int>>();
  found.input_gradients = told.at("input_gradients").get<std::vector<int>>();
  found.sums = told.at("sums").get<std::vector<std::string>>();
  for (const auto& one : told.at("parameters")) {
    found.parameters.push_back({one[0].get<int>(), one[1].get<std::string>()});
  }
  for (const auto& use : told.at("uses")) {
    found.uses.push_back({use[0].get<int>(), use[1].get<std::vector<std::string>>()});
  }
  return found;
}

BadStep blame(const GraphSpec& graph, const std::vector<RankFindings>& ranks) {
  constexpr int kNone = std::numeric_limits<int>::max();
  int first_output = kNone;
  int last_gradient = -1;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const auto& found = ranks[rank];
    if (!found.parameters.empty()) {
      const auto& [unit, parameter] = found.parameters.front();
      auto bad = bad_step(graph, static_cast<int>(rank), unit, parameter, fmt::format("parameter {} is", parameter));
      bad.lasting = true;
      return bad;
    }
    if (!found.outputs.empty()) first_output = std::min(first_output, found.outputs.front());
    if (!found.input_gradients.empty()) last_gradient = std::max(last_gradient, found.input_gradients.back());
    if (!found.uses.empty()) last_gradient = std::max(last_gradient, found.uses.back().unit);
  }
  if (first_output != kNone) return blame_output(graph, ranks, first_output);
  if (last_gradient >= 0) return blame_backward(graph, ranks, last_gradient);
  const int rank = lowest_rank(ranks, [](const RankFindings& one) { return !one.sums.empty(); });
  if (rank >= 0) {
    const auto& parameter = ranks[static_cast<std::size_t>(rank)].sums.front();
    return bad_step(graph, rank, graph.owner(parameter), parameter,
                    fmt::format("the sum over ranks of the gradient of {} is", parameter));
  }
  return {.rank = 0, .unit = {}, .parameter = {}, .text = "all that ranks hold is finite", .lasting = false};
}

}  // namespace orthant
