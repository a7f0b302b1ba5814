// The operations of a unit as plain data: what a model records, what compilers place, differentiate and fuse, what the
// runtime runs and the planner prices. Pure.
//
// Note [Values of operations]: inside a unit every value is a matrix or a vector of numbers per token, row or head, and
// sizes are symbols: a dim is a factor times the microbatch's rows, tokens or sequence. So one list serves every
// microbatch, and evaluating its dims gives the sizes of one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "orthant/mesh/axis.h"

namespace orthant {

enum class Sym : std::uint8_t { one, rows, tokens, sequence };  // tokens: rows times sequence

// How numbers are stored. statistic: sums and losses, float32 or float64; index and mask are the batch's own. opaque:
// what a user's module reads and makes, of a shape and type that are known when it runs, and what autograd keeps of it.
// place: where tokens go, whole numbers that an operation makes. float8: e4m3, which a product reads.
enum class Number : std::uint8_t { compute, statistic, index, mask, opaque, place, float8 };

// Of one dim over one axis. It consists of blocks (one of all when empty), each cut in whole granules by the balanced
// rule; a block of fewer granules than ranks is held in copies, as in layout/local_parameter.h.
struct DimCut {
  Axis axis = Axis::tp;
  std::int64_t granule = 1;
  std::vector<std::int64_t> blocks = {};
  friend bool operator==(const DimCut&, const DimCut&) = default;
};

struct Dim {
  Sym sym = Sym::one;
  std::int64_t factor = 1;
  std::vector<DimCut> cuts = {};  // none: whole
  friend bool operator==(const Dim&, const Dim&) = default;
};

// Which part of a value a rank has. Over the axes of `partial` it has a summand of the whole.
struct ValuePlace {
  std::vector<Dim> dims = {};
  AxisSet partial = {};

  // Whether a rank has some of the tokens alone.
  bool cuts_tokens() const { return !dims.empty() && dims[0].sym == Sym::tokens && !dims[0].cuts.empty(); }
  friend bool operator==(const ValuePlace&, const ValuePlace&) = default;
};

// Options of an operation by name, in the order they were set.
using Attribute = std::variant<std::int64_t, double, std::string, std::vector<double>>;
class Attributes {
 public:
  void set(std::string name, Attribute value);
  const Attribute* find(std::string_view name) const;
  // InternalError when there is none of that type.
  std::int64_t integer(std::string_view name) const;
  double number(std::string_view name) const;
  const std::string& text(std::string_view name) const;
  const std::vector<double>& numbers(std::string_view name) const;
  // Whether it was set to something but 0.
  bool flag(std::string_view name) const;

  const std::vector<std::pair<std::string, Attribute>>& all() const { return all_; }
  friend bool operator==(const Attributes&, const Attributes&) = default;

 private:
  std::vector<std::pair<std::string, Attribute>> all_;
};

// Something that ranks of an axis do together. gather and scatter are along `dim`; of dim 0 tokens are cut. to_experts
// and from_experts move rows of tokens over ep, see Note [Routed rows] in ops/experts/rule.cpp.
struct ExchangeSpec {
  enum class Kind : std::uint8_t { sum, gather, scatter, to_experts, from_experts };
  Kind kind = Kind::sum;
  Axis axis = Axis::tp;
  int dim = 0;
  bool moves_rows() const { return kind == Kind::to_experts || kind == Kind::from_experts; }
  friend bool operator==(const ExchangeSpec&, const ExchangeSpec&) = default;
};
std::string_view exchange_name(ExchangeSpec::Kind kind);

// Numbers are places in the lists of a Body or Program. A value of -1 is absent: an input that a form of the operation
// lacks, an output that nobody wants.
struct Operation {
  std::string name;  // of the operation: "rms_norm"
  std::vector<int> in = {};
  std::vector<int> out = {};
  std::vector<int> parameters = {};
  Attributes attributes = {};
  std::optional<ExchangeSpec> exchange = {};
  std::vector<int> frees = {};  // of a compiled list: values that nobody reads after it
  friend bool operator==(const Operation&, const Operation&) = default;
};

// Of an attention: its rows are cut over cp, and it exchanges keys and values itself.
inline bool shares_rows(const Operation& attention) {
  return attention.attributes.find("context") != nullptr;
}

// Of an attention: its keys and values stay in a cache, where later tokens of the same sequence meet them.
inline bool caches_keys(const Operation& attention) {
  return attention.attributes.find("cached") != nullptr;
}

struct BodyValue {
  std::string name;
  std::vector<Dim> dims = {};
  Number number = Number::compute;
  friend bool operator==(const BodyValue&, const BodyValue&) = default;
};

// By its name within the unit ("norm1.weight"), or by the label of parameters that one product uses together ("qkv").
struct BodyParameter {
  std::string name;
  bool joined = false;
  friend bool operator==(const BodyParameter&, const BodyParameter&) = default;
};

// What a unit computes, as a model's family records it: see recorder.h. Nothing in it knows ranks.
struct Body {
  std::vector<BodyValue> values;
  std::vector<BodyParameter> parameters;
  std::vector<int> inputs;   // values, in the order of the unit's inputs
  std::vector<int> outputs;  // likewise
  std::vector<Operation> operations;
  friend bool operator==(const Body&, const Body&) = default;
};

}  // namespace orthant
