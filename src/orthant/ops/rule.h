// What compilers ask of an operation: where its inputs must lie and its outputs do, and which operations make its
// gradients. One rule per operation, in ops/<operation>/rule.cpp; folders.inc lists the folders. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "orthant/graph/operation.h"
#include "orthant/graph/spec.h"

namespace orthant {

// Attribute of a product whose operands are rounded to e4m3: see program/float8.h.
inline constexpr const char* kFloat8 = "float8";
// Of a project: it is a generation's; an RMSNorm is in front of it, with that eps; a swiglu is behind it.
inline constexpr const char* kGenerates = "generates";
inline constexpr const char* kNormEps = "norm_eps";
inline constexpr const char* kGated = "gated";

// A parameter of a unit as its program sees it: joined ones as one, with their parts as blocks.
struct ParameterAt {
  Shape shape;       // of the whole model
  int cut_dim = -1;  // -1: every rank has all of it
  DimCut cut = {};   // of that dim
  bool trainable = true;
  std::int64_t experts = 0;  // whose parameters lie side by side along dim 0; 0: no experts
  int expert_degree = 1;     // of ep, over which they are cut
  friend bool operator==(const ParameterAt&, const ParameterAt&) = default;
};

// Between operations a rank has, of values per token, all tokens or (sequence parallelism) its own: they rest so.
enum class Wanted : std::uint8_t {
  all_tokens,  // a sum is complete, tokens are gathered
  resting,     // a sum is complete; it has the rank's own tokens where they are cut
};

// One operation being placed.
class Placing {
 public:
  virtual ~Placing() = default;
  virtual const Operation& operation() const = 0;
  virtual const ValuePlace& input(std::size_t i) const = 0;
  virtual const ParameterAt& parameter(std::size_t i) const = 0;
  // Whether values per token rest cut over tp.
  virtual bool rests_cut(std::size_t input) const = 0;
  // Puts an exchange in front, where the input lies otherwise. `again`: backward may make a gather again.
  virtual void want(std::size_t input, Wanted wanted, bool again = false) = 0;
  // Of the output as recorded: dims from its own, cut as said.
  virtual void give(std::size_t output, ValuePlace placement) = 0;
  // Dims of the output as recorded.
  virtual const std::vector<Dim>& recorded(std::size_t output) const = 0;
  virtual void set(std::string attribute, std::int64_t value) = 0;
  // Its parameters only said where values lie: it reads none.
  virtual void drop_parameters() = 0;
  // The operation is left out: its output is its first input.
  virtual void pass_on() = 0;
  // The operation is this exchange of its first input.
  virtual void exchange(const ExchangeSpec& spec) = 0;
};

// When an operation of a backward runs.
//
// Note [Weight gradients]: operations add gradients of parameters in place, to the buffers that the optimizer reads;
// gradients of inputs are values. A split backward makes those of inputs (B) before those of weights (W). Both halves
// have the operations of a whole backward, in its order: both ways give the same bits.
enum class Part : std::uint8_t {
  inputs,   // in B
  weights,  // in W
  both,     // in B for the outputs it has, and in W for its parameters
};

// One placed operation whose gradients are being made.
class Deriving {
 public:
  virtual ~Deriving() = default;
  virtual const Operation& operation() const = 0;
  virtual const ValuePlace& placement(int value) const = 0;
  virtual const ParameterAt& parameter(std::size_t i) const = 0;
  // The gradient of an output; -1 when there is none. The second: of an output that an exchange completes, what came
  // back before that exchange was undone.
  virtual int gradient(std::size_t output) = 0;
  virtual int resting_gradient(std::size_t output) = 0;
  virtual bool needs(std::size_t input) const = 0;
  bool trains(std::size_t i) const { return parameter(i).trainable; }
  // A new value that lies as `like` does, or as a summand of that over tp.
  virtual int new_gradient(int like, bool partial = false) = 0;
  virtual void emit(Operation operation, Part part) = 0;
  // Adds `gradient` to that of an input.
  virtual void contribute(std::size_t input, int gradient) = 0;
  // What other readers of the input have given so far, which the caller will add itself; -1: nothing.
  virtual int take_gradient(std::size_t input) = 0;
};

struct OpRule {
  std::string_view name;
  void (*place)(Placing&) = nullptr;
  void (*derive)(Deriving&) = nullptr;  // null: it has no gradient
  // Its outputs are made again in backward, whatever is recomputed: their inputs are kept anyway.
  bool cheap = false;
  // The first operation of its backward can hand over its first output, too, as an output behind its own.
  bool back_makes_output = false;
  // By its name alone it is made again only together with its first input: it writes over that, or is one operation
  // with what makes it (program/fuse.h), so that bits stay what they are.
  bool with_input = false;
  // Layers have it, and made again by its name it gives equal bits. Not rotation, which a kernel makes together with
  // attention and rounds otherwise than alone.
  bool remade_by_name = false;
  // What it makes is decided once and never made again.
  bool decides = false;
  // Its backward is linear in the gradients of its outputs: a summand over tp may pass it before it is summed.
  bool passes_summands = false;
};

// InternalError when there is none.
const OpRule& op_rule(std::string_view name);

// Of operations that can be made again by name, and of kinds of activations.
const std::vector<std::string>& remade_names();

}  // namespace orthant
