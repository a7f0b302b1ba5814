#include "orthant/nn/embedding.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>

#include "orthant/base/error.h"
#include "orthant/nn/embedding_table.h"
#include "orthant/nn/kept.h"
#include "orthant/nn/kernels/tensors.h"
#include "orthant/nn/projection.h"

namespace orthant::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// On the CPU, where a wrong id would read and write foreign memory; a device checks by itself and must not be waited
// for.
void check_ids(const Lookup& lookup) {
  if (!lookup.ids.is_cpu() || lookup.ids.numel() == 0) return;
  const auto [least, largest] = at::aminmax(lookup.ids);
  const std::int64_t low = least.item<std::int64_t>();
  const std::int64_t high = largest.item<std::int64_t>();
  const std::int64_t entries = lookup.table->value.size(0);
  if (low >= 0 && high < entries) return;
  throw DataError(fmt::format("id {} of a table with {} entries", low < 0 ? low : high, entries),
                  {.remedy = "use ids from 0 on and a vocab_size above the largest"});
}

at::Tensor forward_sum(const std::vector<Lookup>& lookups) {
  const auto deepest = std::max_element(lookups.begin(), lookups.end(),
                                        [](const Lookup& a, const Lookup& b) { return a.ids.dim() < b.ids.dim(); });
  at::DimVector shape(deepest->ids.sizes());
  if (shape.size() != 2) throw InternalError("embedding: no lookup has ids of shape [rows, sequence]");
  std::vector<TableRows> rows;
  bool served = true;
  for (const Lookup& lookup : lookups) {
    check_ids(lookup);
    rows.push_back({lookup.ids.contiguous(), lookup.table->value.contiguous()});
    served = served && kernels::serve(rows.back().table);
  }
  const std::int64_t tokens = deepest->ids.numel();
  const at::Tensor sum = served ? fused::sum_table_rows(rows, tokens) : plain::sum_table_rows(rows, tokens);
  shape.push_back(sum.size(1));
  return at::_unsafe_view(sum, shape);
}

void add_rows(Parameter& table, const at::Tensor& ids, const at::Tensor& gy) {
  if (table.fresh) table.gradient.zero_();
  table.fresh = false;
  const at::Tensor wide = gy.to(table.gradient.scalar_type());
  if (kernels::serve(table.gradient) && table.gradient.is_contiguous()) {
    fused::add_table_rows(table.gradient, ids, wide);
  } else {
    plain::add_table_rows(table.gradient, ids, wide);
  }
}

struct EmbeddingState {
  std::vector<Parameter*> tables;  // the trainable ones; their ids are saved in the same order
  Pass* pass;
  std::size_t num_arguments;  // of apply()
};

// Forward and backward are Local.
struct Embedding : torch::autograd::Function<Embedding> {
  static at::Tensor forward(AutogradContext* ctx, at::TensorList tables, const std::vector<Lookup>& lookups,
                            Pass* pass) {
    BelowAutograd below;
    EmbeddingState state = {{}, pass, tables.size() + 2};
    variable_list ids;
    for (const Lookup& lookup : lookups) {
      if (!lookup.table->trainable()) continue;
      state.tables.push_back(lookup.table);
      ids.push_back(lookup.ids.contiguous());
    }
    ctx->save_for_backward(std::move(ids));
    keep(ctx, std::move(state));
    return forward_sum(lookups);
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    BelowAutograd below;
    const auto& state = kept<EmbeddingState>(ctx);
    const at::Tensor gy = as_matrix(gradients[0]);
    const variable_list ids = ctx->get_saved_variables();
    for (std::size_t k = 0; k < ids.size(); ++k) {
      state.pass->add_weight_gradient([table = state.tables[k], id = ids[k], gy] {
        BelowAutograd under;
        add_rows(*table, id, gy);
      });
    }
    return variable_list(state.num_arguments);
  }
};

}  // namespace

at::Tensor embedding(const std::vector<Lookup>& lookups, Pass& pass) {
  if (!at::GradMode::is_enabled()) {
    BelowAutograd below;
    return forward_sum(lookups);
  }
  std::vector<at::Tensor> tables;
  for (const Lookup& lookup : lookups) tables.push_back(lookup.table->value);
  return Embedding::apply(at::TensorList(tables), lookups, &pass);
}

}  // namespace orthant::nn
