// Padding to the longest row of a microbatch computes what padding to the sequence length computes, dropout included.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "orthant/train/parity.h"
#include "orthant/train/run.h"

namespace orthant {
namespace pad_to_longest_test {

const std::vector<std::string> kDouble = {"precision.params=float64", "precision.compute=float64",
                                          "precision.reduce=float64"};

RunConfig config_of(std::vector<std::string> overrides) {
  overrides.insert(overrides.end(), kDouble.begin(), kDouble.end());
  return read_run_config(load_run_document("", overrides));
}

// Two BERT towers with dropout on texts of many lengths, two microbatches.
TEST(PadToLongest, TrimodalTrainingIsTheSame) {
  auto config = config_of({"model.primary.hidden_dropout_prob=0.2", "model.primary.attention_probs_dropout_prob=0.2",
                           "model.secondary.hidden_dropout_prob=0.1", "parallel.microbatches=2",
                           "train.global_batch_size=6", "data.sequence_length=40", "data.samples=64"});
  config.trainer.pad_to_longest = false;
  const auto full = run_parity_side(config, {});
  config.trainer.pad_to_longest = true;
  const auto trimmed = run_parity_side(config, {});
  const auto result = compare_sides(trimmed, full, 1e-12);
  EXPECT_TRUE(result.pass) << parity_text(result);
  EXPECT_FALSE(result.bitwise) << "other shapes add up in another order; equal bits would mean that nothing was cut";
}

// Rows of `lengths` targets, then padding.
Batch padded_rows(const std::vector<std::int64_t>& lengths, std::int64_t length, std::int64_t vocab_size) {
  const auto rows = static_cast<std::int64_t>(lengths.size());
  const auto ids = at::arange(rows * length, at::kLong).mul(7).remainder(vocab_size).reshape({rows, length});
  const auto labels = ids.mul(3).add(1).remainder(vocab_size);
  Batch batch;
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto real = lengths[static_cast<std::size_t>(row)];
    labels[row].narrow(0, real, length - real).fill_(kIgnoredLabel);
    batch.weight_sum += static_cast<double>(real);
  }
  batch.fields = {{"input_ids", ids}, {"labels", labels}};
  batch.rows = batch.samples = rows;
  return batch;
}

struct Numbers {
  double loss, grad_norm, eval_loss;
  std::vector<at::Tensor> gradients;
};

Numbers llama_numbers(bool pad_to_longest, const Batch& batch) {
  auto config = config_of(
      {"model={\"kind\": \"llama\", \"hidden_size\": 32, \"num_hidden_layers\": 2, "
       "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"intermediate_size\": 48, "
       "\"vocab_size\": 64, \"max_position_embeddings\": 32}",
       "data={\"kind\": \"tokens\", \"sequence_length\": 24}", "parallel.microbatches=2", "train.global_batch_size=4"});
  config.trainer.pad_to_longest = pad_to_longest;
  const auto trainer = make_trainer(config);
  const auto numbers = trainer->gradients(batch).get();
  Numbers found{numbers.loss,
                numbers.grad_norm,
                trainer->evaluate(batch.fields, {"loss"}).at("loss").to(at::kDouble).item<double>(),
                {}};
  for (const auto& buffer : trainer->parameters().buffers()) {
    for (const auto& entry : buffer->layout().entries) found.gradients.push_back(buffer->gradient_view(entry).clone());
  }
  return found;
}

TEST(PadToLongest, LlamaGradientsAreTheSame) {
  for (const auto& lengths : std::vector<std::vector<std::int64_t>>{{3, 9, 17, 5}, {1, 1, 24, 2}, {0, 0, 6, 11}}) {
    const auto batch = padded_rows(lengths, 24, 64);
    const auto full = llama_numbers(false, batch);
    const auto trimmed = llama_numbers(true, batch);
    EXPECT_NEAR(trimmed.loss, full.loss, 1e-12);
    EXPECT_NEAR(trimmed.grad_norm, full.grad_norm, 1e-12);
    EXPECT_NEAR(trimmed.eval_loss / full.eval_loss, 1, 1e-12);
    ASSERT_EQ(trimmed.gradients.size(), full.gradients.size());
    for (std::size_t i = 0; i < full.gradients.size(); ++i) {
      EXPECT_LT((trimmed.gradients[i] - full.gradients[i]).abs().max().item<double>(), 1e-12);
    }
  }
}

}  // namespace pad_to_longest_test
}  // namespace orthant
