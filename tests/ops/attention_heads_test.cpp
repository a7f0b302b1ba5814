#include "orthant/ops/attention/attention_heads.h"

#include "base/error_text.h"
#include "ops/attention_case.h"

namespace orthant::nn {
namespace attention_heads_test {

using Case = AttentionCase;
using Shape = AttentionShape;

TEST(AttentionHeads, AQueryThatSeesNothingGivesZeroAndNoGradient) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    Case given({1, 5, 2, 1, 4}, dtype);
    given.options.key_mask = at::ones({1, 5}, at::kBool);
    given.options.key_mask[0].narrow(0, 0, 2).fill_(false);
    const HeadsSetup setup = heads_setup(given.qkv, given.options, Pass());
    const HeadsOutput output = heads_forward(given.qkv, setup, /*rotate=*/true);
    EXPECT_EQ(output.out[0].narrow(0, 0, 2).abs().max().item<float>(), 0);
    const at::Tensor d_qkv = heads_backward(given.qkv, output, random_tensor(output.out.sizes(), 3, dtype), setup);
    EXPECT_TRUE(d_qkv.isfinite().all().item<bool>());
    EXPECT_EQ(d_qkv[0].narrow(0, 0, 2).abs().max().item<float>(), 0);
  }
}

TEST(AttentionHeads, RefusesShapesThatDoNotFit) {
  const auto message = [&](const Case& given) {
    return error_text<InternalError>([&] { heads_setup(given.qkv, given.options, Pass()); });
  };
  Case heads(Shape(), at::kFloat);
  heads.options.kv_heads = 3;
  EXPECT_NE(message(heads).find("kv_heads must divide heads"), std::string::npos) << message(heads);
  Case table(Shape(), at::kFloat);
  table.options.rotary = rotary_table(6, rotary_frequencies(6, 1e4), 1, at::kFloat);
  EXPECT_NE(message(table).find("rotary tables do not fit"), std::string::npos) << message(table);
  Case mask(Shape(), at::kFloat);
  mask.options.key_mask = at::ones({2, 6}, at::kBool);
  EXPECT_NE(message(mask).find("key_mask [2, 6]"), std::string::npos) << message(mask);
}

TEST(AttentionHeads, RefusesDocumentsThatDoNotFollowEachOther) {
  const auto message = [](std::vector<std::int64_t> starts) {
    Case given({1, 4, 2, 1, 4}, at::kFloat);
    given.options.document_starts = at::tensor(starts, at::kLong).view({1, -1});
    return error_text<InternalError>(
        [&] { heads_forward(given.qkv, heads_setup(given.qkv, given.options, Pass()), false); });
  };
  EXPECT_NE(message({0, 0, 1, 3}).find("token 2 of row 0 has 1"), std::string::npos) << message({0, 0, 1, 3});
  EXPECT_NE(message({1, 1, 1, 1}).find("token 0 of row 0 has 1"), std::string::npos) << message({1, 1, 1, 1});
  EXPECT_NE(message({0, 0}).find("document_starts [1, 2]"), std::string::npos) << message({0, 0});
}

TEST(RotaryTable, HoldsAnglesRoundedOnce) {
  const RotaryTable table = rotary_table(50, rotary_frequencies(6, 500000.0), 0.75, at::kFloat);
  ASSERT_EQ(table.cos.sizes(), at::IntArrayRef({50, 3}));
  for (std::int64_t position : {0, 1, 49}) {
    for (std::int64_t i = 0; i < 3; ++i) {
      const double angle = static_cast<double>(position) * std::pow(500000.0, -2.0 * static_cast<double>(i) / 6.0);
      EXPECT_FLOAT_EQ(table.cos[position][i].item<float>(), static_cast<float>(0.75 * std::cos(angle)));
      EXPECT_FLOAT_EQ(table.sin[position][i].item<float>(), static_cast<float>(0.75 * std::sin(angle)));
    }
  }
}

}  // namespace attention_heads_test
}  // namespace orthant::nn
