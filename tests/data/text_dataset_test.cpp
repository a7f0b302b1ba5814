#include "orthant/data/text_dataset.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <numeric>

#include "data/same_fields.h"
#include "mesh/thrown_error.h"
#include "orthant/base/random.h"

namespace orthant {
namespace text_dataset_test {

using test::thrown_text;

// Tokens 0, 1, 2, ... in documents of these lengths.
std::shared_ptr<const TokenStore> counting(const std::vector<std::int64_t>& lengths) {
  std::vector<std::uint64_t> ends;
  std::uint64_t sum = 0;
  for (const auto length : lengths) ends.push_back(sum += static_cast<std::uint64_t>(length));
  std::vector<std::uint32_t> ids(sum);
  std::iota(ids.begin(), ids.end(), 0);
  TokenIndex index;
  index.tokenizer.vocab_size = 5000;
  return TokenStore::in_memory("corpus", index, std::move(ids), std::move(ends));
}

TextPart whole(const TokenStore& tokens) {
  return split_text(tokens, 0, true).train;
}

std::vector<std::int64_t> all_of(const Dataset& data) {
  std::vector<std::int64_t> indices(static_cast<std::size_t>(data.size()));
  std::iota(indices.begin(), indices.end(), 0);
  return indices;
}

at::Tensor numbers(std::vector<std::int64_t> values) {
  return at::tensor(values, at::kLong);
}

TEST(TextDataset, PackedSamplesAreTheStreamCutInPieces) {
  const auto tokens = counting({3, 4, 6});
  const TextDataset data(tokens, whole(*tokens), {.sequence_length = 4});
  ASSERT_EQ(data.size(), 3) << "floor((13 - 1) / 4)";
  const Fields fields = data.rows(std::vector<std::int64_t>{2, 0});
  EXPECT_TRUE(at::equal(fields.at("input_ids")[0], numbers({8, 9, 10, 11})));
  EXPECT_TRUE(at::equal(fields.at("labels")[0], numbers({9, 10, 11, 12})));
  EXPECT_TRUE(at::equal(fields.at("input_ids")[1], numbers({0, 1, 2, 3})));
  const TextDataset inputs(tokens, whole(*tokens), {.sequence_length = 4, .next_token = false});
  EXPECT_EQ(inputs.size(), 3);
  EXPECT_EQ(inputs.rows(all_of(inputs)).size(), 1U) << "no labels, and no mask where there is no padding";
}

TEST(TextDataset, DocumentsOfPackedSamplesAreApart) {
  const auto tokens = counting({3, 4, 6, 1, 1, 2});
  const TextDataset data(tokens, whole(*tokens), {.sequence_length = 4, .documents = true});
  ASSERT_EQ(data.size(), 4) << "floor((17 - 1) / 4)";
  const Fields fields = data.rows(all_of(data));
  EXPECT_TRUE(at::equal(fields.at("input_ids"), at::arange(16, at::kLong).view({4, 4})));
  constexpr auto kNone = kIgnoredLabel;
  // Documents begin with tokens 3, 7, 13, 14 and 15.
  EXPECT_TRUE(at::equal(fields.at("labels")[0], numbers({1, 2, kNone, 4})));
  EXPECT_TRUE(at::equal(fields.at("document_starts")[0], numbers({0, 0, 0, 3})));
  EXPECT_TRUE(at::equal(fields.at("labels")[1], numbers({5, 6, kNone, 8})));
  EXPECT_TRUE(at::equal(fields.at("document_starts")[1], numbers({0, 0, 0, 3}))) << "token 4 goes on from sample 0";
  EXPECT_TRUE(at::equal(fields.at("labels")[2], numbers({9, 10, 11, 12})));
  EXPECT_TRUE(at::equal(fields.at("labels")[3], numbers({kNone, kNone, kNone, 16})));
  EXPECT_TRUE(at::equal(fields.at("document_starts")[3], numbers({0, 1, 2, 3})));
  EXPECT_EQ(data.totals(all_of(data)).weight_sum, data.weight_sum(fields));
  EXPECT_EQ(data.totals(all_of(data)).tokens, 16);
}

// A target that begins a document is none, also behind the last input.
TEST(TextDataset, ADocumentThatEndsWithItsSampleHasNoTargetBehind) {
  const auto tokens = counting({4, 5});
  const TextDataset data(tokens, whole(*tokens), {.sequence_length = 4, .documents = true});
  const Fields fields = data.rows(all_of(data));
  EXPECT_TRUE(at::equal(fields.at("labels")[0], numbers({1, 2, 3, kIgnoredLabel})));
  EXPECT_EQ(data.totals(all_of(data)).weight_sum, 7);
}

TEST(TextDataset, UnpackedSamplesAreDocumentsCutOrPadded) {
  const auto tokens = counting({3, 1, 9, 5});
  const TextDataset data(tokens, whole(*tokens), {.sequence_length = 4, .packing = false, .pad_id = 77});
  ASSERT_EQ(data.size(), 3);
  EXPECT_EQ(data.left_out(), 1) << "a document of one token has no target";
  const Fields fields = data.rows(all_of(data));
  EXPECT_TRUE(at::equal(fields.at("input_ids")[0], numbers({0, 1, 77, 77})));
  EXPECT_TRUE(at::equal(fields.at("labels")[0], numbers({1, 2, kIgnoredLabel, kIgnoredLabel})));
  EXPECT_TRUE(at::equal(fields.at("input_ids")[1], numbers({4, 5, 6, 7})));
  EXPECT_TRUE(at::equal(fields.at("labels")[1], numbers({5, 6, 7, 8})));
  EXPECT_TRUE(at::equal(fields.at("labels")[2], numbers({14, 15, 16, 17})));

  const TextDataset apart(tokens, whole(*tokens), {.sequence_length = 4, .packing = false, .documents = true});
  const Fields one_each = apart.rows(all_of(apart));
  EXPECT_TRUE(at::equal(one_each.at("labels"), fields.at("labels")));
  EXPECT_TRUE(at::equal(one_each.at("document_starts"), at::zeros({3, 4}, at::kLong)));

  const TextDataset inputs(tokens, whole(*tokens), {.sequence_length = 4, .packing = false, .next_token = false});
  ASSERT_EQ(inputs.size(), 4);
  const Fields masked = inputs.rows(all_of(inputs));
  EXPECT_TRUE(at::equal(masked.at("input_ids")[0], numbers({0, 1, 2, 0})));
  EXPECT_TRUE(at::equal(masked.at("attention_mask").to(at::kLong)[0], numbers({1, 1, 1, 0})));
  EXPECT_TRUE(at::equal(masked.at("attention_mask").to(at::kLong).sum(1), numbers({3, 1, 4, 4})));
}

TEST(TextDataset, WholeDocumentsGoOnInTheNextSample) {
  const auto tokens = counting({3, 1, 9, 5});
  TextDatasetOptions options{.sequence_length = 4, .packing = false, .whole_documents = true, .pad_id = 77};
  const TextDataset data(tokens, whole(*tokens), options);
  ASSERT_EQ(data.size(), 4);
  const Fields fields = data.rows(all_of(data));
  EXPECT_TRUE(at::equal(fields.at("input_ids")[1], numbers({4, 5, 6, 7})));
  EXPECT_TRUE(at::equal(fields.at("input_ids")[2], numbers({8, 9, 10, 11})));
  EXPECT_TRUE(at::equal(fields.at("labels")[2], numbers({9, 10, 11, 12}))) << "the last token is a target, no input";
  std::vector<std::int64_t> documents;
  for (const auto index : all_of(data)) documents.push_back(data.document_of(index));
  EXPECT_EQ(documents, (std::vector<std::int64_t>{0, 2, 2, 3})) << "a document of one token has no sample";
  EXPECT_EQ(data.weight_sum(fields), 2 + 8 + 4) << "every token but the first of a document is a target once";
  EXPECT_EQ(data.totals(all_of(data)).weight_sum, 14);
  options.next_token = false;
  const TextDataset inputs(tokens, whole(*tokens), options);
  EXPECT_TRUE(
      at::equal(inputs.rows(all_of(inputs)).at("attention_mask").to(at::kLong).sum(1), numbers({3, 1, 4, 4, 1, 4, 1})));
}

TEST(TextDataset, TotalsNeedNoReading) {
  const auto tokens = counting({3, 1, 9, 5, 2});
  for (const bool packing : {true, false}) {
    for (const bool next_token : {true, false}) {
      const TextDataset data(tokens, whole(*tokens),
                             {.sequence_length = 4, .packing = packing, .next_token = next_token});
      const auto fields = data.rows(all_of(data));
      const Totals totals = data.totals(all_of(data));
      EXPECT_EQ(totals.tokens, data.tokens(fields)) << packing << next_token;
      EXPECT_EQ(totals.weight_sum, data.weight_sum(fields)) << packing << next_token;
      EXPECT_GT(totals.tokens, 0);
    }
  }
}

TEST(TextDataset, RefusesWhatMakesNoSample) {
  const auto tokens = counting({4});
  const auto part = whole(*tokens);
  EXPECT_EQ(
      thrown_text<DataError>([&] { TextDataset(tokens, part, {.sequence_length = 4}); }),
      "corpus: 4 tokens are too few for one sample of 5\nset data.sequence_length to 3 or less, or bring more text");
  EXPECT_EQ(
      thrown_text([&] { TextDataset(tokens, part, {.sequence_length = 0}); }),
      "data.sequence_length is 0, but a sample needs at least one position\nset data.sequence_length to 1 or more");
  EXPECT_EQ(thrown_text([&] { TextDataset(tokens, part, {.sequence_length = 2, .vocab_size = 3}); }),
            "model.vocab_size is 3, but corpus has token ids up to 3\nset model.vocab_size=5000");
  EXPECT_NO_THROW(TextDataset(tokens, part, {.sequence_length = 3, .vocab_size = 4}));
  const auto ones = counting({1, 1});
  EXPECT_EQ(
      thrown_text<DataError>([&] { TextDataset(ones, whole(*ones), {.packing = false}); }),
      "corpus: none of 2 documents has the 2 tokens that a sample needs\nset data.packing=true, or bring more text");
}

TEST(SplitText, TheLastDocumentsAreForEvaluation) {
  const auto tokens = counting({10, 10, 10, 10, 10, 10, 10, 10, 10, 10});
  const auto packed = split_text(*tokens, 0.18, true);
  EXPECT_EQ(packed.train.end_token, 80);
  EXPECT_EQ(packed.eval.first_token, 80);
  EXPECT_EQ(packed.eval.end_token, 100);
  EXPECT_EQ(packed.eval.first_document, 8);
  const auto documents = split_text(*tokens, 0.3, false);
  EXPECT_EQ(documents.train.end_document, 7);
  EXPECT_EQ(documents.eval.tokens(), 30);
  EXPECT_EQ(split_text(*tokens, 0.001, false).eval.first_document, 9) << "at least one document";
  EXPECT_EQ(split_text(*tokens, 0, true).eval.tokens(), 0);
}

TEST(SplitText, LargeDocumentsAreCutWhenPacked) {
  const auto tokens = counting({900, 100, 1000});
  const auto split = split_text(*tokens, 0.1, true);
  EXPECT_EQ(split.train.end_token, 1800);
  EXPECT_EQ(split.eval.first_token, 1800);
  EXPECT_EQ(split.train.end_document, 2);
  EXPECT_EQ(split.eval.first_document, 3) << "no document lies in it whole";
  const auto one = counting({1000});
  EXPECT_EQ(split_text(*one, 0.25, true).eval.tokens(), 250);
  EXPECT_EQ(thrown_text<DataError>([&] { split_text(*one, 0.25, false); }),
            "corpus: 1 document cannot be split into training and evaluation (data.eval_fraction 0.25)\nset "
            "data.packing=true, data.eval_path, or data.eval_fraction=0");
  EXPECT_EQ(
      thrown_text([&] { split_text(*one, 1.0, true); }),
      "data.eval_fraction is 1, but it must be in [0, 1)\nset data.eval_fraction to 0 (no evaluation) or to a part "
      "such as 0.05");
}

TEST(SplitText, PartsAreDisjointAndCompleteForAnyCorpus) {
  const RandomStream stream(3, "split_text_test");
  for (std::uint64_t round = 0; round < 300; ++round) {
    std::vector<std::int64_t> lengths(2 + stream.bits(round * 100) % 20);
    for (std::size_t i = 0; i < lengths.size(); ++i)
      lengths[i] = 1 + static_cast<std::int64_t>(stream.bits(round * 100 + 1 + i) % 50);
    const auto tokens = counting(lengths);
    const double fraction = 0.02 + 0.9 * stream.uniform(round * 100 + 99);
    for (const bool packing : {true, false}) {
      const auto [train, eval] = split_text(*tokens, fraction, packing);
      SCOPED_TRACE(testing::Message() << "round " << round << " fraction " << fraction << " packing " << packing);
      EXPECT_EQ(train.first_token, 0);
      EXPECT_EQ(train.end_token, eval.first_token);
      EXPECT_EQ(eval.end_token, tokens->size());
      EXPECT_GT(train.tokens(), 0);
      EXPECT_GT(eval.tokens(), 0);
      EXPECT_LE(tokens->document_begin(train.end_document), train.end_token);
      EXPECT_GE(tokens->document_begin(eval.first_document), eval.first_token);
      if (packing) {
        const auto wanted = fraction * static_cast<double>(tokens->size());
        EXPECT_LE(std::abs(static_cast<double>(eval.tokens()) - wanted), 0.5 * wanted + 1.5);
      }
    }
  }
}

}  // namespace text_dataset_test
}  // namespace orthant
