#include "orthant/parallel/data/tensor_partials.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <set>

#include "orthant/base/error.h"
#include "orthant/layout/local_parameter.h"

namespace orthant {
namespace {

std::string group_name(std::int64_t holders) {
  return fmt::format("tp copies of {}", holders);
}

}  // namespace

std::vector<comm::SubgroupRequest> copy_groups(const GraphSpec& graph, const Mesh& mesh) {
  const int degree = mesh.degree(Axis::tp);
  std::set<std::int64_t> sizes;
  for (const auto& unit : graph.units) {
    for (const auto& parameter : unit.parameters) {
      for (const Range& holders : copy_holders(parameter, degree, 0)) {
        if (holders.size() > 1 && holders.size() < degree && parameter.trainable) sizes.insert(holders.size());
      }
    }
  }
  std::vector<comm::SubgroupRequest> requests;
  for (const auto size : sizes) {
    comm::SubgroupRequest request{.name = group_name(size), .members = {}};
    for (const auto& ranks : mesh.groups(Axis::tp)) {
      for (auto first = ranks.begin(); first != ranks.end(); first += size) {
        request.members.emplace_back(first, first + size);
      }
    }
    requests.push_back(std::move(request));
  }
  return requests;
}

TensorPartials::TensorPartials(const std::vector<std::unique_ptr<FlatParameters>>& buffers, const UnitBuffers& units,
                               const GraphSpec& graph, const Mesh& mesh, const comm::Communicator* communicator)
    : buffers_(buffers), unit_sums_(graph.units.size()) {
  if (communicator == nullptr || mesh.degree(Axis::tp) == 1) return;
  for (std::size_t u = 0; u < graph.units.size(); ++u) {
    for (const int b : units.held[u]) {
      for (const auto& entry : buffers_[static_cast<std::size_t>(b)]->layout().entries) {
        add_entry(static_cast<int>(u), b, entry, graph.parameter(entry.parameter), mesh, *communicator);
      }
    }
  }
}

void TensorPartials::add_entry(int unit, int buffer, const FlatEntry& entry, const ParameterSpec& spec,
                               const Mesh& mesh, const comm::Communicator& communicator) {
  const std::int64_t degree = mesh.degree(Axis::tp);
  const auto add = [&](std::int64_t holders, Range range) {
    auto& sums = unit_sums_[static_cast<std::size_t>(unit)][holders];
    if (sums.parts.empty()) {
      sums.group = holders == degree ? communicator.group(Axis::tp, comm::Purpose::gradients)
                                     : communicator.subgroup(group_name(holders));
    }
    const auto unit_name = buffers_[static_cast<std::size_t>(buffer)]->subject().front();
    sums.parts.push_back({buffer, range, {unit_name, entry.parameter}});
  };
  if (spec.partial_under_sequence_parallel) add(degree, entry.range());
  if (!spec.tp) return;
  std::int64_t begin = entry.offset;
  for (std::size_t i = 0; i < entry.boxes.size(); ++i) {
    const Range range{begin, begin + num_elements(entry.boxes[i].lengths)};
    begin = range.end;
    if (entry.holders[i].size() == 1) continue;
    if (entry.dim != 0 && entry.boxes.size() > 1) {
      throw InternalError(fmt::format("{}: copies of blocks along dim {} lie in no one piece", spec.name, entry.dim));
    }
    add(entry.holders[i].size(), range);
  }
}

void TensorPartials::start(int unit) {
  for (auto& [holders, sums] : unit_sums_[static_cast<std::size_t>(unit)]) {
    std::vector<at::Tensor> parts;
    std::vector<Subject> subjects;
    for (const auto& part : sums.parts) {
      const auto gradient = buffers_[static_cast<std::size_t>(part.buffer)]->gradient();
      parts.push_back(gradient.narrow(0, part.range.begin, part.range.size()));
      subjects.emplace_back(part.names);
    }
    under_way_.push_back(sums.group.all_reduce(parts, comm::Reduction::sum, std::move(subjects)));
  }
}

void TensorPartials::finish() {
  for (auto& work : under_way_) work.wait();
  under_way_.clear();
}

}  // namespace orthant
