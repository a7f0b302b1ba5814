// One flat buffer of a unit at run time: the optimizer's copy of its parameters, the copy that products use, and the
// gradients, each contiguous, with parameters as views. See Note [Flat unit buffers].
//
// Note [Flat unit buffers]: the layout (layout/flat_unit.h) says where each parameter lies; it is the same for all
// three buffers. When `params` and `compute` are one dtype they are one buffer. A tied parameter is read by several
// units through one value buffer, but each use has a gradient buffer of its own: a use adds its microbatches in order,
// and the uses are added in unit order when the step's gradients are complete, so that bits do not depend on the
// schedule. Gaps between parameters are zero everywhere and stay zero.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "orthant/graph/spec.h"
#include "orthant/layout/flat_unit.h"
#include "orthant/nn/pass.h"
#include "orthant/parallel/data/precision.h"

namespace orthant {

// Makes a one-dimensional buffer, filled with zeros: on the device, or where peers can read it.
using MakeBuffer = std::function<at::Tensor(std::int64_t elements, at::ScalarType type)>;

// Whether the first values of the parameter of that name are drawn; all are when it is empty.
using DrawnParameters = std::function<bool(std::string_view parameter)>;

class FlatParameters {
 public:
  FlatParameters(const GraphSpec& graph, FlatBuffer layout, const Precision& precision, const MakeBuffer& make);

  const FlatBuffer& layout() const { return layout_; }
  bool trainable() const { return layout_.trainable; }

  // Draws the first values from (seed, parameter name, global element). Local. Where `drawn` is given and false, a
  // parameter stays as it is: the caller fills it.
  void initialise(std::uint64_t seed, const DrawnParameters& drawn = {});

  // The parameter as unit `user` sees it; made on first use. nullptr when this buffer does not hold it.
  nn::Parameter* find(std::string_view name, int user);
  // Neighbours with one label as one parameter: [sum of first dims, rest]. nullptr when there is no such label.
  nn::Parameter* joined(std::string_view label, int user);

  // Before the first microbatch. `zero`: gradients are cleared now, for units whose gradients autograd accumulates.
  void begin_step(int user, bool zero);

  // After the last microbatch: clears what nobody wrote and adds the uses together into gradient(). Returns the names
  // of parameters that got no gradient.
  std::vector<std::string> complete_gradients();

  // After an update of master(): the compute copy follows.
  void publish();

  const at::Tensor& master() const { return master_; }
  const at::Tensor& gradient() const { return gradients_.front(); }  // of the first user: the sum after completion
  at::Tensor master_view(const FlatEntry& entry) const { return view(master_, entry.offset, entry.shape); }
  at::Tensor gradient_view(const FlatEntry& entry) const { return view(gradient(), entry.offset, entry.shape); }

 private:
  struct Use {
    std::vector<std::string> names;  // of the parameters it covers
    nn::Parameter parameter;
  };

  static at::Tensor view(const at::Tensor& buffer, std::int64_t offset, const Shape& shape);
  std::size_t user_place(int user) const;
  nn::Parameter* use(std::size_t first, std::size_t count, const Shape& shape, int user);

  const GraphSpec& graph_;
  FlatBuffer layout_;
  at::Tensor master_;
  at::Tensor compute_;                 // is master_ when the dtypes agree
  std::vector<at::Tensor> gradients_;  // one per user; empty when frozen
  std::vector<std::map<std::pair<std::size_t, std::size_t>, std::unique_ptr<Use>>> uses_;  // per user: (first, count)
};

}  // namespace orthant
