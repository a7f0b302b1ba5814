#include "orthant/models/graph_parts.h"

#include <utility>

#include "orthant/ops/functions.h"
#include "orthant/program/sizes.h"

namespace orthant {

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
  unit.body = cross_entropy_body(spec.value("logits"), std::move(class_weights));
  spec.values.push_back(activation_value("loss", {}, dtype));
  spec.units.push_back(std::move(unit));
}

}  // namespace orthant
