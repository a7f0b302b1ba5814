// The executor's values on their way between units, here and on other ranks.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include "orthant/base/error.h"
#include "orthant/base/index.h"
#include "orthant/nn/scalar_type.h"
#include "orthant/runtime/executor_step.h"

namespace orthant {
at::Tensor on_edge(const at::Tensor& tensor, const ValueSpec& value) {
  if (!tensor.defined()) return tensor;
  return value.opaque && tensor.is_non_overlapping_and_dense() ? tensor : tensor.contiguous();
}

void Executor::begin_list(Step& step, const std::vector<Action>& actions) {
  for (auto& row : step.rows) {
    row.values.resize(graph_.values.size());
    row.sends.resize(graph_.values.size());
    row.runs.resize(graph_.units.size());
  }
  for (const auto& action : actions) {
    if (action.kind == ActionKind::send) ++step.rows[to_index(action.microbatch)].sends[to_index(action.value)];
  }
  if (links_ != nullptr)
    links_->begin(actions, [this, &step](const Action& action) { return form_of(step, action); }, step.facts.step);
}

void Executor::exchange(Step& step, const Action& action) {
  if (links_ == nullptr) {
    throw InternalError(fmt::format("{}: this executor has no links to other stages", to_string(action, graph_)));
  }
  auto& gradients = step.rows[to_index(action.microbatch)].gradients;
  const std::pair place(action.value, action.consumer);
  if (action.kind == ActionKind::send) {
    links_->send(action, take_value(step, action.value, action.microbatch));
  } else if (action.kind == ActionKind::send_gradient) {
    auto node = gradients.extract(place);
    links_->send(action, node.empty() ? at::Tensor() : node.mapped());
  } else if (action.kind == ActionKind::receive) {
    step.rows[to_index(action.microbatch)].values[to_index(action.value)] = {links_->receive(action),
                                                                             local_readers_[to_index(action.value)]};
  } else {
    gradients[place] = links_->receive(action);
  }
}

void Executor::put_value(Step& step, int value, int m, const at::Tensor& tensor) const {
  auto& row = step.rows[to_index(m)];
  const int readers = local_readers_[to_index(value)] + row.sends[to_index(value)];
  if (readers > 0) row.values[to_index(value)] = {on_edge(tensor, graph_.values[to_index(value)]), readers};
}

at::Tensor Executor::take_value(Step& step, int value, int m) const {
  auto& slot = step.rows[to_index(m)].values[to_index(value)];
  auto tensor = slot.tensor;
  if (--slot.readers_left == 0) slot.tensor.reset();
  return tensor;
}

StageLinks::Form Executor::form_of(const Step& step, const Action& action) const {
  const auto& value = graph_.values[to_index(action.value)];
  const auto& microbatch = step.microbatches[to_index(action.microbatch)];
  const auto& fields = microbatch.fields;
  StageLinks::Form form{value.shape, scalar_type(value.dtype)};
  auto& sizes = form.sizes;
  if (sizes.empty()) return form;
  if (value.tokens_of.empty()) {
    const auto& unpadded = microbatch.token_rows;
    sizes[0] = unpadded.empty() ? fields.begin()->second.size(0) : unpadded.begin()->second.picked.size(0);
  } else {
    const auto& ids = fields.at(value.tokens_of);
    const std::int64_t rows = ids.size(0);
    const std::int64_t sequence = context_ == nullptr ? ids.size(1) : context_->positions(ids.size(1)).size();
    if (value.sequence_sharded) {
      sizes = {tensor_->part(rows * sequence).size(), sizes.back()};
    } else {
      sizes[0] = rows;
      sizes[1] = sequence;
    }
  }
  if (value.tp && tensor_ != nullptr) sizes.back() = tensor_->part(value.shape.back()).size();
  return form;
}

}  // namespace orthant
