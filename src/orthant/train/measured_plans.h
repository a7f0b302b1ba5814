// Which plans the products of a trainer's steps run by (train.product_plans=measured): asks rank 0 to measure, tells
// all ranks, and hands plans to the steps.
//
// Note [Measured plans]: two plans for one product may differ in bits, so whoever continues a run must have its plans
// and not others that were faster that day. Step 1 of a model always takes libtorch's own choice and notes which
// products there are; behind it rank 0 measures those of all ranks, once, and steps from 2 on go by its choices. A run
// that goes on after step n > 0 has them from the file, so every step has one way to be computed, whoever makes it.
// Where a run goes on with another mesh, cut of the batch or precision, which has bits of its own anyway, it is as at
// its beginning. Nothing has to be known about the products in advance, and no extra step is made. What step 1 did not
// have (other lengths of texts, rows of an evaluation) stays with libtorch, whose choice follows from sizes, card and
// version.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "orthant/train/product_table.h"
#include "orthant/train/trainer_options.h"

namespace orthant {

class MeasuredPlans {
 public:
  // The options' library, or cuBLASLt of their device. ConfigError when there is none.
  MeasuredPlans(const GraphSpec& graph, const TrainerOptions& options, const Mesh& mesh);

  // For the step after so many, and for an evaluation then; null: libtorch's choice. Local, as is all but end_step().
  nn::ProductPlans* for_step(std::int64_t steps_done);
  nn::ProductPlans* for_evaluation(std::int64_t steps_done);

  // After a step of this trainer. Without a table products are measured and chosen now. Collective over the world then.
  void end_step();

  // What was chosen; nothing before the first step.
  const std::optional<ProductTable>& table() const { return table_; }

  // "llama 4bf92f3577b34da6, mesh dp=2, 4 microbatches, bfloat16 into float32": a table of others has no plans for
  // these products. The number stands for the sizes of all values and parameters.
  const std::string& settings() const { return settings_; }

  // Why a table cannot be used here: made by another library or for another card. Empty: it can.
  std::string refusal(const ProductTable& table);
  // Instead of measuring. ConfigError as refusal() says.
  void use(ProductTable table);

  // Called by rank 0 with what it has measured, before a step goes by it.
  void on_measured(std::function<void(const ProductTable&)> keep) { keep_ = std::move(keep); }

  std::uint64_t num_planned() const { return plans_.num_planned(); }

 private:
  ProductTable measure(const std::vector<std::string>& products);

  const TrainerOptions& options_;
  std::string settings_;
  nn::ProductPlans plans_;
  std::optional<ProductTable> table_;
  std::function<void(const ProductTable&)> keep_;
};

}  // namespace orthant
