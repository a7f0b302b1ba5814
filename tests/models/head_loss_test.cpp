#include "orthant/models/head_loss.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error_text.h"
#include "models/small_models.h"
#include "orthant/models/bert/config.h"
#include "orthant/models/encoder_lm/config.h"
#include "orthant/models/gpt2/config.h"
#include "orthant/models/llama/config.h"
#include "orthant/models/trimodal/config.h"

namespace orthant {
namespace head_loss_test {

using test::small_work;

constexpr HeadLossOptions kOn{.join = JoinHeadAndLoss::on, .on_host = true};

std::vector<GraphSpec> language_models() {
  const WorkSize work = small_work();
  return {llama_spec(test::small_llama(), work), gpt2_spec(test::small_gpt2(), work),
          gpt2_spec(test::small_gpt2(false), work), bert_model_spec(test::small_bert(), work),
          encoder_lm_spec(test::small_encoder_lm(), work)};
}

TEST(JoinHeadAndLoss, MakesOneUnitWithTheHeadsNameAndParameters) {
  for (const GraphSpec& apart : language_models()) {
    const GraphSpec joined = join_head_and_loss(apart, kOn);
    const UnitSpec& head = apart.unit("head");
    const UnitSpec& unit = joined.units.back();
    ASSERT_EQ(joined.units.size() + 1, apart.units.size()) << apart.name;
    EXPECT_EQ(unit.name, "head");
    EXPECT_EQ(unit.kind, head.kind + "_loss");
    EXPECT_EQ(unit.parameters, head.parameters);
    EXPECT_EQ(unit.borrowed, head.borrowed);
    EXPECT_EQ(unit.inputs, (std::vector<std::string>{head.inputs.front(), "labels"}));
    EXPECT_EQ(unit.outputs, std::vector<std::string>{"loss"});
    EXPECT_TRUE(unit.is_loss);
    ASSERT_TRUE(unit.logits);
    EXPECT_EQ(unit.logits->classes, apart.value("logits").shape.back());
    EXPECT_EQ(unit.logits->loss, "loss");
    EXPECT_EQ(joined.losses(), apart.losses());
    EXPECT_EQ(joined.num_parameters(), apart.num_parameters());
    EXPECT_EQ(std::ranges::find(joined.values, "logits", &ValueSpec::name), joined.values.end());
    EXPECT_NO_THROW(joined.check());
    EXPECT_EQ(join_head_and_loss(joined, kOn), joined) << "what is joined stays";
  }
}

TEST(JoinHeadAndLoss, LogitsAreNeitherKeptNorDeferred) {
  for (const GraphSpec& apart : language_models()) {
    const UnitSpec unit = join_head_and_loss(apart, kOn).units.back();
    const UnitSpec& head = apart.unit("head");
    const Shape& shape = apart.value("logits").shape;
    const std::int64_t tokens = shape[0] * shape[1];
    const std::int64_t numbers = tokens * bytes_of(DType::float32);
    const std::int64_t gradient = bytes_of(DType::float32);  // of the loss
    EXPECT_EQ(unit.cost.kept_bytes[0], head.cost.kept_bytes[0] + numbers) << apart.name;
    EXPECT_EQ(unit.cost.deferred_bytes, head.cost.deferred_bytes + numbers + gradient -
                                            num_elements(shape) * bytes_of(apart.value("logits").dtype));
    EXPECT_EQ(unit.cost.forward_flops, head.cost.forward_flops);
  }
}

TEST(JoinHeadAndLoss, IsForDevicesUnlessItIsAskedFor) {
  const GraphSpec apart = language_models().front();
  const auto is_joined = [&](JoinHeadAndLoss join, bool on_host) {
    return join_head_and_loss(apart, {.join = join, .on_host = on_host}) != apart;
  };
  EXPECT_TRUE(is_joined(JoinHeadAndLoss::automatic, /*on_host=*/false));
  EXPECT_FALSE(is_joined(JoinHeadAndLoss::automatic, /*on_host=*/true));
  EXPECT_TRUE(is_joined(JoinHeadAndLoss::on, /*on_host=*/true));
  EXPECT_FALSE(is_joined(JoinHeadAndLoss::off, /*on_host=*/false));
}

TEST(JoinHeadAndLoss, ChunksHaveAboutEquallyManyLogits) {
  EXPECT_EQ(chunk_rows_of(32768, /*on_host=*/false), 16384);
  EXPECT_EQ(chunk_rows_of(32768, /*on_host=*/true), 512);
  EXPECT_EQ(chunk_rows_of(std::int64_t{1} << 30, /*on_host=*/true), 256) << "at least";
  const auto joined = join_head_and_loss(language_models().front(), {.join = JoinHeadAndLoss::on, .chunk_rows = 7});
  EXPECT_EQ(joined.units.back().logits->rows, 7);
}

TEST(JoinHeadAndLoss, LeavesOtherGraphsAndRefusesThemByName) {
  const GraphSpec towers = trimodal_spec(test::small_trimodal(), small_work());
  EXPECT_EQ(join_head_and_loss(towers, {.on_host = false}), towers);
  EXPECT_EQ(error_text<ConfigError>([&] { join_head_and_loss(towers, kOn); }),
            "train.join_head_and_loss=on: graph \"trimodal\": it has no value logits with a row for every token\n"
            "  fix: set train.join_head_and_loss=auto or off");
  GraphSpec read_twice = language_models().front();
  read_twice.values.push_back({.name = "more"});
  read_twice.units.push_back({.name = "more", .kind = "own", .inputs = {"logits"}, .outputs = {"more"}});
  EXPECT_EQ(join_head_and_loss(read_twice, {.on_host = false}), read_twice);
  EXPECT_NE(error_text<ConfigError>([&] { join_head_and_loss(read_twice, kOn); }).find("2 units read its logits"),
            std::string::npos);
  GraphSpec whole = language_models().front();
  whole.tensor = TensorSharing{.degree = 2};
  for (auto& parameter : whole.units[static_cast<std::size_t>(whole.unit_index("head"))].parameters) {
    parameter.tp.reset();
  }
  if (whole.unit("head").borrowed.empty()) {
    EXPECT_EQ(join_head_and_loss(whole, {.on_host = false}), whole);
    EXPECT_NE(error_text<ConfigError>([&] { join_head_and_loss(whole, kOn); }).find("whole on every tp rank"),
              std::string::npos);
  }
}

TEST(JoinHeadAndLoss, ReadsItsNames) {
  for (const auto choice : {JoinHeadAndLoss::automatic, JoinHeadAndLoss::on, JoinHeadAndLoss::off}) {
    EXPECT_EQ(parse_join(join_name(choice)), choice);
  }
  EXPECT_EQ(error_text<ConfigError>([] { parse_join("offf"); }),
            "unknown choice \"offf\"\n  fix: did you mean \"off\"? (one of auto, on, off)");
}

}  // namespace head_loss_test
}  // namespace orthant
