// Each pattern that becomes one operation, and what stays apart.
#include "orthant/program/fuse.h"

#include <gtest/gtest.h>

namespace orthant::fuse_test {

using List = std::vector<Operation>;

std::vector<std::string> names(const List& list) {
  std::vector<std::string> found;
  for (const auto& operation : list) found.push_back(operation.name);
  return found;
}
using Names = std::vector<std::string>;

Operation op(const char* name, std::vector<int> in, std::vector<int> out, std::vector<int> parameters = {}) {
  return {.name = name, .in = std::move(in), .out = std::move(out), .parameters = std::move(parameters)};
}

Operation with(Operation operation, const char* name, Attribute value) {
  operation.attributes.set(name, std::move(value));
  return operation;
}

TEST(Fuse, AProductWithItsBiasAndWhatIsAddedIsOneProjection) {
  const List list = fused({op("product", {0}, {1}, {0}), op("bias", {1}, {2}, {1}), op("add", {2, 3}, {4})}, {});
  ASSERT_EQ(names(list), Names{"project"});
  EXPECT_EQ(list[0].in, (std::vector<int>{0, 3}));
  EXPECT_EQ(list[0].out, (std::vector<int>{4}));
  EXPECT_EQ(list[0].parameters, (std::vector<int>{0, 1}));
  EXPECT_EQ(fused({op("product", {0}, {1}, {0}), op("add", {3, 1}, {4})}, {})[0].in, (std::vector<int>{0, 3}));
}

TEST(Fuse, AProjectionKeepsApartWhatOthersRead) {
  const Names apart = {"project", "add", "wait"};
  // Somebody else reads the product, or it is needed when the list is done.
  EXPECT_EQ(names(fused({op("product", {0}, {1}, {0}), op("add", {1, 3}, {4}), op("wait", {1, 5}, {})}, {})), apart);
  EXPECT_EQ(names(fused({op("product", {0}, {1}, {0}), op("add", {1, 3}, {4})}, {1})), (Names{"project", "add"}));
  EXPECT_EQ(names(fused({op("product", {0}, {1}, {0}), op("bias", {1}, {2}, {1})}, {1})), (Names{"project", "bias"}));
  // An exchange lies between them.
  EXPECT_EQ(names(fused({op("product", {0}, {1}, {0}), op("start", {1}, {2}), op("add", {2, 3}, {4})}, {})),
            (Names{"project", "start", "add"}));
  // The sum belongs to a norm.
  EXPECT_EQ(names(fused({op("product", {0}, {1}, {0}), with(op("add", {1, 3}, {4}), "of_norm", 1)}, {})),
            (Names{"project", "add"}));
}

TEST(Fuse, WhatIsAddedOnceIsAddedByCoordinateZero) {
  const auto add = [](std::int64_t once) { return with(op("add", {1, 3}, {4}), "once", once); };
  const List list = fused({op("product", {0}, {1}, {0}), add(1)}, {});
  ASSERT_EQ(names(list), Names{"project"});
  EXPECT_TRUE(list[0].attributes.flag("once"));
  // The other input is the summand.
  EXPECT_EQ(names(fused({op("product", {0}, {1}, {0}), add(2)}, {})), (Names{"project", "add"}));
}

Operation norm(int in) {
  return with(op("layer_norm", {in}, {8, 9}, {0, 1}), "eps", 1e-5);
}

TEST(Fuse, DropoutSumAndNormAreOne) {
  const Operation dropout = with(with(op("dropout", {0}, {1}), "p", 0.5), "site", std::string("s"));
  const List all = fused({dropout, op("add", {1, 3}, {4}), norm(4)}, {});
  ASSERT_EQ(names(all), Names{"dropout_add_norm"});
  EXPECT_EQ(all[0].in, (std::vector<int>{0, 3}));
  EXPECT_EQ(all[0].out, (std::vector<int>{4, 8, 9}));
  EXPECT_EQ(all[0].attributes.number("eps"), 1e-5);
  EXPECT_EQ(all[0].attributes.text("site"), "s");
  EXPECT_EQ(names(fused({dropout, op("add", {1, 3}, {4})}, {})), Names{"dropout_add"});
  const List sum = fused({with(op("add", {1, 3}, {4}), "of_norm", 1), norm(4)}, {});
  ASSERT_EQ(names(sum), Names{"dropout_add_norm"});
  EXPECT_EQ(sum[0].attributes.number("p"), 0.0);
}

TEST(Fuse, ASumThatIsNotANormsAloneStays) {
  EXPECT_EQ(names(fused({op("add", {1, 3}, {4}), norm(4)}, {})), (Names{"add", "layer_norm"}));
  const Operation dropout = with(op("dropout", {0}, {1}), "p", 0.5);
  EXPECT_EQ(names(fused({dropout, op("add", {1, 3}, {4})}, {1})), (Names{"dropout", "add"}));
  EXPECT_EQ(names(fused({dropout, op("add", {3, 1}, {4})}, {})), (Names{"dropout", "add"}));
  EXPECT_EQ(names(fused({op("add", {1, 3}, {4}), op("rms_norm", {4}, {5, 6})}, {})), (Names{"add", "rms_norm"}));
}

TEST(Fuse, RotationAndAttentionAreOneEachWay) {
  const List forward = fused({with(op("rotary", {0}, {1}), "theta", 10.0), op("attention", {1, -1}, {2, 3, 4})}, {1});
  ASSERT_EQ(names(forward), Names{"rotary_attention"});
  EXPECT_EQ(forward[0].in, (std::vector<int>{0, -1}));
  EXPECT_EQ(forward[0].out, (std::vector<int>{1, 2, 3, 4}));
  EXPECT_EQ(forward[0].attributes.number("theta"), 10.0);
  const List back = fused({op("attention_back", {5, 1}, {6}), op("rotary_back", {6}, {7})}, {});
  ASSERT_EQ(names(back), Names{"rotary_attention_back"});
  EXPECT_EQ(back[0].out, (std::vector<int>{7}));
  EXPECT_EQ(names(fused({op("attention_back", {5, 1}, {6}), op("product_back", {6}, {7})}, {})),
            (Names{"attention_back", "product_back"}));
}

TEST(Fuse, ANormsGradientIsDroppedWhereItIsMade) {
  const Operation dropout = with(op("dropout", {6}, {7}), "p", 0.5);
  const List list = fused({op("layer_norm_back", {5, 1, 2}, {6}), dropout}, {});
  ASSERT_EQ(names(list), Names{"layer_norm_back"});
  EXPECT_EQ(list[0].out, (std::vector<int>{6, 7}));
  EXPECT_EQ(names(fused({op("layer_norm_back", {5, 1, 2}, {-1}), dropout}, {})), (Names{"layer_norm_back", "dropout"}));
  EXPECT_EQ(names(fused({op("rms_norm_back", {5, 1, 2}, {6}), dropout}, {})), (Names{"rms_norm_back", "dropout"}));
}

TEST(Fuse, SumsOfNormsAreMarkedWhereTheNormAloneReadsThem) {
  Body body;
  body.operations = {op("add", {0, 1}, {2}),      op("layer_norm", {2}, {3, 4}), op("add", {3, 1}, {5}),
                     op("rms_norm", {5}, {6, 7}), op("add", {6, 1}, {8}),        op("layer_norm", {8}, {9, 10})};
  body.outputs = {8, 9};
  mark_sums_of_norms(body);
  EXPECT_TRUE(body.operations[0].attributes.flag("of_norm"));
  EXPECT_FALSE(body.operations[2].attributes.flag("of_norm"));  // of another norm
  EXPECT_FALSE(body.operations[4].attributes.flag("of_norm"));  // the unit hands it on
}

}  // namespace orthant::fuse_test
