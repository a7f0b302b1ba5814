// The spec of a model: a graph of units as plain data. The runtime builds its modules from it, the planner prices it,
// the checkpoint names its tensors, and nothing here knows torch, ranks or a mesh. Shapes are global (of the whole
// model) and, for values, of one microbatch.
//
// A unit is the smallest thing a schedule moves: an embedding, one transformer layer, a head, a loss. Its inputs and
// outputs are named values; a value is written by one unit (or comes with the batch) and read by any number of later
// ones. Units are listed in an order in which they can run.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "orthant/graph/context.h"
#include "orthant/graph/dtype.h"
#include "orthant/graph/operation.h"

namespace orthant {

using Shape = std::vector<std::int64_t>;

std::int64_t num_elements(const Shape& shape);

// How the first values of a parameter are drawn: a function of (seed, parameter name, global element), see
// RandomStream.
struct Init {
  enum class Kind { zeros, ones, normal, uniform, given };  // given: the user's module brings the values
  Kind kind = Kind::zeros;
  double scale = 0;  // standard deviation of normal, bound of uniform [-scale, scale]
  friend bool operator==(const Init&, const Init&) = default;
};

// How a tensor is cut over tp along one dim. The dim consists of `blocks` (fused projections; one block when empty),
// each cut by the balanced rule in whole granules (a head). A block with fewer granules than the degree is held in
// copies.
struct Split {
  int dim = 0;
  std::vector<std::int64_t> blocks = {};
  std::int64_t granule = 1;
  friend bool operator==(const Split&, const Split&) = default;
};

// Which expert of a layer a parameter belongs to. Declared: experts may be cut over ep. In a graph as it lies on a
// mesh: they lie on a mesh of their own, see layout/expert_view.h.
struct ExpertPlace {
  std::int64_t index = 0;
  std::int64_t count = 1;  // of experts
  friend bool operator==(const ExpertPlace&, const ExpertPlace&) = default;
};

struct ParameterSpec {
  std::string name;  // full: "layers.3.attention.wq.weight"
  Shape shape = {};
  Init init = {};
  bool decay = true;      // weight decay applies: not to biases and norms
  bool trainable = true;  // a frozen one has no gradient and no optimizer state
  // Neighbours with the same non-empty label are used by one product and lie side by side without a gap: q, k, v.
  std::string joined = {};
  bool table = false;                      // its rows are looked up by id; a tied one may be multiplied elsewhere
  std::optional<Split> tp = {};            // nothing: replicated over tp
  std::optional<ExpertPlace> expert = {};  // nothing: no expert's
  // A frozen one with a number per expert of its unit: a step adds so much where an expert took less than the mean, and
  // takes it away where it took more, see train/expert_balance.h. 0: it stays.
  double moved_by_loads = 0;
  // Declared: under sequence parallelism each tp rank sees only its own tokens, so the gradient is a partial sum. In a
  // resolved graph: the gradient is a partial sum.
  bool partial_under_sequence_parallel = false;
  // Used on each head alike. Where heads are cut over tp, a rank sees its own alone, and the gradient is a partial sum
  // with and without sequence parallelism: partial_under_sequence_parallel says so in a resolved graph.
  bool used_per_head = false;
  friend bool operator==(const ParameterSpec&, const ParameterSpec&) = default;
};

struct ValueSpec {
  std::string name;
  Shape shape = {};  // dim 0 counts the rows of a microbatch; a loss has shape {}
  DType dtype = DType::float32;
  bool differentiable = true;
  bool opaque = false;  // of a user's own graph: shape and dtype are known only when it has been computed
  // The batch field [rows, sequence] whose tokens it has, so that its size in a microbatch is known; empty: none.
  std::string tokens_of = {};
  std::optional<Split> tp = {};  // vocabulary-sharded logits
  // Declared: under sequence parallelism its tokens, row after row, are cut over tp: [own tokens, channels]. In a
  // resolved graph: its tokens are cut, and nn::Pass::cuts_tokens() holds in the units that read and write it.
  bool sequence_sharded = false;
  friend bool operator==(const ValueSpec&, const ValueSpec&) = default;
};

enum class Recompute { none, selective, full };

inline constexpr std::array<Recompute, 3> kRecomputeModes = {Recompute::none, Recompute::selective, Recompute::full};

std::string_view recompute_name(Recompute mode);
Recompute parse_recompute(std::string_view text);  // ConfigError with the nearest name

// What a unit costs for one microbatch, from shapes alone.
struct UnitCost {
  double forward_flops = 0;
  double input_flops = 0;   // backward: gradients of the inputs
  double weight_flops = 0;  // backward: gradients of the weights
  // Bytes that live from this unit's forward to its backward, the inputs it keeps included, its outputs not (whoever
  // reads them counts them). Indexed by Recompute.
  std::array<std::int64_t, 3> kept_bytes = {};
  // Bytes that wait for the gradients of the weights once those of the inputs are made, where a schedule makes them
  // apart: the same whatever was recomputed.
  std::int64_t deferred_bytes = 0;
  std::int64_t output_bytes = 0;
  friend bool operator==(const UnitCost&, const UnitCost&) = default;
};

// Of a head and a loss that are one unit: see models/head_loss.h.
struct ChunkedLogits {
  std::int64_t classes = 0;  // of all tp ranks; each makes its own part of them
  std::int64_t rows = 0;     // tokens whose logits exist at once
  std::string loss = {};     // name of the unit that the loss would be
  friend bool operator==(const ChunkedLogits&, const ChunkedLogits&) = default;
};

// What units of one kind compute, shared by them. Equal when what was recorded is.
class SharedBody {
 public:
  SharedBody() = default;
  SharedBody(Body body)
      : body_(std::make_shared<const Body>(std::move(body))) {}  // NOLINT(google-explicit-constructor)

  explicit operator bool() const { return body_ != nullptr; }
  const Body& operator*() const { return *body_; }
  const Body* operator->() const { return body_.get(); }
  friend bool operator==(const SharedBody& a, const SharedBody& b) {
    return a.body_ == b.body_ || (a && b && *a == *b);
  }

 private:
  std::shared_ptr<const Body> body_;
};

struct UnitSpec {
  std::string name;  // "layers.3"
  std::string kind;  // names the code that runs it: "llama.layer"
  std::vector<std::string> inputs = {};
  std::vector<std::string> outputs = {};
  std::vector<ParameterSpec> parameters = {};  // those it owns
  std::vector<std::string> borrowed = {};      // names of tied parameters that an earlier unit owns
  bool recomputable = false;              // transformer layers; embeddings, heads and losses always keep what they need
  bool is_loss = false;                   // its first output is a weighted sum over rows
  std::string auxiliary_loss = {};        // an output that is one, too, besides what the unit is for; empty: none
  bool backward_reads_parameters = true;  // false for embeddings: their backward needs ids only
  std::optional<ChunkedLogits> logits = {};  // of a head that is the loss, too: it makes and forgets them
  UnitCost cost = {};
  SharedBody body = {};

  std::int64_t num_parameters() const;  // without borrowed ones
  // Whether it is a user's own module, the operation "module": autograd adds gradients of its parameters to what lies
  // there, and a split backward makes them with those of its inputs.
  bool runs_module() const;
  std::int64_t num_experts() const;  // that its tokens are dealt out to; 0: none
  friend bool operator==(const UnitSpec&, const UnitSpec&) = default;
};

// How tp ranks share the units of a graph.
struct TensorSharing {
  int degree = 1;
  bool sequence_parallel = false;  // between products each rank holds its own tokens
  bool regather = false;           // a column product then keeps its own tokens alone
  bool loss_parallel = false;      // logits stay cut over the vocabulary
  friend bool operator==(const TensorSharing&, const TensorSharing&) = default;
};

struct GraphSpec {
  std::string name;                     // "llama"
  std::vector<ValueSpec> batch_fields;  // values that come with the data: ids, masks, labels
  std::vector<ValueSpec> values;        // values that units write
  std::vector<UnitSpec> units;
  // Nothing: not resolved, placements say what could be cut over tp. Set: resolved, placements say what is cut. See
  // layout/tensor_policy.h.
  std::optional<TensorSharing> tensor = {};
  // How cp ranks share every row. Shapes are of whole rows.
  ContextSharing context = {};
  // Ranks that hold different experts and send each other tokens for them: the degree of ep.
  int expert_degree = 1;
  // Of a generation: attention meets the keys of tokens that came before in a cache (models/generation_graph.h).
  bool cached = false;

  // Refuses, with a ConfigError that names the culprits: names used twice, an input that nobody wrote before, an output
  // that is no value or has two writers, a value nobody writes, a borrowed parameter without an earlier owner. A graph
  // without a loss is fine: only training asks for one.
  void check() const;

  const UnitSpec& unit(std::string_view unit_name) const;     // ConfigError with the nearest name
  int unit_index(std::string_view unit_name) const;           // likewise
  const ValueSpec& value(std::string_view value_name) const;  // a unit's or a batch field; InternalError otherwise
  bool is_batch_field(std::string_view value_name) const;

  // The unit that writes a value; -1 for a batch field. Units that read it, ascending.
  int producer(std::string_view value_name) const;
  std::vector<int> consumers(std::string_view value_name) const;

  // The batch field [rows, sequence] whose tokens the unit works on; empty when it works on none.
  std::string tokens_of(const UnitSpec& unit) const;

  const ParameterSpec& parameter(std::string_view parameter_name) const;  // InternalError when unknown
  int owner(std::string_view parameter_name) const;                       // the unit that owns it
  std::vector<int> users(std::string_view parameter_name) const;          // owner and borrowers, ascending
  std::int64_t num_parameters() const;                                    // a tied one once
  std::vector<std::string> losses() const;                                // values, in unit order

  friend bool operator==(const GraphSpec&, const GraphSpec&) = default;
};

}  // namespace orthant
