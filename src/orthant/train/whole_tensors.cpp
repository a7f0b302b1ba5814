#include "orthant/train/whole_tensors.h"

#include <ATen/ATen.h>

#include <cstring>

namespace orthant {
namespace {

// An integer dtype of the same width: adding zeros to a bit pattern changes no bit of it.
at::ScalarType bits_of(at::ScalarType dtype) {
  return dtype == at::kDouble ? at::kLong : at::kInt;
}

// The part of a global tensor that one box covers.
at::Tensor box_view(const at::Tensor& global, const TensorBox& box) {
  auto view = global;
  for (std::size_t d = 0; d < box.offsets.size(); ++d) {
    view = view.narrow(static_cast<std::int64_t>(d), box.offsets[d], box.lengths[d]);
  }
  return view;
}

// The global tensor of an entry, of which `local` is this rank's part: every box from the first that holds it.
at::Tensor over_tp(const Trainer& trainer, const FlatEntry& entry, const at::Tensor& local, bool& equal) {
  const auto& mesh = trainer.mesh();
  if (mesh.degree(Axis::tp) == 1) return local.clone();
  const auto coordinate = mesh.coordinate(trainer.rank())[Axis::tp];
  auto global = at::zeros(trainer.graph().parameter(entry.parameter).shape, local.options());
  const auto for_boxes = [&](const auto& body) {
    std::int64_t begin = 0;
    for (std::size_t i = 0; i < entry.boxes.size(); ++i) {
      const auto length = entry.boxes[i].lengths[static_cast<std::size_t>(entry.dim)];
      body(i, box_view(global, entry.boxes[i]), local.narrow(entry.dim, begin, length));
      begin += length;
    }
  };
  for_boxes([&](std::size_t i, const at::Tensor& place, const at::Tensor& part) {
    if (entry.holders[i].begin == coordinate) place.copy_(part);
  });
  auto bits = global.view(bits_of(global.scalar_type())).to(trainer.options().device);
  trainer.options().communicator->group(Axis::tp, comm::Purpose::activations).all_reduce(bits).wait();
  global = bits.cpu().view(global.scalar_type());
  for_boxes([&](std::size_t, const at::Tensor& place, const at::Tensor& part) {
    const auto a = place.contiguous(), b = part.contiguous();
    equal &= std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
  });
  return global;
}

WholeTensors whole_tensors(const Trainer& trainer, bool gradients) {
  WholeTensors found;
  const auto& store = trainer.parameters();
  for (std::size_t b = 0; b < store.buffers().size(); ++b) {
    const auto& buffer = *store.buffers()[b];
    if (gradients && !buffer.trainable()) continue;
    const auto owned = gradients ? buffer.owned_gradient() : buffer.master();
    const auto flat = store.whole(b, owned.to(trainer.options().device)).cpu();
    for (const auto& entry : buffer.layout().entries) {
      const auto local = flat.narrow(0, entry.offset, entry.elements).view(entry.shape);
      found.tensors[entry.parameter] = over_tp(trainer, entry, local, found.copies_equal);
    }
  }
  return found;
}

}  // namespace

WholeTensors whole_weights(const Trainer& trainer) {
  return whole_tensors(trainer, /*gradients=*/false);
}

WholeTensors whole_gradients(const Trainer& trainer) {
  return whole_tensors(trainer, /*gradients=*/true);
}

}  // namespace orthant
