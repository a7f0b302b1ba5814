// Who is to blame for a step that is not finite, from what ranks found alone.
#include "orthant/train/bad_step.h"

#include <gtest/gtest.h>

#include "train/branching_model.h"

namespace orthant {
namespace bad_step_test {

TEST(Blame, ADamagedParameterComesFirstAndLasts) {
  std::vector<RankFindings> ranks(3);
  ranks[0].outputs = {0, 1, 10};
  ranks[1].parameters = {{9, "head.codes"}};
  ranks[2].parameters = {{0, "embed.weight"}};
  const auto bad = blame(test::branching_spec(2), ranks);
  EXPECT_EQ(bad.text, "rank 1, unit head: parameter head.codes is not finite");
  EXPECT_EQ(bad.rank, 1);
  EXPECT_EQ(bad.unit, "head");
  EXPECT_EQ(bad.parameter, "head.codes");
  EXPECT_TRUE(bad.lasting);
}

TEST(Blame, OfOutputsTheEarliestUnitThenTheLowestRank) {
  std::vector<RankFindings> ranks(4);
  ranks[0].outputs = {5, 6};
  ranks[2].outputs = {1, 2};
  ranks[3].outputs = {1};
  ranks[0].input_gradients = {10};
  EXPECT_EQ(blame(test::branching_spec(2), ranks).text, "rank 2, unit first: its output is not finite");
  ranks[2].outputs.clear();
  ranks[3].outputs = {10};
  ranks[0].outputs.clear();
  EXPECT_EQ(blame(test::branching_spec(2), ranks).text, "rank 3, unit loss: its loss is not finite");
}

TEST(Blame, OfGradientsTheLastUnitBeforeAnySum) {
  std::vector<RankFindings> ranks(3);
  ranks[0].input_gradients = {1, 2};
  ranks[1].uses = {{3, {"middle.weight", "middle.bias"}}, {7, {"mix.weight", "mix.bias"}}};
  ranks[2].sums = {"middle.weight", "mix.bias"};
  auto bad = blame(test::branching_spec(2), ranks);
  EXPECT_EQ(bad.text, "rank 1, unit mix: the gradient of mix.bias is not finite");
  EXPECT_EQ(bad.parameter, "mix.bias");
  EXPECT_FALSE(bad.lasting);
  ranks[2].input_gradients = {7};
  bad = blame(test::branching_spec(2), ranks);
  EXPECT_EQ(bad.text, "rank 2, unit mix: the gradients of its inputs are not finite");
  EXPECT_EQ(bad.parameter, "");
}

TEST(Blame, ASumThatOverflowedAndNothingAtAll) {
  std::vector<RankFindings> ranks(2);
  EXPECT_EQ(blame(test::branching_spec(2), ranks).text, "all that ranks hold is finite");
  ranks[1].sums = {"mix.bias"};
  EXPECT_EQ(blame(test::branching_spec(2), ranks).text,
            "rank 1, unit mix: the sum over ranks of the gradient of mix.bias is not finite");
  ranks[0].uses = {{7, {"mix.weight"}}};
  EXPECT_EQ(blame(test::branching_spec(2), ranks).text,
            "rank 0, unit mix: the gradients of its parameters are not finite");
}

TEST(RankFindings, TravelAsText) {
  RankFindings found;
  found.parameters = {{3, "a \"b\""}};
  found.outputs = {1, 5};
  found.input_gradients = {2};
  found.uses = {{4, {"x", "y"}}, {6, {}}};
  found.sums = {"z"};
  const auto back = RankFindings::from_text(found.to_text());
  EXPECT_EQ(back.to_text(), found.to_text());
  EXPECT_EQ(back.parameters[0].parameter, "a \"b\"");
  EXPECT_EQ(back.uses[0].parameters, (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(back.input_gradients, std::vector<int>{2});
}

}  // namespace bad_step_test
}  // namespace orthant
