#include "orthant/parallel/data/flat_parameters.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <span>

#include "orthant/base/error.h"
#include "orthant/base/random.h"
#include "orthant/nn/scalar_type.h"

namespace orthant {
namespace {

template <typename Scalar>
at::Tensor drawn_box(const ParameterSpec& spec, const TensorBox& box, std::uint64_t seed, at::ScalarType type) {
  const RandomStream stream(seed, spec.name);
  auto drawn = at::empty(box.lengths, at::TensorOptions().dtype(type));
  const std::span<Scalar> out(drawn.mutable_data_ptr<Scalar>(), static_cast<std::size_t>(drawn.numel()));
  if (spec.init.kind == Init::Kind::normal) stream.fill_normal(out, box, 0.0, spec.init.scale);
  if (spec.init.kind == Init::Kind::uniform) stream.fill_uniform(out, box, -spec.init.scale, spec.init.scale);
  return drawn;
}

// Draws the local tensor box by box. Narrow types are rounded from float32 draws, which are rounded from double ones.
void draw_into(const at::Tensor& target, const ParameterSpec& spec, const FlatEntry& entry, std::uint64_t seed) {
  std::int64_t done = 0;
  for (const auto& box : entry.boxes) {
    const auto length = box.lengths.at(static_cast<std::size_t>(entry.dim));
    const auto drawn = target.scalar_type() == at::kDouble ? drawn_box<double>(spec, box, seed, at::kDouble)
                                                           : drawn_box<float>(spec, box, seed, at::kFloat);
    target.narrow(entry.dim, done, length).copy_(drawn);
    done += length;
  }
}

}  // namespace

FlatParameters::FlatParameters(const GraphSpec& graph, FlatBuffer layout, const Precision& precision,
                               const MakeBuffer& make)
    : graph_(graph), layout_(std::move(layout)), uses_(layout_.users.size()) {
  master_ = make(layout_.size, scalar_type(precision.params));
  compute_ = precision.compute == precision.params ? master_ : make(layout_.size, scalar_type(precision.compute));
  if (!layout_.trainable) return;
  for (std::size_t i = 0; i < layout_.users.size(); ++i) {
    gradients_.push_back(make(layout_.size, scalar_type(precision.reduce)));
  }
}

at::Tensor FlatParameters::view(const at::Tensor& buffer, std::int64_t offset, const Shape& shape) {
  return buffer.narrow(0, offset, num_elements(shape)).view(shape);
}

void FlatParameters::initialise(std::uint64_t seed, const DrawnParameters& drawn) {
  at::NoGradGuard no_gradients;
  for (const auto& entry : layout_.entries) {
    if (drawn && !drawn(entry.parameter)) continue;
    const auto& spec = graph_.parameter(entry.parameter);
    const auto target = master_view(entry);
    switch (spec.init.kind) {
      case Init::Kind::zeros:
        target.zero_();
        break;
      case Init::Kind::ones:
        target.fill_(1);
        break;
      case Init::Kind::given:
        break;
      default:
        draw_into(target, spec, entry, seed);
    }
  }
  publish();
}

std::size_t FlatParameters::user_place(int user) const {
  const auto found = std::ranges::find(layout_.users, user);
  if (found == layout_.users.end()) {
    throw InternalError(fmt::format("unit {} does not use the buffer {}", user, layout_.name));
  }
  return static_cast<std::size_t>(found - layout_.users.begin());
}

nn::Parameter* FlatParameters::use(std::size_t first, std::size_t count, const Shape& shape, int user) {
  const auto place = user_place(user);
  auto& slot = uses_[place][{first, count}];
  if (!slot) {
    slot = std::make_unique<Use>();
    const auto offset = layout_.entries[first].offset;
    for (std::size_t i = first; i < first + count; ++i) slot->names.push_back(layout_.entries[i].parameter);
    slot->parameter.value = view(compute_, offset, shape).variable_data();
    if (layout_.trainable) {
      slot->parameter.value.requires_grad_();
      slot->parameter.gradient = view(gradients_[place], offset, shape);
    }
  }
  return &slot->parameter;
}

nn::Parameter* FlatParameters::find(std::string_view name, int user) {
  for (std::size_t i = 0; i < layout_.entries.size(); ++i) {
    if (layout_.entries[i].parameter == name) return use(i, 1, layout_.entries[i].shape, user);
  }
  return nullptr;
}

nn::Parameter* FlatParameters::joined(std::string_view label, int user) {
  const auto labelled = [&](const FlatEntry& entry) { return entry.joined == label; };
  if (std::ranges::none_of(layout_.entries, labelled)) return nullptr;
  const auto run = joined_entry(layout_, label);
  auto shape = layout_.entries[run.first_entry].shape;
  for (std::size_t i = 1; i < run.num_entries; ++i) shape[0] += layout_.entries[run.first_entry + i].shape[0];
  return use(run.first_entry, run.num_entries, shape, user);
}

void FlatParameters::begin_step(int user, bool zero) {
  if (!layout_.trainable) return;
  const auto place = user_place(user);
  if (zero) gradients_[place].zero_();
  for (auto& [extent, use] : uses_[place]) use->parameter.fresh = true;
}

std::vector<std::string> FlatParameters::complete_gradients() {
  std::vector<std::string> unused;
  if (!layout_.trainable) return unused;
  at::NoGradGuard no_gradients;
  std::map<std::string, int> written;
  for (const auto& entry : layout_.entries) written[entry.parameter] = 0;
  for (auto& uses : uses_) {
    for (auto& [extent, use] : uses) {
      if (use->parameter.fresh) {
        use->parameter.gradient.zero_();
      } else {
        for (const auto& name : use->names) ++written[name];
      }
    }
  }
  for (const auto& [name, count] : written) {
    if (count == 0) unused.push_back(name);
  }
  for (std::size_t i = 1; i < gradients_.size(); ++i) gradients_.front().add_(gradients_[i]);
  return unused;
}

void FlatParameters::publish() {
  if (!compute_.is_same(master_)) compute_.copy_(master_);
}

}  // namespace orthant
