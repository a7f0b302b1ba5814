#include "orthant/train/whole_tensors.h"

#include <ATen/ATen.h>

#include <cstring>

#include "orthant/layout/expert_view.h"
#include "orthant/nn/scalar_type.h"
#include "orthant/train/trainer_setup.h"

namespace orthant {
namespace {

// As integers of the same width: adding zeros to a bit pattern changes no bit of it. Narrow dtypes are widened first.
at::Tensor bits_of(const at::Tensor& tensor) {
  if (tensor.scalar_type() == at::kDouble) return tensor.view(at::kLong);
  return tensor.to(at::kFloat).view(at::kInt);
}

at::Tensor from_bits(const at::Tensor& bits, at::ScalarType dtype) {
  return bits.view(bits.scalar_type() == at::kLong ? at::kDouble : at::kFloat).to(dtype);
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

// The part of a global tensor that one box covers.
at::Tensor box_view(const at::Tensor& global, const TensorBox& box) {
  auto view = global;
  for (std::size_t d = 0; d < box.offsets.size(); ++d) {
    view = view.narrow(static_cast<std::int64_t>(d), box.offsets[d], box.lengths[d]);
  }
  return view;
}

// The groups over which a buffer's parts are different.
std::vector<comm::Group> part_groups(const Trainer& trainer, const FlatBuffer& buffer) {
  std::vector<comm::Group> groups;
  const auto* communicator = trainer.options().communicator.get();
  const bool over_tp = trainer.mesh().degree(Axis::tp) > 1 && buffer.expert_tp != 1;
  if (over_tp) groups.push_back(communicator->group(Axis::tp, comm::Purpose::activations));
  if (buffer.expert_tp > 0 && trainer.mesh().degree(Axis::ep) > 1) {
    groups.push_back(communicator->subgroup(kTokenGroup));
  }
  return groups;
}

// The global tensor of a parameter, of which `flat` may hold this rank's part: every box from the first that holds it.
at::Tensor from_holders(const Trainer& trainer, const FlatBuffer& buffer, const ParameterSpec& parameter,
                        const at::Tensor& flat, bool& equal) {
  const FlatEntry* entry = buffer.find(parameter.name);  // null: other ranks have this expert
  const auto local =
      entry == nullptr ? at::Tensor() : flat.narrow(0, entry->offset, entry->elements).view(entry->shape);
  auto groups = part_groups(trainer, buffer);
  if (groups.empty()) return local.clone();
  const auto coordinate = mesh_of(buffer, trainer.parameters().mesh()).coordinate(trainer.rank())[Axis::tp];
  auto global = at::zeros(parameter.shape, flat.options());
  const auto for_boxes = [&](const auto& body) {
    if (entry == nullptr) return;
    if (local.dim() == 0) return body(0, global, local);  // one number has no dim to cut
    std::int64_t begin = 0;
    for (std::size_t i = 0; i < entry->boxes.size(); ++i) {
      const auto length = entry->boxes[i].lengths[static_cast<std::size_t>(entry->dim)];
      body(i, box_view(global, entry->boxes[i]), local.narrow(entry->dim, begin, length));
      begin += length;
    }
  };
  for_boxes([&](std::size_t i, const at::Tensor& place, const at::Tensor& part) {
    if (entry->holders[i].begin == coordinate) place.copy_(part);
  });
  const auto bits = bits_of(global).to(trainer.options().device);
  for (auto& group : groups) group.all_reduce(bits).wait();
  global = from_bits(bits.cpu(), global.scalar_type());
  for_boxes([&](std::size_t, const at::Tensor& place, const at::Tensor& part) {
    equal &= same_bits(place.contiguous(), part.contiguous());
  });
  return global;
}

// Parameters of a buffer, of experts also those that other ranks hold: the same on all ranks that exchange them.
std::vector<const ParameterSpec*> parameters_of(const GraphSpec& graph, const FlatBuffer& buffer) {
  std::vector<const ParameterSpec*> found;
  for (const auto& parameter : graph.units[static_cast<std::size_t>(buffer.owner)].parameters) {
    const bool others = buffer.expert_tp > 0 && parameter.expert && parameter.trainable == buffer.trainable;
    if (others || buffer.find(parameter.name) != nullptr) found.push_back(&parameter);
  }
  return found;
}

// Every stage's, from the one that owns it; borrowers compare their copies.
void add_other_stages(const Trainer& trainer, Covered covered, DType dtype, WholeTensors& found) {
  if (trainer.mesh().degree(Axis::pp) == 1) return;
  const auto& graph = trainer.graph();
  const auto unit_pp_coordinates = trainer.pipeline().unit_pp_coordinates();
  auto stages = trainer.options().communicator->group(Axis::pp, comm::Purpose::activations);
  const auto options = at::TensorOptions().dtype(scalar_type(dtype)).device(trainer.options().device);
  for (std::size_t u = 0; u < graph.units.size(); ++u) {
    for (const auto& parameter : graph.units[u].parameters) {
      if (covered == Covered::trainable && !parameter.trainable) continue;
      const auto own = found.tensors.find(parameter.name);
      const bool held = own != found.tensors.end();
      const auto tensor =
          held ? own->second.to(options, /*non_blocking=*/false, /*copy=*/true) : at::empty(parameter.shape, options);
      stages.broadcast(tensor, unit_pp_coordinates[u]).wait();
      const auto whole = tensor.cpu();
      if (held) found.copies_equal &= same_bits(own->second, whole);
      found.tensors[parameter.name] = whole;
    }
  }
}

}  // namespace

WholeTensors whole_tensors(const Trainer& trainer, Covered covered, DType dtype,
                           const std::function<at::Tensor(std::size_t buffer)>& owned) {
  WholeTensors found;
  const auto& store = trainer.parameters();
  for (std::size_t b = 0; b < store.buffers().size(); ++b) {
    if (covered == Covered::trainable && !store.buffers()[b]->trainable()) continue;
    const auto flat = store.whole(b, owned(b).to(trainer.options().device)).cpu();
    const auto& layout = store.buffers()[b]->layout();
    for (const auto* parameter : parameters_of(trainer.graph(), layout)) {
      found.tensors[parameter->name] = from_holders(trainer, layout, *parameter, flat, found.copies_equal);
    }
  }
  add_other_stages(trainer, covered, dtype, found);
  return found;
}

WholeTensors whole_weights(const Trainer& trainer) {
  return whole_tensors(trainer, Covered::all, trainer.options().precision.params,
                       [&](std::size_t b) { return trainer.parameters().buffers()[b]->master().values(); });
}

WholeTensors whole_gradients(const Trainer& trainer) {
  return whole_tensors(trainer, Covered::trainable, trainer.options().precision.reduce,
                       [&](std::size_t b) { return trainer.parameters().buffers()[b]->owned_gradient(); });
}

}  // namespace orthant
