#include "orthant/data/classifier_table.h"

#include <ATen/ATen.h>

#include <cmath>
#include <cstdlib>
#include <numeric>
#include <set>

#include "data/table_files.h"
#include "mesh/thrown_error.h"
#include "orthant/base/error.h"
#include "orthant/data/shared_tables.h"

namespace orthant {
namespace classifier_table_test {

using test::thrown_text;

class ClassifierTableTest : public test::TableFiles {
 protected:
  ClassifierTableOptions options(const std::string& path) const {
    ClassifierTableOptions options;
    options.path = path;
    options.primary = {
        .column = "title", .tokenizer = Tokenizer::load(write_vocabulary()), .tokenizer_name = "vocab", .length = 6};
    options.secondary = {.column = "plot", .tokenizer = {}, .tokenizer_name = {}, .length = 5};
    options.tabular = {"x", "y"};
    options.label = "genre";
    return options;
  }

  std::string small() const {
    return write("small.csv",
                 "title,plot,x,y,genre\n"
                 "good film,a,1,,Drama\n"
                 "\"Bad, bad films\",,3,10,Comedy\n"
                 ",b a b a b a b,NA,10,Drama\n"
                 "zebra,a,2,10,Drama\n");
  }

  // `count` rows with x equal to the row number and three labels.
  std::string numbered(int count) const {
    std::string text = "title,plot,x,y,genre\n";
    for (int i = 0; i < count; ++i)
      text += fmt::format("good,bad,{},{},{}\n", i, i % 7, i % 5 == 0 ? "c" : i % 2 == 0 ? "a" : "b");
    return write("numbered.csv", text);
  }
};

std::vector<std::int64_t> all_of(const ClassifierTable& table) {
  std::vector<std::int64_t> indices(static_cast<std::size_t>(table.size()));
  std::iota(indices.begin(), indices.end(), 0);
  return indices;
}

template <typename T>
std::vector<T> values(const at::Tensor& tensor) {
  const auto flat = tensor.contiguous();
  return {flat.const_data_ptr<T>(), flat.const_data_ptr<T>() + flat.numel()};
}

void expect_same(const ClassifierTable& one, const ClassifierTable& other) {
  ASSERT_EQ(one.size(), other.size());
  const auto fields = other.rows(all_of(other));
  for (const auto& [name, tensor] : one.rows(all_of(one))) EXPECT_TRUE(at::equal(tensor, fields.at(name))) << name;
  for (std::int64_t i = 0; i < one.size(); ++i) EXPECT_EQ(one.file_row(i), other.file_row(i));
  EXPECT_EQ(one.class_weights(), other.class_weights());
}

TEST_F(ClassifierTableTest, MayLieInMemoryThatAnotherFilled) {
  for (const bool two_files : {false, true}) {
    auto asked = options(numbered(40));
    asked.balanced_class_weights = true;
    if (two_files) asked.eval_path = write("other.csv", "title,plot,x,y,genre\ngood,bad,1,2,a\nbad,,,3,c\n");
    if (!two_files) asked.eval_fraction = 0.25;
    const auto tables = read_classifier_tables(asked);
    const auto size = shared_size(tables);
    const auto memory =
        std::shared_ptr<std::byte>(static_cast<std::byte*>(std::aligned_alloc(64, (size + 63) / 64 * 64)),
                                   [](std::byte* data) { std::free(data); });
    const auto text = share_tables(tables, {memory.get(), size});
    const auto shared = open_shared_tables(text, {memory.get(), size}, memory);
    expect_same(*tables.train, *shared.train);
    expect_same(*tables.eval, *shared.eval);
    EXPECT_EQ(tables.preprocessing, shared.preprocessing);
    EXPECT_EQ(tables.skipped.count, shared.skipped.count);
    EXPECT_EQ(thrown_text<InternalError>([&] { open_shared_tables(text, {memory.get(), size - 64}, memory); }),
              "a shared table does not fit its memory\n");
  }
}

TEST_F(ClassifierTableTest, GivesTheFieldsThatTheModelReads) {
  const auto tables = read_classifier_tables(options(small()));
  ASSERT_EQ(tables.train->size(), 4);
  EXPECT_EQ(tables.eval, nullptr);
  const std::vector<std::int64_t> taken = {2, 0, 1};
  const auto fields = tables.train->rows(taken);
  EXPECT_EQ(fields.size(), 6U);
  EXPECT_EQ(fields.at("primary_ids").sizes(), at::IntArrayRef({3, 6}));
  // Row 2 has an empty title and a plot that is cut; row 1 is lower-cased and has punctuation that is not known.
  EXPECT_EQ(values<std::int64_t>(fields.at("primary_ids")),
            (std::vector<std::int64_t>{2, 3, 0, 0, 0, 0, 2, 5, 7, 3, 0, 0, 2, 6, 1, 6, 7, 3}));
  const auto mask = fields.at("primary_mask");
  EXPECT_EQ(mask.scalar_type(), at::kBool);
  EXPECT_TRUE(at::equal(mask, fields.at("primary_ids").ne(0)));
  EXPECT_EQ(values<std::int64_t>(fields.at("secondary_ids")),
            (std::vector<std::int64_t>{2, 10, 9, 10, 3, 2, 9, 3, 0, 0, 2, 3, 0, 0, 0}));
  EXPECT_EQ(values<std::int64_t>(fields.at("labels")), (std::vector<std::int64_t>{1, 1, 0}));
}

TEST_F(ClassifierTableTest, StandardisesNumbersAndPutsMissingOnesAtTheMean) {
  const auto tables = read_classifier_tables(options(small()));
  const auto tabular = tables.train->rows(all_of(*tables.train)).at("tabular");
  EXPECT_EQ(tabular.scalar_type(), at::kFloat);
  const auto& numbers = tables.preprocessing.numbers;
  ASSERT_EQ(numbers.size(), 2U);
  EXPECT_DOUBLE_EQ(numbers[0].mean, 2);
  EXPECT_DOUBLE_EQ(numbers[0].scale, std::sqrt(2.0 / 3));
  EXPECT_EQ(numbers[1], (NumberPreprocessing{.column = "y", .mean = 10, .scale = 1})) << "a column without spread";
  const auto one = static_cast<float>(1 / std::sqrt(2.0 / 3));
  EXPECT_EQ(values<float>(tabular), (std::vector<float>{-one, 0, one, 0, 0, 0, 0, 0}));
}

TEST_F(ClassifierTableTest, TotalsNeedNoRows) {
  auto asked = options(small());
  asked.class_weights = {3, 0.5};
  const auto tables = read_classifier_tables(asked);
  const std::vector<std::int64_t> taken = {3, 1, 1, 2};
  const auto fields = tables.train->rows(taken);
  const auto totals = tables.train->totals(taken);
  EXPECT_EQ(totals.tokens, tables.train->tokens(fields));
  EXPECT_EQ(totals.weight_sum, tables.train->weight_sum(fields));
  EXPECT_EQ(totals.weight_sum, 7);
}

TEST_F(ClassifierTableTest, WithoutASecondTextOrNumbers) {
  auto asked = options(small());
  asked.secondary.column = "";
  asked.tabular = {};
  const auto fields = read_classifier_tables(asked).train->rows(std::vector<std::int64_t>{0});
  EXPECT_FALSE(fields.contains("tabular"));
  EXPECT_EQ(values<std::int64_t>(fields.at("secondary_ids")), (std::vector<std::int64_t>{2, 3, 0, 0, 0}));
}

TEST_F(ClassifierTableTest, ReadsJsonLinesAlike) {
  const auto csv = read_classifier_tables(options(small()));
  const auto path = write("small.jsonl",
                          "{\"title\": \"good film\", \"plot\": \"a\", \"x\": 1, \"y\": null, \"genre\": \"Drama\"}\n"
                          "{\"genre\": \"Comedy\", \"title\": \"Bad, bad films\", \"x\": 3.0, \"y\": 10}\n"
                          "{\"title\": null, \"plot\": \"b a b a b a b\", \"y\": 10, \"genre\": \"Drama\"}\n"
                          "{\"title\": \"zebra\", \"plot\": \"a\", \"x\": 2, \"y\": 1e1, \"genre\": \"Drama\"}\n");
  const auto json = read_classifier_tables(options(path));
  EXPECT_EQ(json.preprocessing, csv.preprocessing);
  const auto left = csv.train->rows(all_of(*csv.train));
  const auto right = json.train->rows(all_of(*json.train));
  ASSERT_EQ(left.size(), right.size());
  for (const auto& [name, value] : left) EXPECT_TRUE(at::equal(value, right.at(name))) << name;
}

TEST_F(ClassifierTableTest, HoldsOutTheRoundedNumberOfRowsByTheSeed) {
  auto asked = options(numbered(101));
  asked.eval_fraction = 0.25;
  const auto tables = read_classifier_tables(asked);
  EXPECT_EQ(tables.eval->size(), 25);
  EXPECT_EQ(tables.train->size(), 76);
  std::set<std::int64_t> rows;
  for (const auto* part : {tables.train.get(), tables.eval.get()}) {
    for (std::int64_t i = 0; i < part->size(); ++i) rows.insert(part->file_row(i));
  }
  EXPECT_EQ(rows.size(), 101U);
  const auto held = [&] {
    std::vector<std::int64_t> held_rows;
    const auto eval = read_classifier_tables(asked).eval;
    for (std::int64_t i = 0; i < eval->size(); ++i) held_rows.push_back(eval->file_row(i));
    return held_rows;
  };
  const auto first = held();
  EXPECT_EQ(held(), first);
  asked.seed = 1;
  EXPECT_NE(held(), first);
}

TEST_F(ClassifierTableTest, FitsOnTheTrainingPartAlone) {
  auto asked = options(numbered(100));
  asked.eval_fraction = 0.5;
  const auto tables = read_classifier_tables(asked);
  double sum = 0;
  for (std::int64_t i = 0; i < tables.train->size(); ++i) sum += static_cast<double>(tables.train->file_row(i));
  EXPECT_DOUBLE_EQ(tables.preprocessing.numbers[0].mean, sum / 50) << "x is the row number";
  const auto of_train = tables.train->rows(all_of(*tables.train)).at("tabular").to(at::kDouble);
  EXPECT_NEAR(of_train.mean(0).abs().max().item<double>(), 0, 1e-6);
  EXPECT_NEAR(of_train.square().mean(0).sub(1).abs().max().item<double>(), 0, 1e-5);
  const auto of_eval = tables.eval->rows(std::vector<std::int64_t>{3}).at("tabular");
  const auto& [column, mean, scale] = tables.preprocessing.numbers[0];
  EXPECT_FLOAT_EQ(of_eval[0][0].item<float>(),
                  static_cast<float>((static_cast<double>(tables.eval->file_row(3)) - mean) / scale));
}

TEST_F(ClassifierTableTest, AnEvaluationFileIsReadWithWhatWasFitted) {
  auto asked = options(small());
  asked.eval_path = write("eval.csv", "genre,title,plot,y,x\nDrama,good,a,11,2\n");
  const auto tables = read_classifier_tables(asked);
  EXPECT_EQ(tables.train->size(), 4);
  ASSERT_EQ(tables.eval->size(), 1);
  const auto fields = tables.eval->rows(std::vector<std::int64_t>{0});
  EXPECT_EQ(values<float>(fields.at("tabular")), (std::vector<float>{0, 1}));
  EXPECT_EQ(fields.at("labels").item<std::int64_t>(), 1);
  asked.eval_path = write("unknown.csv", "genre,title,plot,y,x\nDrama,good,a,11,2\nDramma,good,a,11,2\n");
  EXPECT_EQ(thrown_text<DataError>([&] { read_classifier_tables(asked); }),
            asked.eval_path +
                ":3:1: column \"genre\": \"Dramma\" is not one of the labels\n"
                "did you mean \"Drama\"? (one of Comedy, Drama)");
}

TEST_F(ClassifierTableTest, BalancedWeightsComeFromTheTrainingPart) {
  auto asked = options(small());
  asked.balanced_class_weights = true;
  const auto tables = read_classifier_tables(asked);
  EXPECT_EQ(tables.preprocessing.class_weights, (std::vector<double>{2, 4.0 / 6}));
  EXPECT_EQ(tables.train->class_weights(), tables.preprocessing.class_weights);
  EXPECT_EQ(tables.train->label_counts(), (std::vector<std::int64_t>{1, 3}));
}

TEST_F(ClassifierTableTest, BadRowsStopWithFileLineAndColumn) {
  const std::string head = "title,plot,x,y,genre\ngood,a,1,2,Drama\n\"two\nlines\",a,1,2,Comedy\n";
  auto asked = options(write("number.csv", head + "good,a,1,12 min,Drama\n"));
  EXPECT_EQ(thrown_text<DataError>([&] { read_classifier_tables(asked); }),
            asked.path +
                ":5:10: column \"y\": \"12 min\" is not a number\n"
                "write it like -2.5 or 1e3, leave it empty where it is missing, or set data.bad_rows=skip");
  asked.path = write("label.csv", head + "good,a,1,2,\n");
  EXPECT_EQ(thrown_text<DataError>([&] { read_classifier_tables(asked); }),
            asked.path +
                ":5:12: column \"genre\": the label is missing\n"
                "give every row a label, or set data.bad_rows=skip");
  asked.path = write("bytes.csv", head + "good,a,1,2,caf\xe9\n");
  EXPECT_EQ(
      thrown_text<DataError>([&] { read_classifier_tables(asked); }),
      asked.path +
          ":5:15: column \"genre\": byte 0xe9 is not UTF-8\nsave the file as UTF-8: iconv -f WINDOWS-1252 -t UTF-8 " +
          asked.path + " > " + (folder_ / "bytes-utf8.csv").string());
  asked.path = write("texts.csv", head + "caf\xe9,a,1,2,Drama\n");
  EXPECT_EQ(thrown_text<DataError>([&] { read_classifier_tables(asked); }).substr(asked.path.size(), 47),
            ":5:4: column \"title\": byte 0xe9 is not UTF-8\nsa");
}

TEST_F(ClassifierTableTest, BadRowsAreSkippedAndCounted) {
  auto asked = options(write("bad.csv",
                             "title,plot,x,y,genre\ngood,a,1,2,Drama\nshort\ngood,a,x,2,Western\ngood,a,1,2,\n"
                             "good,a,3,2,Comedy\ngood,a,3,2,Comedy\n"));
  asked.skip_bad_rows = true;
  const auto tables = read_classifier_tables(asked);
  EXPECT_EQ(tables.train->size(), 3);
  EXPECT_EQ(tables.skipped.count, 3);
  ASSERT_EQ(tables.skipped.reasons.size(), 3U);
  EXPECT_EQ(tables.skipped.reasons[1], asked.path + ":4:8: column \"x\": \"x\" is not a number");
  EXPECT_EQ(tables.preprocessing.labels, (std::vector<std::string>{"Comedy", "Drama"})) << "no class of a skipped row";
  EXPECT_EQ(tables.train->file_row(1), 4);
  asked.path = write("worse.csv", "title,plot,x,y,genre\ngood,a,1,2,Drama\ngood,a,1,,\ngood,a,1,2,\n");
  EXPECT_EQ(thrown_text<DataError>([&] { read_classifier_tables(asked); }),
            asked.path + ": 2 of 3 rows are bad; the first: " + asked.path +
                ":3:11: column \"genre\": the label is missing\nlook at them with orthant data inspect");
}

TEST_F(ClassifierTableTest, RefusesWhatCannotBeTrainedOn) {
  const auto text_for = [&](const auto& change) {
    auto asked = options(small());
    change(asked);
    return asked;
  };
  const auto config_error = [&](const auto& change) {
    return thrown_text([&] { read_classifier_tables(text_for(change)); });
  };
  using Options = ClassifierTableOptions;
  EXPECT_EQ(config_error([](Options& o) { o.label = "gender"; }),
            small() + ": there is no column \"gender\"\ndid you mean \"genre\"? (one of title, plot, x, y, genre)");
  EXPECT_EQ(config_error([](Options& o) { o.label = ""; }), "no column is named as the label\nset data.label");
  EXPECT_EQ(config_error([](Options& o) { o.primary.column = ""; }),
            "no column is named as the primary text\nset data.primary_text");
  EXPECT_EQ(config_error([](Options& o) { o.label = "x"; }),
            "column \"x\" is both the label and an input\nleave the label out of the texts and of tabular");
  EXPECT_EQ(config_error([](Options& o) { o.tabular = {"x", "y", "x"}; }),
            "column \"x\" is listed twice in tabular\nlist it once");
  EXPECT_EQ(config_error([](Options& o) { o.secondary.length = 2; }),
            "the secondary text has 2 positions, but 2 special tokens need room besides the text\n"
            "set its length to 3 or more");
  EXPECT_EQ(config_error([](Options& o) { o.eval_fraction = 1; }),
            "eval_fraction is 1, but it must be at least 0 and below 1\nset data.eval_fraction=0.1");
  EXPECT_EQ(config_error([](Options& o) { o.eval_fraction = 0.5, o.eval_path = "x.csv"; }),
            "eval_path and eval_fraction are both given\nset one of them");
  EXPECT_EQ(config_error([](Options& o) { o.balanced_class_weights = true, o.class_weights = {1, 2}; }),
            "class weights are given and asked to be balanced\nset one of them");
  EXPECT_EQ(config_error([](Options& o) { o.primary.tokenizer.reset(); }),
            "no tokenizer is named for the texts\nset data.tokenizer");
  const auto data_error = [&](const std::string& text) {
    return thrown_text<DataError>([&] { read_classifier_tables(options(write("other.csv", text))); });
  };
  const auto other = (folder_ / "other.csv").string();
  EXPECT_EQ(data_error("title,plot,x,y,genre\na,a,1,,D\na,a,1,,C\n"),
            other + ": column \"y\" has no number in the training part\nleave it out of data.tabular");
  EXPECT_EQ(data_error("title,plot,x,y,genre\na,a,1,1,D\na,a,1,2,D\n"),
            other + ": column \"genre\" has only one label, \"D\"\nname a column with two labels or more");
  EXPECT_EQ(data_error("title,plot,x,y,genre\n"), other + ": no rows\nname a file with one row per sample");
}

TEST_F(ClassifierTableTest, APreprocessingIsAppliedInsteadOfFitted) {
  auto asked = options(small());
  asked.balanced_class_weights = true;
  const auto trained = read_classifier_tables(asked);
  asked.path = write("later.csv", "title,plot,x,y,genre\ngood,a,2,12,Drama\n");
  asked.preprocessing = trained.preprocessing;
  asked.preprocessing_source = "run/preprocessing.json";
  const auto later = read_classifier_tables(asked);
  EXPECT_EQ(later.preprocessing, trained.preprocessing);
  const auto fields = later.train->rows(std::vector<std::int64_t>{0});
  EXPECT_EQ(values<float>(fields.at("tabular")), (std::vector<float>{0, 2}));
  EXPECT_EQ(fields.at("labels").item<std::int64_t>(), 1);
  asked.tabular = {"y", "x"};
  EXPECT_EQ(thrown_text<DataError>([&] { read_classifier_tables(asked); }),
            "run/preprocessing.json does not describe the data of this run:\n"
            "  numbers: [\"x\", \"y\"] saved, [\"y\", \"x\"] now\n"
            "use the columns, tokenizers, lengths and labels that the model was trained with, or start a new run");
}

TEST_F(ClassifierTableTest, RowsToScoreNeedNoLabels) {
  auto asked = options(small());
  const auto trained = read_classifier_tables(asked);
  asked.preprocessing = trained.preprocessing;
  asked.labels_optional = true;
  const auto same = read_table_to_score(asked);
  EXPECT_TRUE(same.has_labels);
  const auto all = all_of(*same.rows);
  EXPECT_TRUE(at::equal(same.rows->rows(all).at("tabular"), trained.train->rows(all).at("tabular")));
  EXPECT_TRUE(at::equal(same.rows->rows(all).at("labels"), trained.train->rows(all).at("labels")));
  asked.path = write("some.csv", "title,plot,x,y,genre\ngood,a,2,12,Drama\ngood,a,2,12,\ngood,a,2,12,Western\n");
  const auto some = read_table_to_score(asked);
  EXPECT_EQ(some.unknown_labels, 1);
  EXPECT_EQ(values<std::int64_t>(some.rows->rows(all_of(*some.rows)).at("labels")),
            (std::vector<std::int64_t>{1, kIgnoredLabel, kIgnoredLabel}));
  EXPECT_EQ(some.rows->label(0), 1);
  EXPECT_EQ(some.rows->label_counts(), (std::vector<std::int64_t>{0, 1}));
  EXPECT_EQ(some.rows->totals(all_of(*some.rows)).weight_sum, 1);
  for (const auto& [name, text] : std::vector<std::pair<std::string, std::string>>{
           {"none.csv", "title,plot,x,y\ngood,a,2,12\n"},
           {"none.jsonl", R"({"title":"good","plot":"a","x":2,"y":12})"},
           {"none.json", R"([{"title":"good","plot":"a","x":2,"y":12}])"}}) {
    asked.path = write(name, text);
    const auto none = read_table_to_score(asked);
    EXPECT_FALSE(none.has_labels) << name;
    EXPECT_EQ(none.rows->label(0), kIgnoredLabel) << name;
    EXPECT_EQ(values<float>(none.rows->rows(all_of(*none.rows)).at("tabular")), (std::vector<float>{0, 2})) << name;
  }
  asked.labels_optional = false;
  asked.path = (folder_ / "none.csv").string();
  EXPECT_NE(thrown_text([&] { read_table_to_score(asked); }).find("there is no column \"genre\""), std::string::npos);
}

TEST_F(ClassifierTableTest, ANumberFarFromTheTrainingPartIsRefused) {
  auto asked = options(small());
  asked.eval_path = write("far.csv", "genre,title,plot,y,x\nDrama,good,a,1,2\nDrama,good,a,1e30,2\n");
  EXPECT_EQ(thrown_text<DataError>([&] { read_classifier_tables(asked); }),
            asked.eval_path +
                ": row 2: column \"y\" is 1e+30, which is 1e+30 standard deviations from the mean of the "
                "training part\nmend the number, or leave it empty");
}

TEST_F(ClassifierTableTest, TellsHowFarItIs) {
  auto asked = options(numbered(10000));
  std::vector<std::int64_t> told;
  asked.progress = [&](std::int64_t rows) { told.push_back(rows); };
  read_classifier_tables(asked);
  EXPECT_EQ(told, (std::vector<std::int64_t>{4096, 8192, 10000}));
}

}  // namespace classifier_table_test
}  // namespace orthant
