// Microbatches without padding train what padded ones train, dropout included.
#include "orthant/train/unpadded_rows.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "orthant/train/parity.h"
#include "orthant/train/run.h"

namespace orthant {
namespace unpadded_rows_test {

constexpr std::int64_t kSequence = 40;
constexpr std::int64_t kVocabulary = 64;

const std::vector<std::string> kDouble = {"precision.params=float64", "precision.compute=float64",
                                          "precision.reduce=float64"};

RunConfig config_of(std::vector<std::string> overrides) {
  overrides.insert(overrides.end(), kDouble.begin(), kDouble.end());
  return read_run_config(load_run_document("", overrides));
}

std::string model_of(const std::string& kind, const std::string& more) {
  return "model={\"kind\": \"" + kind +
         "\", \"hidden_size\": 32, \"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"intermediate_size\": 48, "
         "\"vocab_size\": 64, \"max_position_embeddings\": 64" +
         more + "}";
}

// Rows of `lengths` tokens, then padding. With a mask it says which are tokens; a token in the middle of a row is
// hidden.
Batch padded_rows(const std::vector<std::int64_t>& lengths, bool masked) {
  const auto rows = static_cast<std::int64_t>(lengths.size());
  const auto ids = at::arange(rows * kSequence, at::kLong).mul(7).remainder(kVocabulary).reshape({rows, kSequence});
  const auto labels = ids.mul(3).add(1).remainder(kVocabulary);
  const auto mask = at::ones({rows, kSequence}, at::kBool);
  Batch batch;
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto real = lengths[static_cast<std::size_t>(row)], lost = kSequence - real;
    labels[row].narrow(0, real, lost).fill_(kIgnoredLabel);
    mask[row].narrow(0, real, lost).fill_(false);
    if (masked) ids[row].narrow(0, real, lost).fill_(1);
    if (real > 4) mask[row][2].fill_(false);
    batch.weight_sum += static_cast<double>(real);
  }
  batch.fields = {{"input_ids", ids}, {"labels", labels}};
  if (masked) {
    batch.fields["attention_mask"] = mask;
    batch.fields["token_type_ids"] = ids.remainder(2);
  }
  batch.rows = batch.samples = rows;
  return batch;
}

// Loss, norm and gradients of a step.
std::vector<at::Tensor> numbers_of(RunConfig config, bool unpadded, const Batch& batch) {
  config.trainer.unpadded = unpadded;
  const auto trainer = make_trainer(config);
  const auto numbers = trainer->gradients(batch).get();
  std::vector<at::Tensor> found = {at::tensor(numbers.loss, at::kDouble), at::tensor(numbers.grad_norm, at::kDouble)};
  for (const auto& buffer : trainer->parameters().buffers()) {
    for (const auto& entry : buffer->layout().entries) found.push_back(buffer->gradient_view(entry).clone());
  }
  return found;
}

TEST(UnpaddedRows, EveryFamilyHasTheNumbersOfPaddedRows) {
  const std::vector<std::pair<std::string, bool>> models = {
      {model_of("llama", ", \"num_key_value_heads\": 2, \"attention_dropout\": 0.2"), false},
      {model_of("mistral", ", \"num_key_value_heads\": 2, \"sliding_window\": 5"), false},
      {model_of("gpt2", ", \"embd_pdrop\": 0.2, \"attn_pdrop\": 0.2, \"resid_pdrop\": 0.2"), false},
      {model_of("encoder_lm", ", \"dropout\": 0.2"), false},
      {model_of("bert", ", \"hidden_dropout_prob\": 0.2, \"attention_probs_dropout_prob\": 0.2"), true},
      {model_of("bert", ", \"position_offset\": 2, \"pad_token_id\": 1, \"hidden_dropout_prob\": 0.2"), true}};
  for (const auto& [model, masked] : models) {
    for (const auto& lengths : std::vector<std::vector<std::int64_t>>{{3, 9, 17, 5}, {1, 1, 40, 2}, {0, 0, 6, 11}}) {
      SCOPED_TRACE(testing::Message() << model << " of rows of " << testing::PrintToString(lengths));
      const auto config = config_of({model, "data={\"kind\": \"tokens\", \"sequence_length\": 40}",
                                     "parallel.microbatches=2", "train.global_batch_size=4"});
      const auto batch = padded_rows(lengths, masked);
      const auto padded = numbers_of(config, false, batch), unpadded = numbers_of(config, true, batch);
      ASSERT_EQ(padded.size(), unpadded.size());
      for (std::size_t i = 0; i < padded.size(); ++i) {
        EXPECT_LT((unpadded[i] - padded[i]).abs().max().item<double>(), 1e-12) << "number or gradient " << i;
      }
    }
  }
}

// Two towers with dropout, of texts of many lengths, whose first tokens are read.
TEST(UnpaddedRows, TrimodalTrainingIsTheSame) {
  auto config = config_of({"model.primary.hidden_dropout_prob=0.2", "model.primary.attention_probs_dropout_prob=0.2",
                           "model.secondary.hidden_dropout_prob=0.1", "parallel.microbatches=2",
                           "train.global_batch_size=12", "data.sequence_length=40", "data.samples=64"});
  const auto padded = run_parity_side(config, {});
  config.trainer.unpadded = true;
  const auto result = compare_sides(run_parity_side(config, {}), padded, 1e-12);
  EXPECT_TRUE(result.pass) << parity_text(result);
  EXPECT_FALSE(result.bitwise) << "equal bits would mean that nothing was left out";
}

TEST(UnpaddedRows, KeepTokensUpToTheLastThatCounts) {
  const Batch batch = padded_rows({3, 0, 37, 6}, true);
  const auto parts = unpadded_microbatches(batch, 2);
  ASSERT_EQ(parts.size(), 2U);
  const Microbatch& first = parts[0];
  EXPECT_EQ(parts[1].first_row, 2);
  ASSERT_EQ(first.fields.at("input_ids").sizes(), at::IntArrayRef({1, kTokenBucket}));
  const nn::TokenRows& rows = first.token_rows.at("input_ids");
  EXPECT_TRUE(at::equal(rows.picked, at::tensor({0, 3}, at::kLong))) << "a row without tokens keeps one";
  EXPECT_TRUE(at::equal(rows.row[0].narrow(0, 0, 6), at::tensor({0, 0, 0, 1, 2, 2}, at::kLong)));
  EXPECT_TRUE(at::equal(rows.position[0].narrow(0, 0, 6), at::tensor({0, 1, 2, 0, 0, 1}, at::kLong)));
  EXPECT_TRUE(at::equal(rows.starts[0].narrow(0, 0, 6), at::tensor({0, 0, 0, 3, 4, 4}, at::kLong)));
  EXPECT_TRUE(
      at::equal(first.fields.at("input_ids")[0].narrow(0, 0, 3), batch.fields.at("input_ids")[0].narrow(0, 0, 3)));
  EXPECT_EQ(first.fields.at("labels").ge(0).count_nonzero().item<std::int64_t>(), 3);
  EXPECT_EQ(first.fields.at("attention_mask").count_nonzero().item<std::int64_t>(), 3);
  // 43 tokens of 80 stay in one bucket; rows that fill most of theirs stay padded.
  EXPECT_EQ(parts[1].fields.at("input_ids").size(1), kTokenBucket);
  const auto full = unpadded_microbatches(padded_rows({40, 38}, true), 1);
  EXPECT_TRUE(full[0].token_rows.empty());
  EXPECT_EQ(full[0].fields.at("input_ids").sizes(), at::IntArrayRef({2, kSequence}));
}

// On a device: see Note [Few token totals].
TEST(UnpaddedRows, HaveFewTotalsWhereStepsAreRecorded) {
  const auto totals = [](const std::vector<Microbatch>& parts) {
    std::vector<std::int64_t> found;
    for (const auto& part : parts) found.push_back(part.fields.at("input_ids").numel());
    return found;
  };
  std::vector<std::int64_t> lengths(64, 9);
  lengths[40] = 40;
  const auto parts = unpadded_microbatches(padded_rows(lengths, true), 2, /*few_totals=*/true);
  // Sixteenths of 32 rows of 40 columns are 80, with 64 to a bucket 128: 288 and 319 tokens are 384 in both.
  EXPECT_EQ(totals(parts), (std::vector<std::int64_t>{384, 384}));
  const nn::TokenRows& rows = parts[1].token_rows.at("input_ids");
  EXPECT_EQ(rows.firsts.size(0), 33);
  EXPECT_EQ(rows.firsts[32].item<std::int64_t>(), 319);
  EXPECT_EQ(rows.longest, kSequence) << "of the shape, not of these rows";
  // One microbatch that fills its rows keeps the padding of all.
  for (std::size_t row = 0; row < 32; ++row) lengths[row] = 39;
  for (const auto& part : unpadded_microbatches(padded_rows(lengths, true), 2, true)) {
    EXPECT_TRUE(part.token_rows.empty());
    EXPECT_EQ(part.fields.at("input_ids").sizes(), at::IntArrayRef({32, kSequence}));
  }
  // Two texts share the sixteenths: 64 rows of 40 and of 40 columns make 320 each.
  Batch both = padded_rows(std::vector<std::int64_t>(64, 9), true);
  both.fields = {{"a_ids", both.fields.at("input_ids")},
                 {"a_mask", both.fields.at("attention_mask")},
                 {"b_ids", both.fields.at("input_ids")},
                 {"b_mask", both.fields.at("attention_mask")}};
  const auto towers = unpadded_microbatches(both, 1, true);
  EXPECT_EQ(towers[0].fields.at("a_ids").numel(), 640);
  EXPECT_EQ(towers[0].fields.at("b_ids").numel(), 640);
}

}  // namespace unpadded_rows_test
}  // namespace orthant
