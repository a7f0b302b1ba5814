#include "orthant/parallel/data/parameter_store.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <iterator>

#include "orthant/base/error.h"
#include "orthant/layout/expert_view.h"
#include "orthant/layout/pieces.h"

namespace orthant {
namespace {

const std::string kExpertCopies = "expert copies";

std::string shard_group_name(comm::Purpose purpose) {
  return purpose == comm::Purpose::parameters ? "expert values" : "expert shards";
}

}  // namespace

nn::Parameter* UnitParameters::find(std::string_view relative) const {
  auto name = fmt::format("{}.{}", spec_->name, relative);
  const auto is_parameter = std::ranges::any_of(spec_->parameters, [&](const auto& p) { return p.name == name; });
  if (!is_parameter) {
    const auto suffix = fmt::format(".{}", relative);
    const auto found =
        std::ranges::find_if(spec_->borrowed, [&](const auto& n) { return n == relative || n.ends_with(suffix); });
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
    if (const auto* entry = buffer->layout().find(full)) buffer->assign(*entry, values);
  }
}

nn::Parameter& UnitParameters::joined(std::string_view label) const {
  for (auto* buffer : buffers_) {
    if (auto* found = buffer->joined(label, unit_)) return *found;
  }
  throw InternalError(fmt::format("unit {} has no parameters joined as {}", spec_->name, label));
}

std::vector<comm::GroupRequest> store_groups(const Mesh& mesh, const DataPolicy& policy) {
  const auto effective = effective_policy(policy, mesh);
  std::vector<comm::GroupRequest> groups;
  if (mesh.degree(Axis::tp) > 1) groups.push_back({Axis::tp, comm::Purpose::gradients});
  if (effective.shards_state()) {
    groups.push_back({shard_axes(effective, mesh), comm::Purpose::gradients});
    groups.push_back({shard_axes(effective, mesh), comm::Purpose::parameters});
  }
  if (const auto axes = copy_axes(effective, mesh); !axes.empty()) {
    groups.push_back({axes, comm::Purpose::gradients});
  }
  return groups;
}

std::vector<comm::SubgroupRequest> expert_groups(const GraphSpec& graph, const Mesh& mesh, const DataPolicy& policy) {
  const int shared_by = expert_tp(graph, mesh);
  if (shared_by == 0) return {};
  return expert_groups(mesh, shared_by, policy);
}

std::vector<comm::SubgroupRequest> expert_groups(const Mesh& mesh, int shared_by, const DataPolicy& policy) {
  std::vector<comm::SubgroupRequest> groups;
  const Mesh lies_on = expert_mesh(mesh, shared_by);
  const auto effective = effective_policy(effective_policy(policy, mesh), lies_on);
  const auto request = [&](const std::string& name, AxisSet axes, comm::Purpose purpose) {
    groups.push_back({.name = name, .members = lies_on.groups(axes), .purpose = purpose});
  };
  if (effective.shards_state()) {
    for (const auto purpose : {comm::Purpose::gradients, comm::Purpose::parameters}) {
      request(shard_group_name(purpose), Axis::fsdp, purpose);
    }
  }
  if (const auto axes = copy_axes(effective, lies_on); !axes.empty()) {
    request(kExpertCopies, axes, comm::Purpose::gradients);
  }
  return groups;
}

ParameterStore::ParameterStore(const GraphSpec& graph, const Mesh& mesh, int rank, const Precision& precision,
                               const MakeBuffer& make, StoreOptions options)
    : graph_(graph),
      policy_(effective_policy(options.policy, mesh)),
      pool_(make),
      mesh_(parameter_mesh(mesh, policy_)),
      rank_(rank),
      unit_pp_coordinates_(std::move(options.unit_pp_coordinates)) {
  check_master(precision, options.policy);
  const auto coordinate = mesh_.coordinate(rank);
  const auto counted = [&](const MakeBuffer& from) {
    return [&](std::int64_t elements, at::ScalarType type) {
      auto buffer = from(elements, type);
      bytes_ += static_cast<std::int64_t>(buffer.nbytes());
      return buffer;
    };
  };
  const BufferMemory memory{.make = counted(make),
                            .make_host = counted(options.make_host ? options.make_host : make),
                            .pool = &pool_,
                            .gathered = &gathered_,
                            .gradients = &gradients_,
                            .device = make(kFlatAlignment, at::kFloat).device()};
  units_ = unit_buffers(graph, mesh_, coordinate, options.unit_groups, unit_pp_coordinates_);
  for (const auto& layout : units_.all) {
    const Mesh lies_on = mesh_of(layout, mesh_);
    buffers_.push_back(std::make_unique<FlatParameters>(graph, layout, precision, effective_policy(policy_, lies_on),
                                                        lies_on.coordinate(rank)[Axis::fsdp], memory));
  }
  if (options.communicator == nullptr && mesh.world_size() > 1) {
    throw InternalError(fmt::format("a store on the mesh {} without a communicator", mesh.to_string()));
  }
  add_view(graph, mesh, options, /*experts=*/false);
  if (has_experts(graph)) add_view(graph, mesh, options, /*experts=*/true);
}

void ParameterStore::add_view(const GraphSpec& graph, const Mesh& mesh, const StoreOptions& options, bool experts) {
  auto& view = *views_.emplace_back(std::make_unique<View>());
  const Mesh lies_on = experts ? expert_mesh(mesh, expert_tp(graph, mesh)) : mesh;
  view.policy = effective_policy(policy_, lies_on);
  view.units = units_.only(experts);
  const auto* communicator = options.communicator;
  GradientGroups groups;
  if (communicator != nullptr) {
    const auto shards = [&](comm::Purpose purpose) {
      return experts ? communicator->subgroup(shard_group_name(purpose))
                     : communicator->group(shard_axes(view.policy, mesh), purpose);
    };
    if (view.policy.shards_state()) {
      groups.shards = shards(comm::Purpose::gradients);
      view.shards = shards(comm::Purpose::parameters);
    }
    const bool trains = std::ranges::any_of(view.units.held, [](const auto& held) { return !held.empty(); });
    if (const auto axes = copy_axes(view.policy, lies_on); trains && !axes.empty()) {
      groups.copies =
          experts ? communicator->subgroup(kExpertCopies) : communicator->group(axes, comm::Purpose::gradients);
      groups.num_copies = groups.copies.size();
    }
  }
  // Experts are complete on each rank of their mesh but for shards and copies, and no stage borrows them.
  const auto* others = experts ? nullptr : communicator;
  view.gathers = std::make_unique<ValueGathers>(buffers_, view.units, view.policy, view.shards);
  view.partials = std::make_unique<TensorPartials>(buffers_, view.units, graph, mesh, others);
  view.tied = std::make_unique<TiedSums>(buffers_, view.units, others);
  view.sums = std::make_unique<GradientSums>(buffers_, view.units, view.policy, *view.partials, *view.tied,
                                             std::move(groups), options.hook);
}

ParameterStore::View& ParameterStore::view_of(std::size_t buffer) const {
  return *(buffers_[buffer]->layout().expert_tp > 0 ? views_.back() : views_.front());
}

void ParameterStore::settle_values() {
  for (const auto& view : views_) view->gathers->finish();
}

void ParameterStore::publish() {
  ++fills_;
  for (const auto& view : views_) view->gathers->publish(ValueGathers::Changed::all);
}

void ParameterStore::publish_frozen() {
  for (const auto& view : views_) view->gathers->publish(ValueGathers::Changed::frozen);
}

void ParameterStore::publish_update(bool copied) {
  for (const auto& view : views_) {
    view->gathers->publish(copied ? ValueGathers::Changed::trainable_copied : ValueGathers::Changed::trainable);
  }
}

void ParameterStore::gather(int unit) {
  for (const auto& view : views_) view->gathers->gather(unit);
}

void ParameterStore::free(int unit) {
  for (const auto& view : views_) view->gathers->free(unit);
}

void ParameterStore::need_values(int unit) {
  for (const auto& view : views_) view->gathers->need(unit);
}

void ParameterStore::reduce(int unit, int microbatch) {
  for (const auto& view : views_) view->sums->reduce(unit, microbatch);
}

void ParameterStore::set_sum_listener(const std::function<void(int buffer)>& listener) {
  for (const auto& view : views_) view->sums->set_listener(listener);
}

// Values that were gathered after the last update may still travel. While an exception does, peers may never answer.
ParameterStore::~ParameterStore() {
  if (std::uncaught_exceptions() > 0) return;
  try {
    settle_values();
  } catch (const std::exception&) {
    // A peer is gone; whoever calls it next is told.
  }
}

void ParameterStore::initialise(std::uint64_t seed, const DrawnParameters& drawn) {
  for (const auto& buffer : buffers_) buffer->initialise(seed, drawn);
  publish();
}

UnitParameters ParameterStore::unit(int unit) {
  std::vector<FlatParameters*> used;
  for (const int b : units_.used[static_cast<std::size_t>(unit)]) {
    used.push_back(buffers_[static_cast<std::size_t>(b)].get());
  }
  return {graph_, unit, std::move(used)};
}

void ParameterStore::need_gradients(int unit) {
  for (const int b : units_.used[static_cast<std::size_t>(unit)]) {
    view_of(static_cast<std::size_t>(b)).sums->settle(b);
    buffers_[static_cast<std::size_t>(b)]->attach_gradients(unit);
  }
}

void ParameterStore::begin_step(const std::vector<bool>& zero_gradients) {
  for (const auto& buffer : buffers_) {
    for (const int user : buffer->layout().users) {
      buffer->begin_step(user, zero_gradients[static_cast<std::size_t>(user)]);
    }
  }
}

void ParameterStore::set_use_listener(
    const std::function<void(std::size_t buffer, int unit, const at::Tensor& gradient)>& listener) {
  for (std::size_t b = 0; b < buffers_.size(); ++b) {
    buffers_[b]->set_use_listener([listener, b](int unit, const at::Tensor& gradient) { listener(b, unit, gradient); });
  }
}

bool ParameterStore::adds_gradients(std::size_t buffer) const {
  const bool experts = buffers_[buffer]->layout().expert_tp > 0;
  const Mesh lies_on = mesh_of(buffers_[buffer]->layout(), mesh_);
  const auto& policy = view_of(buffer).policy;
  const bool over_ranks =
      policy.shards_state() || !copy_axes(policy, lies_on).empty() || (!experts && mesh_.degree(Axis::tp) > 1);
  return over_ranks || units_.pp_users[buffer].size() > 1 || buffers_[buffer]->layout().users.size() > 1;
}

std::vector<std::string> ParameterStore::finish_gradients() {
  settle_values();
  for (const auto& view : views_) view->sums->finish();
  std::vector<std::string> unused;
  for (std::size_t b = 0; b < buffers_.size(); ++b) {
    // Another stage may use what this one does not.
    if (units_.pp_users[b].size() == 1) std::ranges::copy(buffers_[b]->unused(), std::back_inserter(unused));
  }
  return unused;
}

std::vector<std::string> ParameterStore::complete_gradients() {
  for (int u = static_cast<int>(graph_.units.size()); u-- > 0;) {
    if (runs(u)) reduce(u, /*microbatch=*/-1);
  }
  return finish_gradients();
}

std::int64_t ParameterStore::value_bytes() const {
  auto bytes = gathered_.now;
  for (const auto& buffer : buffers_) bytes += buffer->kept_value_bytes();
  return bytes;
}

std::int64_t ParameterStore::gradient_bytes() const {
  auto bytes = gradients_.now;
  for (const auto& buffer : buffers_) bytes += buffer->kept_gradient_bytes();
  return bytes;
}

std::vector<Range> ParameterStore::answered(std::size_t buffer) const {
  const auto& layout = buffers_[buffer]->layout();
  std::vector<Range> ranges;
  if (!answers(buffer)) return ranges;
  for (const auto& piece : pieces_to_write(layout, mesh_, rank_)) {
    Range range{piece.local_offset, piece.local_offset + piece.elements()};
    // A parameter's padding goes with its end, so that neighbours are one range.
    const auto* entry = &layout.entry(piece.tensor);
    if (range.end == entry->range().end) {
      const auto next = entry == &layout.entries.back() ? layout.size : entry[1].offset;
      range.end = std::min(next, buffers_[buffer]->owned().end);
    }
    if (!ranges.empty() && ranges.back().end >= range.begin) {
      ranges.back().end = range.end;
    } else {
      ranges.push_back(range);
    }
  }
  return ranges;
}

at::Tensor ParameterStore::whole(std::size_t buffer, const at::Tensor& owned) const {
  if (buffers_[buffer]->owns_all()) return owned;
  auto all = at::empty({buffers_[buffer]->layout().size}, owned.options());
  comm::Group group = view_of(buffer).shards;
  group.all_gather(all, owned.contiguous()).wait();
  return all;
}

}  // namespace orthant
