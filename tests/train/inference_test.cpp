#include "orthant/train/inference.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "base/error_text.h"
#include "checkpoint/model_on_disk.h"
#include "orthant/models/llama/config.h"

namespace orthant {
namespace inference_test {

constexpr const char* kLlama = R"({"model_type": "llama", "hidden_size": 12, "num_attention_heads": 2,
  "num_hidden_layers": 2, "intermediate_size": 20, "vocab_size": 31, "max_position_embeddings": 32})";
constexpr const char* kBert = R"({"model_type": "bert", "hidden_size": 12, "num_attention_heads": 2,
  "num_hidden_layers": 2, "intermediate_size": 20, "vocab_size": 31, "max_position_embeddings": 16})";

TEST(Inference, ComputesRowsOneByOneAsTogether) {
  const ModelOnDisk disk(kLlama);
  disk.write();
  Inference inference(find_stored_model(disk.folder), {.dtype = DType::float64});
  const auto ids = at::randint(0, 31, {3, 9}, at::kLong);
  auto mask = at::ones({3, 9}, at::kLong);
  mask[1].narrow(0, 6, 3).zero_();
  const auto all = inference.forward({{"input_ids", ids}, {"attention_mask", mask}}).at("logits");
  EXPECT_EQ(all.scalar_type(), at::kDouble);
  for (int row = 0; row < 3; ++row) {
    const auto one =
        inference.forward({{"input_ids", ids.narrow(0, row, 1)}, {"attention_mask", mask.narrow(0, row, 1)}});
    EXPECT_LT((one.at("logits")[0] - all[row]).abs().max().item<double>(), 1e-12);
  }
  Inference unmasked(find_stored_model(disk.folder), {.dtype = DType::float64, .attention_mask = false});
  EXPECT_LT((unmasked.forward({{"input_ids", ids}}).at("logits")[0] - all[0]).abs().max().item<double>(), 1e-12);
  const auto text = error_text<ConfigError>([&] { unmasked.forward({{"input_ids", ids}, {"attention_mask", mask}}); });
  EXPECT_EQ(text,
            "rows are padded, but this inference was made without an attention mask\n"
            "  fix: set InferenceOptions::attention_mask");
}

TEST(Inference, KeepsNoGradients) {
  const ModelOnDisk disk(kBert);
  disk.write();
  Inference inference(find_stored_model(disk.folder));
  for (const auto& buffer : inference.parameters().buffers()) EXPECT_FALSE(buffer->trainable());
  EXPECT_EQ(inference.outputs(), (std::vector<std::string>{"last_hidden_state", "pooler_output"}));
  EXPECT_EQ(inference.output_shape("pooler_output", 5, 7), (Shape{5, 12}));
  const auto found = inference.forward({{"input_ids", at::zeros({5, 7}, at::kInt)}});
  EXPECT_EQ(found.at("last_hidden_state").sizes(), at::IntArrayRef({5, 7, 12}));
  EXPECT_FALSE(found.at("pooler_output").requires_grad());
}

TEST(Inference, LeavesThePoolerOutWhereTheFolderHasNone) {
  ModelOnDisk disk(kBert);
  std::erase_if(disk.tensors, [](const auto& item) { return item.first.find("pooler") != std::string::npos; });
  disk.write();
  const Inference inference(find_stored_model(disk.folder));
  EXPECT_EQ(inference.outputs(), std::vector<std::string>{"last_hidden_state"});
  EXPECT_EQ(inference.notes().front(), disk.folder.string() + ": has no pooler, so there is no pooler_output");
}

TEST(Inference, RefusesADecoderWithoutAHead) {
  ModelOnDisk disk(kLlama);
  disk.tensors.erase("lm_head.weight");
  disk.write();
  EXPECT_EQ(error_text<DataError>([&] { Inference(find_stored_model(disk.folder)); }),
            disk.folder.string() +
                ": lacks head.weight, without which there are no logits\n  fix: use a folder with a "
                "language-model head, or set tie_word_embeddings in its config.json");
}

TEST(Inference, RefusesInputsThatDoNotFit) {
  const ModelOnDisk disk(kBert);
  disk.write();
  Inference inference(find_stored_model(disk.folder));
  const auto refusal = [&](const Fields& inputs) { return error_text<DataError>([&] { inference.forward(inputs); }); };
  const auto ids = at::zeros({2, 4}, at::kLong);
  EXPECT_EQ(refusal({{"input_ids", ids + 31}}),
            "input_ids holds 31; vocab_size is 31, so values lie in [0, 30]\n"
            "  fix: use the tokenizer of this model");
  EXPECT_EQ(refusal({{"input_ids", ids}, {"token_type_ids", ids + 2}}),
            "token_type_ids holds 2; type_vocab_size is 2, so values lie in [0, 1]\n"
            "  fix: number the segments of a row from 0, or leave token_type_ids out");
  EXPECT_EQ(refusal({{"input_ids", ids}, {"attention_mask", ids - 1}}),
            "attention_mask holds -1\n  fix: use 1 for tokens and 0 for padding");
  EXPECT_EQ(refusal({{"input_ids", at::zeros({1, 17}, at::kLong)}}),
            "rows of 17 tokens; the model has 16 positions\n  fix: cut them to 16");
  EXPECT_EQ(refusal({{"input_ids", at::zeros({0, 4}, at::kLong)}}),
            "input_ids is [0, 4]; [rows, sequence] is expected\n"
            "  fix: give tensors of one shape [rows, sequence], padded where rows are shorter");
  EXPECT_EQ(refusal({{"input_ids", ids.to(at::kFloat)}}),
            "input_ids is of dtype Float\n  fix: give whole numbers, e.g. int64");
}

}  // namespace inference_test
}  // namespace orthant
