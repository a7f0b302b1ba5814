#include "orthant/data/field_checks.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "mesh/thrown_error.h"
#include "orthant/data/fixed_dataset.h"

namespace orthant {
namespace field_checks_test {

using test::thrown_text;

const FieldLimits kLimits = {.vocab_sizes = {{"input_ids", 100}}, .num_labels = 3};

Fields good_fields() {
  return {{"input_ids", at::arange(90, 98, at::kLong).view({2, 4})}, {"labels", at::tensor({2, -100}, at::kLong)}};
}

std::string refusal(const Fields& fields) {
  return thrown_text<DataError>([&] { check_fields(fields, kLimits, "claims.csv"); });
}

TEST(FieldChecks, AcceptsContentWithinTheLimits) {
  EXPECT_NO_THROW(check_fields(good_fields(), kLimits, "claims.csv"));
}

TEST(FieldChecks, RefusesTokenIdsOutsideTheVocabulary) {
  const std::string remedy =
      "set vocab_size to the size of the tokenizer that made the ids, or make them with a tokenizer of at most 100 "
      "tokens";
  Fields fields = good_fields();
  fields.at("input_ids")[1][2] = 100;
  EXPECT_EQ(refusal(fields),
            "claims.csv: field input_ids, row 1, position 2: token id 100 is not in [0, 100)\n" + remedy);
  fields.at("input_ids")[1][2] = -1;
  EXPECT_EQ(refusal(fields),
            "claims.csv: field input_ids, row 1, position 2: token id -1 is not in [0, 100)\n" + remedy);
}

TEST(FieldChecks, RefusesLabelsOutOfRange) {
  for (const int label : {3, -1, -99}) {
    Fields fields = good_fields();
    fields.at("labels")[1] = label;
    EXPECT_EQ(refusal(fields),
              fmt::format("claims.csv: field labels, row 1: label {} is not in [0, 3), nor -100 (ignored)\n"
                          "number the classes from 0, or set the number of labels to the largest label + 1",
                          label));
  }
}

TEST(FieldChecks, RefusesNumbersThatAreNotFinite) {
  for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    Fields fields = good_fields();
    fields["tabular"] = at::zeros({2, 3});
    fields["tabular"][0][1] = bad;
    EXPECT_EQ(refusal(fields), fmt::format("claims.csv: field tabular, row 0, position 1: {} is not a finite number\n"
                                           "fill in or drop rows with missing numbers",
                                           bad));
  }
}

TEST(FieldChecks, RefusesFieldsThatDoNotFitTogether) {
  EXPECT_EQ(refusal({}), "claims.csv: there are no fields\n");
  Fields fields = good_fields();
  fields["labels"] = at::zeros({3}, at::kLong);
  EXPECT_EQ(refusal(fields), "claims.csv: field input_ids has 2 rows, but field labels has 3\n");
  fields.erase("labels");
  EXPECT_EQ(refusal(fields), "claims.csv: there is no field labels (fields: input_ids)\n");
  fields["labels"] = at::zeros({2});
  EXPECT_EQ(refusal(fields), "claims.csv: field labels is of type float, not int64\n");
  fields["labels"] = at::scalar_tensor(1, at::kLong);
  EXPECT_EQ(refusal(fields), "claims.csv: field labels has no rows: it is a single number\n");
}

TEST(FieldChecks, AFixedDataSetChecksItsContent) {
  EXPECT_EQ(thrown_text<DataError>([] { FixedDataset({{"labels", at::zeros({0}, at::kLong)}}, {}, {}, "mine"); }),
            "mine: the data set is empty\ngive it at least one row");
  Fields fields = good_fields();
  fields.at("labels")[0] = 3;
  EXPECT_THROW(FixedDataset(fields, kLimits), DataError);
}

TEST(FieldChecks, ClassWeightsAreOnePositiveNumberPerClass) {
  EXPECT_NO_THROW(check_class_weights({}, 3));
  EXPECT_NO_THROW(check_class_weights(std::vector{1.0, 2.0}, 2));
  EXPECT_EQ(thrown_text([] { check_class_weights(std::vector{1.0, 2.0}, 3); }),
            "class_weights has 2 entries, but there are 3 classes\ngive class_weights 3 entries, or leave it out");
  for (const double bad : {0.0, -1.0, std::nan("")}) {
    EXPECT_EQ(thrown_text([&] { check_class_weights(std::vector{1.5, bad}, 2); }),
              fmt::format("class_weights is [1.5, {}], but every weight must be a positive number\n"
                          "set weights above 0; 1 is neutral",
                          bad));
  }
}

}  // namespace field_checks_test
}  // namespace orthant
