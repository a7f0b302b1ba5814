#include "orthant/parallel/data/parameter_store.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>

#include "orthant/base/error.h"

namespace orthant {

nn::Parameter* UnitParameters::find(std::string_view relative) const {
  auto name = fmt::format("{}.{}", spec_->name, relative);
  const auto own = std::ranges::any_of(spec_->parameters, [&](const auto& p) { return p.name == name; });
  if (!own) {
    const auto suffix = fmt::format(".{}", relative);
    const auto found = std::ranges::find_if(spec_->borrowed, [&](const auto& n) { return n.ends_with(suffix); });
    if (found == spec_->borrowed.end()) return nullptr;
    name = *found;
  }
  return &named(name);
}

nn::Parameter& UnitParameters::operator[](std::string_view relative) const {
  auto* found = find(relative);
  if (found == nullptr) throw InternalError(fmt::format("unit {} has no parameter {}", spec_->name, relative));
  return *found;
}

nn::Parameter& UnitParameters::named(std::string_view full) const {
  for (auto* buffer : buffers_) {
    if (auto* found = buffer->find(full, unit_)) return *found;
  }
  throw InternalError(fmt::format("unit {} does not hold the parameter {}", spec_->name, full));
}

void UnitParameters::set_initial(std::string_view full, const at::Tensor& values) const {
  for (auto* buffer : buffers_) {
    if (const auto* entry = buffer->layout().find(full)) buffer->master_view(*entry).copy_(values);
  }
}

nn::Parameter& UnitParameters::joined(std::string_view label) const {
  for (auto* buffer : buffers_) {
    if (auto* found = buffer->joined(label, unit_)) return *found;
  }
  throw InternalError(fmt::format("unit {} has no parameters joined as {}", spec_->name, label));
}

ParameterStore::ParameterStore(const GraphSpec& graph, const Mesh& mesh, int rank, const Precision& precision,
                               const MakeBuffer& make)
    : graph_(graph) {
  const auto coordinate = mesh.coordinate(rank);
  for (int u = 0; u < static_cast<int>(graph.units.size()); ++u) {
    for (auto& layout : flat_buffers(graph, u, mesh, coordinate)) {
      buffers_.push_back(std::make_unique<FlatParameters>(graph, std::move(layout), precision, make));
      owners_.push_back(u);
    }
  }
}

void ParameterStore::initialise(std::uint64_t seed, const DrawnParameters& drawn) {
  for (const auto& buffer : buffers_) buffer->initialise(seed, drawn);
}

UnitParameters ParameterStore::unit(int unit) {
  std::vector<FlatParameters*> used;
  for (const auto& buffer : buffers_) {
    if (std::ranges::find(buffer->layout().users, unit) != buffer->layout().users.end()) used.push_back(buffer.get());
  }
  return {graph_.units[static_cast<std::size_t>(unit)], unit, std::move(used)};
}

void ParameterStore::begin_step(const std::vector<bool>& zero_gradients) {
  for (const auto& buffer : buffers_) {
    for (const int user : buffer->layout().users) {
      buffer->begin_step(user, zero_gradients[static_cast<std::size_t>(user)]);
    }
  }
}

std::vector<std::string> ParameterStore::complete_gradients() {
  std::vector<std::string> unused;
  for (const auto& buffer : buffers_) std::ranges::copy(buffer->complete_gradients(), std::back_inserter(unused));
  return unused;
}

void ParameterStore::publish() {
  for (const auto& buffer : buffers_) buffer->publish();
}

}  // namespace orthant
