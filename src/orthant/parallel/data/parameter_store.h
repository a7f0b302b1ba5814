// All flat buffers of a rank, and each unit's way to its parameters.
#pragma once

#include <memory>
#include <span>

#include "orthant/mesh/mesh.h"
#include "orthant/parallel/data/flat_parameters.h"

namespace orthant {

// What a unit sees: its own and borrowed parameters, by the part of their name after the owner's.
class UnitParameters {
 public:
  UnitParameters(const UnitSpec& spec, int unit, std::vector<FlatParameters*> buffers)
      : spec_(&spec), unit_(unit), buffers_(std::move(buffers)) {}

  // "norm1.weight" in unit layers.3 is layers.3.norm1.weight, or the borrowed parameter whose name ends so.
  // InternalError when there is none; find() gives nullptr.
  nn::Parameter& operator[](std::string_view relative) const;
  nn::Parameter* find(std::string_view relative) const;
  nn::Parameter& joined(std::string_view label) const;
  // By full name.
  nn::Parameter& named(std::string_view full) const;

  // First values of a parameter whose Init is `given`, by full name; whole tensors.
  void set_initial(std::string_view full, const at::Tensor& values) const;

  const UnitSpec& spec() const { return *spec_; }

 private:
  const UnitSpec* spec_;
  int unit_;
  std::vector<FlatParameters*> buffers_;
};

class ParameterStore {
 public:
  // The buffers of all units, on the device of `make`. Keeps a reference to `graph`.
  ParameterStore(const GraphSpec& graph, const Mesh& mesh, int rank, const Precision& precision,
                 const MakeBuffer& make);

  void initialise(std::uint64_t seed, const DrawnParameters& drawn = {});
  UnitParameters unit(int unit);

  // `zero_gradients[u]`: unit u's gradients come from autograd.
  void begin_step(const std::vector<bool>& zero_gradients);
  std::vector<std::string> complete_gradients();  // names of trainable parameters without a gradient
  void publish();

  const std::vector<std::unique_ptr<FlatParameters>>& buffers() const { return buffers_; }
  // The unit that owns buffer i.
  int owner(std::size_t buffer) const { return owners_[buffer]; }
  const GraphSpec& graph() const { return graph_; }

 private:
  const GraphSpec& graph_;
  std::vector<std::unique_ptr<FlatParameters>> buffers_;
  std::vector<int> owners_;
};

}  // namespace orthant
