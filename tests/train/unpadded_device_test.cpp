// Microbatches without padding by a CUDA device's kernels train what padded ones train, dropout included: see
// ops/device_case.h for the emulated card.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "ops/card.h"
#include "orthant/cuda/kernel.h"
#include "orthant/train/parity.h"
#include "orthant/train/run.h"
#include "orthant/train/unpadded_rows.h"

namespace orthant::unpadded_device_test {

constexpr std::int64_t kSequence = 150, kRows = 4;

RunConfig config_of(const std::string& model) {
  auto config = read_run_config(load_run_document(
      "", {"model=" + model, "data={\"kind\": \"tokens\", \"sequence_length\": 150}", "precision.compute=bfloat16",
           "parallel.microbatches=2", fmt::format("train.global_batch_size={}", kRows)}));
  config.trainer.device = test::card();
  return config;
}

// Heads of 32 channels.
std::string model_of(const std::string& kind, const std::string& more) {
  return "{\"kind\": \"" + kind +
         "\", \"hidden_size\": 64, \"num_hidden_layers\": 1, \"num_attention_heads\": 2, \"intermediate_size\": 48, "
         "\"vocab_size\": 64, \"max_position_embeddings\": 160" +
         more + "}";
}

Batch padded_rows(const std::vector<std::int64_t>& lengths, bool masked) {
  const auto ids = at::arange(kRows * kSequence, at::kLong).mul(7).remainder(61).reshape({kRows, kSequence});
  const auto labels = ids.mul(3).add(1).remainder(61);
  const auto mask = at::ones({kRows, kSequence}, at::kBool);
  Batch batch;
  for (std::int64_t row = 0; row < kRows; ++row) {
    const auto real = lengths[static_cast<std::size_t>(row)], lost = kSequence - real;
    labels[row].narrow(0, real, lost).fill_(kIgnoredLabel);
    mask[row].narrow(0, real, lost).fill_(false);
    if (real > 4) mask[row][2].fill_(false);
    batch.weight_sum += static_cast<double>(real);
  }
  batch.fields = {{"input_ids", ids}, {"labels", labels}};
  if (masked) {
    batch.fields["attention_mask"] = mask;
    batch.fields["token_type_ids"] = ids.remainder(2);
  }
  batch.rows = batch.samples = kRows;
  return batch;
}

// Loss, norm and gradients of a step, on the host.
std::vector<at::Tensor> numbers_of(RunConfig config, bool unpadded, const Batch& batch) {
  config.trainer.unpadded = unpadded;
  const auto trainer = make_trainer(config);
  const auto numbers = trainer->gradients(batch).get();
  std::vector<at::Tensor> found = {at::tensor(numbers.loss, at::kDouble), at::tensor(numbers.grad_norm, at::kDouble)};
  for (const auto& buffer : trainer->parameters().buffers()) {
    for (const auto& entry : buffer->layout().entries) {
      found.push_back(buffer->gradient_view(entry).to(at::kCPU, at::kDouble));
    }
  }
  return found;
}

TEST(UnpaddedOnDevice, EveryFamilyHasTheNumbersOfPaddedRows) {
  test::card();
  const std::vector<std::pair<std::string, bool>> models = {
      {model_of("bert", ", \"hidden_dropout_prob\": 0.2, \"attention_probs_dropout_prob\": 0.2"), true},
      {model_of("llama", ", \"num_key_value_heads\": 1, \"attention_dropout\": 0.2"), false},
      {model_of("gpt2", ", \"embd_pdrop\": 0.2, \"attn_pdrop\": 0.2, \"resid_pdrop\": 0.2"), false}};
  for (const auto& [model, masked] : models) {
    SCOPED_TRACE(model);
    const auto config = config_of(model);
    const auto batch = padded_rows({31, 7, 150, 1}, masked);
    const auto launches = [] { return cuda::KernelLibrary::of_process().num_launches("attention_backward"); };
    const auto padded = numbers_of(config, false, batch);
    const auto before = launches();
    const auto unpadded = numbers_of(config, true, batch);
    EXPECT_GT(launches(), before) << "attention took plain formulas";
    ASSERT_EQ(padded.size(), unpadded.size());
    double largest = 0;
    for (std::size_t i = 2; i < padded.size(); ++i) largest = std::max(largest, padded[i].abs().max().item<double>());
    for (std::size_t i = 0; i < padded.size(); ++i) {
      const double size = std::max(padded[i].abs().max().item<double>(), 0.01 * largest);
      EXPECT_LE((unpadded[i] - padded[i]).abs().max().item<double>() / size, parity_tolerance(DType::bfloat16))
          << "number or gradient " << i;
    }
  }
}

}  // namespace orthant::unpadded_device_test
