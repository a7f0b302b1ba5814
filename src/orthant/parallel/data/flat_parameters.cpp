#include "orthant/parallel/data/flat_parameters.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <set>
#include <span>

#include "orthant/base/error.h"
#include "orthant/base/random.h"
#include "orthant/layout/pieces.h"
#include "orthant/nn/scalar_type.h"

namespace orthant {
namespace {

at::Tensor part(const at::Tensor& flat, Range range) {
  return flat.narrow(0, range.begin, range.size());
}

at::Tensor view(const at::Tensor& buffer, std::int64_t offset, const Shape& shape) {
  return buffer.narrow(0, offset, num_elements(shape)).view(shape);
}

template <typename Scalar>
at::Tensor drawn_box(const ParameterSpec& spec, const TensorBox& box, std::uint64_t seed, at::ScalarType type) {
  const RandomStream stream(seed, spec.name);
  auto drawn = at::empty({num_elements(box.lengths)}, at::TensorOptions().dtype(type));
  const std::span<Scalar> out(drawn.mutable_data_ptr<Scalar>(), static_cast<std::size_t>(drawn.numel()));
  if (spec.init.kind == Init::Kind::normal) stream.fill_normal(out, box, 0.0, spec.init.scale);
  if (spec.init.kind == Init::Kind::uniform) stream.fill_uniform(out, box, -spec.init.scale, spec.init.scale);
  return drawn;
}

// Draws the piece box by box. Narrow types are rounded from float32 draws, which are rounded from double ones.
void draw_into(const at::Tensor& target, const ParameterSpec& spec, const Piece& piece, std::uint64_t seed) {
  std::int64_t done = 0;
  for (const auto& box : boxes_of(piece, spec.shape)) {
    const auto drawn = target.scalar_type() == at::kDouble ? drawn_box<double>(spec, box, seed, at::kDouble)
                                                           : drawn_box<float>(spec, box, seed, at::kFloat);
    target.narrow(0, done, drawn.numel()).copy_(drawn);
    done += drawn.numel();
  }
}

// What no parameter covers.
std::vector<Range> gaps_of(const FlatBuffer& layout) {
  std::vector<Range> gaps;
  std::int64_t end = 0;
  for (const auto& entry : layout.entries) {
    if (entry.offset > end) gaps.push_back({end, entry.offset});
    end = entry.offset + entry.elements;
  }
  if (layout.size > end) gaps.push_back({end, layout.size});
  return gaps;
}

}  // namespace

FlatParameters::FlatParameters(const GraphSpec& graph, FlatBuffer layout, const Precision& precision,
                               const DataPolicy& policy, int shard, const BufferMemory& memory)
    : graph_(graph),
      layout_(std::move(layout)),
      policy_(policy),
      owned_(policy.shards_state() ? layout_.shard(shard) : Range{0, layout_.size}),
      gaps_(gaps_of(layout_)),
      users_(layout_.users.size()) {
  names_.push_back(graph.units[static_cast<std::size_t>(layout_.owner)].name);
  for (const auto& entry : layout_.entries) names_.push_back(entry.parameter);
  make_values(precision, memory);
  make_gradients(precision, memory);
}

void FlatParameters::make_values(const Precision& precision, const BufferMemory& memory) {
  const auto params = scalar_type(precision.params);
  const auto compute = scalar_type(precision.compute);
  const bool on_host = policy_.offload != Offload::none;
  if (transient_values()) {
    transient_ = TransientBuffer(*memory.pool, *memory.gathered, layout_.size, compute, memory.device);
    values_ = transient_.tensor();
    const bool split = precision.master == MasterKind::bf16_remainder;
    if (policy_.offload == Offload::optimizer || split) shard_ = memory.make(owned_.size(), compute);
  } else {
    values_ = memory.make(layout_.size, compute);
  }
  shares_ = !transient_values() && params == compute && !on_host;
  if (precision.master == MasterKind::bf16_remainder) {
    const auto upper = shard_.defined() ? shard_ : part(values_, owned_);
    master_ = MasterValues(upper, memory.make(owned_.size(), at::kShort));
    shares_ = true;
  } else if (shares_) {
    master_ = MasterValues(part(values_, owned_));
  } else {
    master_ = MasterValues((on_host ? memory.make_host : memory.make)(owned_.size(), params));
  }
}

void FlatParameters::make_gradients(const Precision& precision, const BufferMemory& memory) {
  if (!trainable()) return;
  const auto type = scalar_type(precision.reduce);
  for (auto& user : users_) {
    if (policy_.shards_gradients()) {
      user.transient = TransientBuffer(*memory.pool, *memory.gradients, layout_.size, type, memory.device);
      user.full = user.transient.tensor();
    } else {
      user.full = memory.make(layout_.size, type);
    }
  }
  owned_gradient_ = policy_.shards_gradients() ? memory.make(owned_.size(), type) : part(users_.front().full, owned_);
}

std::int64_t FlatParameters::kept_value_bytes() const {
  std::vector<at::Tensor> kept;
  if (!transient_values()) kept.push_back(values_);
  if (shard_.defined()) kept.push_back(shard_);
  if (master_.is_split()) {
    kept.push_back(master_.remainder());
  } else if (!shares_) {
    kept.push_back(master_.whole());
  }
  std::int64_t bytes = 0;
  for (const auto& tensor : kept) {
    if (tensor.device() == values_.device()) bytes += static_cast<std::int64_t>(tensor.nbytes());
  }
  return bytes;
}

std::int64_t FlatParameters::kept_gradient_bytes() const {
  if (!trainable()) return 0;
  const auto of_one = policy_.shards_gradients() ? owned_gradient_.nbytes() : users_.front().full.nbytes();
  return static_cast<std::int64_t>(policy_.shards_gradients() ? of_one : of_one * users_.size());
}

void FlatParameters::initialise(std::uint64_t seed, const DrawnParameters& drawn) {
  at::NoGradGuard no_gradients;
  for (const auto& piece : pieces_of(layout_, owned_)) {
    if (drawn && !drawn(piece.tensor)) continue;
    const auto& spec = graph_.parameter(piece.tensor);
    if (spec.init.kind == Init::Kind::given) continue;
    master_.narrow(piece.local_offset - owned_.begin, piece.elements()).change([&](const at::Tensor& target) {
      if (spec.init.kind == Init::Kind::zeros) {
        target.zero_();
      } else if (spec.init.kind == Init::Kind::ones) {
        target.fill_(1);
      } else {
        draw_into(target, spec, piece, seed);
      }
    });
  }
}

void FlatParameters::assign(const FlatEntry& entry, const at::Tensor& whole) {
  at::NoGradGuard no_gradients;
  const auto met = common(owned_, entry.range());
  if (met.empty()) return;
  const auto source = whole.detach().reshape({-1}).narrow(0, met.begin - entry.offset, met.size());
  master_.narrow(met.begin - owned_.begin, met.size()).set_values(source);
}

void FlatParameters::add(const FlatEntry& entry, const at::Tensor& whole) const {
  const auto met = common(owned_, entry.range());
  if (met.empty()) return;
  const auto part = whole.narrow(0, met.begin - entry.offset, met.size());
  master_.narrow(met.begin - owned_.begin, met.size()).change([&](const at::Tensor& values) {
    values.add_(part.to(values.options()));
  });
}

std::size_t FlatParameters::user_place(int user) const {
  const auto found = std::ranges::find(layout_.users, user);
  if (found == layout_.users.end()) {
    throw InternalError(fmt::format("unit {} does not use the buffer {}", user, layout_.name));
  }
  return static_cast<std::size_t>(found - layout_.users.begin());
}

nn::TensorCut FlatParameters::cut_of(const FlatEntry& entry) const {
  const auto& split = graph_.parameter(entry.parameter).tp;
  nn::TensorCut cut;
  if (!split) return cut;
  cut.dim = split->dim;
  cut.first = entry.boxes.front().offsets[static_cast<std::size_t>(split->dim)];
  return cut;
}

nn::Parameter* FlatParameters::use(std::size_t first, std::size_t count, const Shape& shape, int user) {
  auto& gradients = users_[user_place(user)];
  auto& slot = gradients.uses[{first, count}];
  if (!slot) {
    slot = std::make_unique<Use>();
    const auto offset = layout_.entries[first].offset;
    slot->names = {names_.front()};
    for (std::size_t i = first; i < first + count; ++i) slot->names.push_back(layout_.entries[i].parameter);
    slot->parameter.subject = slot->names;
    slot->parameter.cut = cut_of(layout_.entries[first]);
    slot->parameter.value = view(values_, offset, shape).variable_data();
    if (trainable()) {
      slot->parameter.value.requires_grad_();
      slot->parameter.gradient = view(gradients.full, offset, shape);
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

at::Tensor FlatParameters::gather_input() const {
  if (!transient_values()) return part(values_, owned_);
  if (shard_.defined()) return shard_;
  const auto& master = master_.whole();
  if (master.scalar_type() == values_.scalar_type() && master.device() == values_.device()) return master;
  auto own = part(transient_.block(), owned_);
  round_into(own, master);
  return own;
}

at::Tensor FlatParameters::published() const {
  if (shares_) return {};
  if (shard_.defined()) return shard_;
  return transient_values() ? at::Tensor() : part(values_, owned_);
}

void FlatParameters::publish_owned() {
  if (const auto target = published(); target.defined()) round_into(target, master_.whole());
}

void FlatParameters::begin_step(int user, bool zero) {
  if (!trainable()) return;
  auto& gradients = users_[user_place(user)];
  gradients.starts_at_zero = zero;
  gradients.clear_first = zero && !policy_.shards_gradients();
  for (auto& [extent, use] : gradients.uses) {
    use->parameter.fresh = true;
    use->written = false;
  }
}

void FlatParameters::attach_gradients(int user) {
  if (!trainable()) return;
  auto& gradients = users_[user_place(user)];
  if (std::exchange(gradients.clear_first, false)) gradients.full.zero_();
  if (!policy_.shards_gradients() || gradients.transient.has_memory()) return;
  gradients.transient.attach();
  if (gradients.starts_at_zero) gradients.full.zero_();
}

void FlatParameters::release_gradients() {
  for (auto& gradients : users_) gradients.transient.release();
}

void FlatParameters::complete_gradients() {
  if (!trainable()) return;
  at::NoGradGuard no_gradients;
  for (std::size_t i = 0; i < users_.size(); ++i) {
    auto& gradients = users_[i];
    attach_gradients(layout_.users[i]);
    for (auto& [extent, use] : gradients.uses) {
      if (use->parameter.fresh) use->parameter.gradient.zero_();
      use->written |= !use->parameter.fresh;
      use->parameter.fresh = true;
    }
    if (policy_.shards_gradients()) clear_rest(gradients);
    if (use_listener_) use_listener_(layout_.users[i], gradients.full);
    if (i > 0) users_.front().full.add_(gradients.full);
  }
}

// Memory from the pool holds old numbers where no use writes.
void FlatParameters::clear_rest(UserGradients& gradients) const {
  for (const auto& gap : gaps_) part(gradients.full, gap).zero_();
  std::vector<bool> covered(layout_.entries.size());
  for (const auto& [extent, use] : gradients.uses) {
    for (std::size_t i = 0; i < extent.second; ++i) covered[extent.first + i] = true;
  }
  for (std::size_t i = 0; i < covered.size(); ++i) {
    if (!covered[i]) part(gradients.full, layout_.entries[i].range()).zero_();
  }
}

std::vector<std::string> FlatParameters::unused() const {
  std::vector<std::string> names;
  if (!trainable()) return names;
  std::set<std::string_view> written;
  for (const auto& gradients : users_) {
    for (const auto& [extent, use] : gradients.uses) {
      if (use->written) written.insert(use->names.begin(), use->names.end());
    }
  }
  for (const auto& entry : layout_.entries) {
    if (!written.contains(entry.parameter)) names.push_back(entry.parameter);
  }
  return names;
}

at::Tensor FlatParameters::gradient() const {
  return policy_.shards_gradients() ? users_.front().transient.block() : users_.front().full;
}

at::Tensor FlatParameters::master_view(const FlatEntry& entry) const {
  if (!owns_all()) throw InternalError(fmt::format("buffer {} is a shard: it has no whole parameters", layout_.name));
  return master_.narrow(entry.offset, num_elements(entry.shape)).values().view(entry.shape);
}

at::Tensor FlatParameters::gradient_view(const FlatEntry& entry) const {
  if (!owns_all()) throw InternalError(fmt::format("buffer {} is a shard: it has no whole gradients", layout_.name));
  return view(users_.front().full, entry.offset, entry.shape);
}

}  // namespace orthant
