#include "orthant/specs/unit_cost.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "orthant/base/error.h"
#include "orthant/ops/functions.h"

namespace orthant {
namespace {

// Sums of a few of these stay within 64 bits.
constexpr std::int64_t kMaxBytes = std::int64_t{1} << 56;

std::int64_t bytes(const Shape& shape, DType dtype) {
  const std::int64_t elements = num_elements(shape);
  if (elements <= kMaxBytes / bytes_of(dtype)) return elements * bytes_of(dtype);
  throw ConfigError(
      fmt::format("one microbatch needs an activation of shape [{}], more than 2^56 bytes", fmt::join(shape, ", ")),
      {.remedy = "use fewer rows or a shorter sequence"});
}

}  // namespace

std::int64_t KeptBytes::activation(const Shape& shape) const {
  return bytes(shape, compute_);
}

std::int64_t KeptBytes::statistics(const Shape& shape) const {
  return bytes(shape, statistics_dtype(compute_));
}

std::int64_t RankWork::part(std::int64_t size) const {
  return (size + work_.tensor.degree - 1) / work_.tensor.degree;
}

double RankWork::num_own_tokens() const {
  return cuts_tokens() ? static_cast<double>(part(work_.rows * work_.sequence)) : num_tokens();
}

Shape RankWork::own(std::int64_t channels) const {
  return cuts_tokens() ? Shape{part(work_.rows * work_.sequence), channels} : all(channels);
}

Shape RankWork::column_input(std::int64_t channels) const {
  return work_.tensor.regather ? own(channels) : all(channels);
}

Shape RankWork::gathered(std::int64_t channels) const {
  return cuts_tokens() ? all(channels) : Shape{0, channels};
}

Shape RankWork::value(const ValueSpec& spec) const {
  if (spec.sequence_sharded && cuts_tokens()) return own(spec.shape.back());
  Shape shape = spec.shape;
  if (spec.tp && work_.tensor.loss_parallel) {
    std::int64_t& size = shape.at(static_cast<std::size_t>(spec.tp->dim));
    size = part(size);
  }
  return shape;
}

Shape RankWork::parameter(const ParameterSpec& spec) const {
  if (!spec.tp) return spec.shape;
  Shape shape = spec.shape;
  std::int64_t& size = shape.at(static_cast<std::size_t>(spec.tp->dim));
  const std::int64_t granule = spec.tp->granule;
  const auto blocks = spec.tp->blocks.empty() ? std::vector<std::int64_t>{size} : spec.tp->blocks;
  size = 0;
  for (const std::int64_t block : blocks) size += part(block / granule) * granule;
  return shape;
}

DType statistics_dtype(DType compute) {
  return compute == DType::float64 ? DType::float64 : DType::float32;
}

double product_flops(double m, double n, double k) {
  return 2 * m * n * k;
}

double attention_flops(double rows, double heads, double sequence, double head_size, bool causal) {
  const double both_products = 2 * product_flops(sequence, sequence, head_size) * rows * heads;
  return causal ? both_products / 2 : both_products;
}

UnitCost product_cost(double product) {
  UnitCost cost;
  cost.forward_flops = product;
  cost.input_flops = product;
  cost.weight_flops = product;
  return cost;
}

void keep_always(UnitCost& cost, std::int64_t bytes) {
  cost.kept_bytes.fill(bytes);
}

std::int64_t deferred_layer_bytes(const RankWork& rank, const KeptBytes& kept, std::int64_t hidden, std::int64_t inner,
                                  std::int64_t statistics) {
  return 2 * kept.activation(rank.column_input(hidden))  // inputs of column products
         + 2 * kept.activation(rank.own(hidden))         // output gradients of row products
         + 2 * kept.activation(rank.gathered(hidden))    // and what is gathered of them
         + 4 * kept.activation(rank.own(hidden))         // norms
         + kept.activation(rank.all(inner)) + kept.statistics(rank.own(statistics));
}

std::int64_t deferred_logits_bytes(const RankWork& rank, const KeptBytes& kept, std::int64_t hidden,
                                   std::int64_t words) {
  return kept.activation(rank.column_input(hidden)) + kept.activation(rank.all(rank.part(words)));
}

ValueSpec batch_field(std::string name, Shape shape, DType dtype) {
  ValueSpec value;
  value.name = std::move(name);
  value.shape = std::move(shape);
  value.dtype = dtype;
  value.differentiable = false;
  return value;
}

ValueSpec activation_value(std::string name, Shape shape, DType compute) {
  ValueSpec value;
  value.name = std::move(name);
  value.shape = std::move(shape);
  value.dtype = compute;
  return value;
}

UnitSpec make_unit(std::string name, std::string kind, std::vector<std::string> inputs,
                   std::vector<std::string> outputs) {
  UnitSpec unit;
  unit.name = std::move(name);
  unit.kind = std::move(kind);
  unit.inputs = std::move(inputs);
  unit.outputs = std::move(outputs);
  return unit;
}

namespace {

Body cross_entropy_body(const ValueSpec& logits, std::vector<double> class_weights) {
  Recorder r;
  const std::int64_t classes = logits.shape.back();
  const bool per_token = logits.shape.size() == 3;
  const Value x = per_token ? r.tokens("logits", classes) : r.rows("logits", classes);
  const Value labels = r.field("labels", per_token ? Sym::tokens : Sym::rows, Number::index);
  r.output(ops::cross_entropy(r, x, labels, {classes, std::move(class_weights)}));
  return r.finish();
}

}  // namespace

void append_cross_entropy(GraphSpec& spec, const WorkSize& work, std::vector<double> class_weights) {
  const DType dtype = statistics_dtype(work.compute);
  UnitSpec unit = make_unit("loss", "cross_entropy", {"logits", "labels"}, {"loss"});
  unit.is_loss = true;
  // The logits are overwritten by their gradient.
  keep_always(unit.cost, KeptBytes(work.compute).activation(RankWork(work).value(spec.value("logits"))));
  unit.cost.output_bytes = bytes_of(dtype);
  unit.body = cross_entropy_body(spec.value("logits"), std::move(class_weights));
  spec.values.push_back(activation_value("loss", {}, dtype));
  spec.units.push_back(std::move(unit));
}

}  // namespace orthant
