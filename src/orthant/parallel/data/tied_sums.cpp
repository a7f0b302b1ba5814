#include "orthant/parallel/data/tied_sums.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

namespace orthant {
namespace {

std::string group_name(const std::vector<int>& owners) {
  return fmt::format("stages at pp {}", fmt::join(owners, "+"));
}

}  // namespace

std::vector<comm::SubgroupRequest> tied_groups(const GraphSpec& graph, const Mesh& mesh,
                                               const std::vector<int>& unit_ranks) {
  std::vector<comm::SubgroupRequest> requests;
  for (const auto& owners : tied_owner_sets(graph, unit_ranks)) {
    comm::SubgroupRequest request{.name = group_name(owners), .members = {}};
    for (const auto& ranks : mesh.groups(Axis::pp)) {
      auto& members = request.members.emplace_back();
      for (const int pp : owners) members.push_back(ranks[static_cast<std::size_t>(pp)]);
    }
    requests.push_back(std::move(request));
  }
  return requests;
}

TiedSums::TiedSums(const std::vector<std::unique_ptr<FlatParameters>>& buffers, const UnitBuffers& units,
                   const comm::Communicator* communicator, const std::vector<bool>& skipped)
    : buffers_(buffers) {
  if (communicator == nullptr) return;
  std::map<std::vector<int>, std::vector<int>> by_owners;
  for (int b = 0; b < static_cast<int>(units.all.size()); ++b) {
    const auto place = static_cast<std::size_t>(b);
    if (!units[b].trainable || units.pp_owners[place].size() == 1 || skipped[place]) continue;
    by_owners[units.pp_owners[place]].push_back(b);
    shared_.push_back(b);
  }
  for (auto& [owners, shared] : by_owners) {
    owners_.push_back({communicator->subgroup(group_name(owners)), std::move(shared)});
  }
}

bool TiedSums::is_shared(int buffer) const {
  return std::ranges::binary_search(shared_, buffer);
}

void TiedSums::run() {
  std::vector<comm::Work> under_way;
  for (auto& owners : owners_) {
    std::vector<at::Tensor> gradients;
    for (const int b : owners.buffers) gradients.push_back(buffers_[static_cast<std::size_t>(b)]->owned_gradient());
    under_way.push_back(owners.group.all_reduce(gradients));
  }
  for (auto& work : under_way) work.wait();
}

}  // namespace orthant
