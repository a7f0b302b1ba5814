// Packed documents: loss and gradients are those of the documents as rows of their own.
#include <gtest/gtest.h>

#include "model_numbers/model_case.h"
#include "orthant/models/gpt2/config.h"
#include "orthant/models/mistral/config.h"
#include "orthant/models/qwen3/config.h"

namespace orthant {
namespace packed_test {

// Of row 0 and of row 1.
const std::vector<std::vector<std::int64_t>> kLengths = {{4, 5}, {2, 1, 6}};
constexpr std::int64_t kSequence = 9;
constexpr std::int64_t kVocabulary = 13;

LlamaConfig small_llama(const LlamaVariant& variant, std::int64_t window) {
  LlamaConfig config;
  config.variant = &variant;
  config.hidden_size = 15;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 4;
  config.num_key_value_heads = 2;
  config.head_dim = 6;
  config.intermediate_size = 22;
  config.vocab_size = kVocabulary;
  config.max_position_embeddings = 24;
  config.rope_theta = 100;
  config.sliding_window = window;
  return config;
}

Gpt2Config small_gpt2() {
  Gpt2Config config;
  config.hidden_size = 15;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 3;
  config.vocab_size = kVocabulary;
  config.max_position_embeddings = 12;
  config.embd_pdrop = config.attn_pdrop = config.resid_pdrop = 0;
  return config;
}

const std::vector<ModelConfig> kModels = {small_llama(kLlama, 0), small_llama(kQwen3, 0), small_llama(kMistral, 3),
                                          small_gpt2()};

Fields packed_fields() {
  Fields fields = {{"input_ids", random_ids(2, kSequence, kVocabulary, 1)},
                   {"labels", random_ids(2, kSequence, kVocabulary, 2)},
                   {"document_starts", at::zeros({2, kSequence}, at::kLong)}};
  for (std::size_t row = 0; row < kLengths.size(); ++row) {
    std::int64_t start = 0;
    for (const std::int64_t length : kLengths[row]) {
      const auto place = static_cast<std::int64_t>(row);
      fields.at("document_starts")[place].narrow(0, start, length).fill_(start);
      fields.at("labels")[place][start + length - 1].fill_(-100);
      start += length;
    }
  }
  return fields;
}

// Sums over the documents, each a row of its own.
StepResult rows_of_their_own(const ModelConfig& config, const Fields& fields) {
  StepResult sum;
  for (std::size_t row = 0; row < kLengths.size(); ++row) {
    std::int64_t start = 0;
    for (const std::int64_t length : kLengths[row]) {
      Fields alone;
      for (const char* name : {"input_ids", "labels"}) {
        alone[name] = fields.at(name).narrow(0, static_cast<std::int64_t>(row), 1).narrow(1, start, length);
      }
      ModelCase model(config, build_spec(config, {.rows = 1, .sequence = length, .compute = DType::float64}));
      const StepResult one = model.train(alone);
      sum.loss = sum.loss.defined() ? sum.loss + one.loss : one.loss;
      for (const auto& [name, gradient] : one.gradients) {
        at::Tensor& all = sum.gradients[name];
        all = all.defined() ? all + gradient : gradient;
      }
      start += length;
    }
  }
  return sum;
}

TEST(Packed, DocumentsAreRowsOfTheirOwn) {
  const Fields fields = packed_fields();
  for (const ModelConfig& config : kModels) {
    SCOPED_TRACE(model_kind(config));
    const WorkSize work{.rows = 2, .sequence = kSequence, .compute = DType::float64, .packed = true};
    ModelCase model(config, build_spec(config, work));
    const StepResult expected = rows_of_their_own(config, fields);
    for (const auto mode : kRecomputeModes) {
      const StepResult found = model.train(fields, mode);
      expect_close(found.loss, expected.loss, 1e-12, 0, "loss");
      for (const auto& [name, gradient] : expected.gradients) {
        expect_close(found.gradients.at(name), gradient, 1e-12, 1e-12, name);
      }
    }
    // A row that is one document sees all of it.
    Fields crossing = fields;
    crossing["document_starts"] = at::zeros({2, kSequence}, at::kLong);
    EXPECT_GT((model.train(crossing).loss - expected.loss).abs().item<double>(), 1e-3) << "attention across documents";
  }
}

TEST(Packed, EveryRecomputeModeAndMicrobatchingAgree) {
  for (const ModelConfig& config : kModels) {
    SCOPED_TRACE(model_kind(config));
    const WorkSize work{.rows = 2, .sequence = kSequence, .compute = DType::float64, .packed = true};
    ModelCase model(config, build_spec(config, work));
    expect_steps_agree(model, packed_fields(), false);
  }
}

}  // namespace packed_test
}  // namespace orthant
