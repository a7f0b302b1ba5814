#include "orthant/parallel/data/tied_sums.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

namespace orthant {
namespace {

std::string group_name(const std::vector<int>& users) {
  return fmt::format("stages at pp {}", fmt::join(users, "+"));
}

}  // namespace

std::vector<comm::SubgroupRequest> tied_groups(const GraphSpec& graph, const Mesh& mesh,
                                               const std::vector<int>& unit_pp_coordinates) {
  std::vector<comm::SubgroupRequest> requests;
  for (const auto& users : tied_user_sets(graph, unit_pp_coordinates)) {
    comm::SubgroupRequest request{.name = group_name(users), .members = {}};
    for (const auto& ranks : mesh.groups(Axis::pp)) {
      auto& members = request.members.emplace_back();
      for (const int pp : users) members.push_back(ranks[static_cast<std::size_t>(pp)]);
    }
    requests.push_back(std::move(request));
  }
  return requests;
}

TiedSums::TiedSums(const std::vector<std::unique_ptr<FlatParameters>>& buffers, const UnitBuffers& units,
                   const comm::Communicator* communicator)
    : buffers_(buffers) {
  if (communicator == nullptr) return;
  std::map<std::vector<int>, std::vector<int>> by_users;
  for (int b = 0; b < static_cast<int>(units.all.size()); ++b) {
    const auto place = static_cast<std::size_t>(b);
    if (!units[b].trainable || units.pp_users[place].size() == 1) continue;
    by_users[units.pp_users[place]].push_back(b);
    summed_.push_back(b);
  }
  for (auto& [users, shared] : by_users) {
    users_.push_back({communicator->subgroup(group_name(users)), std::move(shared)});
  }
}

bool TiedSums::sums(int buffer) const {
  return std::ranges::binary_search(summed_, buffer);
}

void TiedSums::run() {
  std::vector<comm::Work> under_way;
  for (auto& stages : users_) {
    std::vector<at::Tensor> gradients;
    std::vector<Subject> subjects;
    for (const int b : stages.buffers) {
      const auto& buffer = *buffers_[static_cast<std::size_t>(b)];
      gradients.push_back(buffer.owned_gradient());
      subjects.push_back(buffer.subject());
    }
    under_way.push_back(stages.group.all_reduce(gradients, comm::Reduction::sum, std::move(subjects)));
  }
  for (auto& work : under_way) work.wait();
}

}  // namespace orthant
