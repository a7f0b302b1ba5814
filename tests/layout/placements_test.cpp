#include "orthant/layout/placements.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error_text.h"
#include "models/small_models.h"
#include "orthant/layout/placement_table.h"
#include "orthant/layout/tensor_policy.h"
#include "orthant/models/bert/config.h"
#include "orthant/models/encoder_lm/config.h"
#include "orthant/models/gpt2/config.h"
#include "orthant/models/llama/config.h"
#include "orthant/models/trimodal/config.h"

namespace orthant {
namespace placements_test {

using test::small_work;

constexpr TensorPolicy kAll = {.sequence_parallel = true, .loss_parallel = true};

GraphSpec llama(int degree, const TensorPolicy& policy = kAll) {
  return resolved_graph(llama_spec(test::small_llama(), small_work()), policy, degree);
}

Mesh tp(int degree) {
  return Mesh({{Axis::tp, degree}});
}

Placement find(const std::vector<Placement>& rows, const std::string& name) {
  const auto found = std::ranges::find(rows, name, &Placement::parameter);
  EXPECT_NE(found, rows.end()) << name;
  return found == rows.end() ? Placement() : *found;
}

std::string words(const std::vector<Placement>& rows, const std::string& name) {
  return placement_words(find(rows, name));
}

TEST(Placements, SayHowEachParameterIsCut) {
  const auto rows = placements(llama(2), tp(2), 1);
  EXPECT_EQ(words(rows, "embed.weight"), "table rows");
  EXPECT_EQ(words(rows, "layers.0.attention.wq.weight"), "column");
  EXPECT_EQ(words(rows, "layers.0.attention.wk.weight"), "column");
  EXPECT_EQ(words(rows, "layers.0.attention.wo.weight"), "row");
  EXPECT_EQ(words(rows, "layers.1.mlp.w2.weight"), "row");
  EXPECT_EQ(words(rows, "head.norm.weight"), "whole, partial");
  // 11 words over 2 ranks: 5 and 6.
  EXPECT_EQ(find(rows, "embed.weight").local_shape, (Shape{6, 8}));
  EXPECT_EQ(find(placements(llama(2), tp(2), 0), "embed.weight").local_shape, (Shape{5, 8}));
  EXPECT_EQ(find(rows, "layers.1.mlp.w2.weight").local_shape, (Shape{8, 5}));
  EXPECT_EQ(find(rows, "layers.1.mlp.w2.weight").unit, 2);
}

TEST(Placements, NameCopiesOfKeyAndValueHeads) {
  const auto rows = placements(llama(4), tp(4), 3);
  EXPECT_EQ(words(rows, "layers.0.attention.wk.weight"), "column, 2 copies");
  EXPECT_EQ(words(rows, "layers.0.attention.wq.weight"), "column");
  EXPECT_EQ(words(rows, "head.norm.weight"), "whole, partial") << "no copies of what is whole";
}

TEST(Placements, AreWholeOnOneRank) {
  const auto resolved = llama(1);
  for (const Placement& row : placements(resolved, Mesh(), 0)) {
    EXPECT_EQ(placement_words(row), "whole") << row.parameter;
    EXPECT_EQ(row.local_shape, row.shape) << row.parameter;
  }
  EXPECT_TRUE(cut_values(resolved, Mesh(), 0).empty());
}

// Each element of a parameter is on one tp rank, or on as many as there are copies.
TEST(Placements, AddUpToTheModelForEveryModelAndDegree) {
  const std::vector<GraphSpec> models = {
      llama_spec(test::small_llama(), small_work()), gpt2_spec(test::small_gpt2(), small_work()),
      encoder_lm_spec(test::small_encoder_lm(), small_work()), bert_model_spec(test::small_bert(), small_work()),
      trimodal_spec(test::small_trimodal(), small_work())};
  for (const GraphSpec& model : models) {
    for (const int degree : {1, 2, 4}) {
      const auto resolved = resolved_graph(model, kAll, degree);
      std::vector<std::int64_t> held;
      std::vector<Placement> rows;
      for (int rank = 0; rank < degree; ++rank) {
        rows = placements(resolved, tp(degree), rank);
        held.resize(rows.size());
        for (std::size_t i = 0; i < rows.size(); ++i) held[i] += num_elements(rows[i].local_shape);
      }
      for (std::size_t i = 0; i < rows.size(); ++i) {
        const auto times = rows[i].cut == Placement::Cut::whole ? degree : rows[i].copies;
        EXPECT_EQ(held[i], times * num_elements(rows[i].shape)) << model.name << " " << rows[i].parameter;
      }
    }
  }
}

TEST(Placements, ListTheValuesThatAreCut) {
  const auto values = cut_values(llama(4), tp(4), 1);
  ASSERT_EQ(values.size(), 4U);
  // 2 rows of 3 tokens over 4 ranks: 1, 2, 1, 2.
  EXPECT_EQ(values[0], (ValuePlacement{"hidden.0", {2, 3, 8}, ValuePlacement::Cut::tokens, {2, 8}}));
  EXPECT_EQ(values[3], (ValuePlacement{"logits", {2, 3, 11}, ValuePlacement::Cut::vocabulary, {2, 3, 3}}));
  const auto whole_logits = cut_values(llama(4, {.sequence_parallel = true}), tp(4), 1);
  EXPECT_EQ(whole_logits.size(), 3U);
  EXPECT_TRUE(cut_values(llama(4, {}), tp(4), 1).empty());
}

TEST(Placements, FollowAPlan) {
  const auto resolved = llama(2, {.sequence_parallel = true, .styles = {{"mlp", TensorStyle::replicate}}});
  const auto rows = placements(resolved, tp(2), 0);
  EXPECT_EQ(words(rows, "layers.0.mlp.w1.weight"), "whole, partial");
  EXPECT_EQ(words(rows, "layers.0.attention.wo.weight"), "row");
}

TEST(Placements, AskForAGraphOfThisMesh) {
  EXPECT_EQ(error_text<InternalError>([] { placements(llama(2), tp(4), 0); }),
            "graph \"llama\" is resolved for 2 tp ranks, and mesh tp=4 has 4");
  EXPECT_EQ(error_text<InternalError>([] { cut_values(llama_spec(test::small_llama(), small_work()), Mesh(), 0); }),
            "graph \"llama\" is resolved for 0 tp ranks, and mesh dp=1 has 1");
}

TEST(PlacementTable, FoldsLayersAndEndsWithTotals) {
  const Mesh mesh({{Axis::fsdp, 2}, {Axis::tp, 2}});
  EXPECT_EQ(placement_text(llama(2), mesh, 1, DType::float32),
            R"(Parameters of llama in float32 on rank 1, at fsdp=0,tp=1

parameter                           shape    over tp         on this rank  bytes
embed.weight                        [11, 8]  table rows      [6, 8]        192 B
layers.0-1.attention.wq.weight  x2  [8, 8]   column          [4, 8]        256 B
layers.0-1.attention.wk.weight  x2  [4, 8]   column          [2, 8]        128 B
layers.0-1.attention.wv.weight  x2  [4, 8]   column          [2, 8]        128 B
layers.0-1.attention.wo.weight  x2  [8, 8]   row             [8, 4]        256 B
layers.0-1.mlp.w1.weight  x2        [10, 8]  column          [5, 8]        320 B
layers.0-1.mlp.w3.weight  x2        [10, 8]  column          [5, 8]        320 B
layers.0-1.mlp.w2.weight  x2        [8, 10]  row             [8, 5]        320 B
layers.0-1.norm1.weight  x2         [8]      whole, partial  [8]            64 B
layers.0-1.norm2.weight  x2         [8]      whole, partial  [8]            64 B
head.weight                         [11, 8]  column          [6, 8]        192 B
head.norm.weight                    [8]      whole, partial  [8]            32 B

Values that tp cuts, of a microbatch

value           shape       cut over    on this rank
hidden.0-2  x3  [2, 3, 8]   tokens      [3, 8]
logits          [2, 3, 11]  vocabulary  [2, 3, 6]

Flat buffers with their padding, which fsdp=2 cuts into shards

flat buffer     elements    bytes    shard
embed                 64    256 B    128 B
layers.0-1  x2       640  2.5 KiB  1.2 KiB
head                 128    512 B    256 B

The model has 1.1K parameters, 4.2 KiB. This rank's part has 568, 2.2 KiB; a shard of its flat buffers has 1.6 KiB.
)");
}

TEST(PlacementTable, ALayerThatDiffersStandsAlone) {
  GraphSpec graph = llama_spec(test::small_llama(), small_work());
  const auto resolved = resolved_graph(graph, {.styles = {{"layers.1.mlp", TensorStyle::replicate}}}, 2);
  const std::string text = placement_text(resolved, tp(2), 0, DType::float32);
  EXPECT_NE(text.find("\nlayers.0.attention.wq.weight "), std::string::npos) << text;
  EXPECT_NE(text.find("\nlayers.1.mlp.w1.weight "), std::string::npos) << text;
  EXPECT_EQ(text.find("layers.0-1"), std::string::npos) << text;
  EXPECT_EQ(text.find("Flat buffers"), std::string::npos) << "nothing to cut without fsdp";
}

TEST(PlacementTable, AStageHasItsOwnUnitsOnly) {
  const Mesh mesh({{Axis::pp, 2}, {Axis::fsdp, 2}, {Axis::tp, 2}});
  EXPECT_EQ(placement_text(llama(2), mesh, 5, DType::float32, {0, 0, 0, 1, 1}),
            R"(Parameters of llama in float32 on rank 5, at pp=1,fsdp=0,tp=1

parameter         shape    over tp         on this rank  bytes
head.weight       [11, 8]  column          [6, 8]        192 B
head.norm.weight  [8]      whole, partial  [8]            32 B

Values that tp cuts, of a microbatch

value     shape       cut over    on this rank
hidden.2  [2, 3, 8]   tokens      [3, 8]
logits    [2, 3, 11]  vocabulary  [2, 3, 6]

Flat buffers with their padding, which fsdp=2 cuts into shards

flat buffer  elements  bytes  shard
head              128  512 B  256 B

The model has 1.1K parameters, 4.2 KiB. This rank's part has 56, 224 B; a shard of its flat buffers has 256 B.
)");
}

TEST(Placements, AStageThatBorrowsAParameterHasACopyOfIt) {
  auto config = test::small_llama();
  config.tie_word_embeddings = true;
  const auto graph = resolved_graph(llama_spec(config, small_work()), {}, 1);
  const Mesh mesh({{Axis::pp, 2}});
  const auto rows = placements(graph, mesh, 1, {0, 0, 0, 1, 1});
  EXPECT_EQ(find(rows, "embed.weight").unit, 0);
  EXPECT_EQ(rows.size(), 2U) << "the table and the head's norm";
}

TEST(PlacementTable, JsonListsEveryParameter) {
  const auto document = placement_json(llama(2), tp(2), 1, DType::bfloat16);
  EXPECT_EQ(document["rank"], 1);
  EXPECT_EQ(document["parameters"].size(), placements(llama(2), tp(2), 1).size());
  EXPECT_EQ(document["parameters"][0].dump(),
            R"({"name":"embed.weight","shape":[11,8],"placement":"table rows","local_shape":[6,8],"bytes":96})");
  EXPECT_EQ(document["values"].back().dump(),
            R"({"name":"logits","shape":[2,3,11],"placement":"vocabulary","local_shape":[2,3,6]})");
}

}  // namespace placements_test
}  // namespace orthant
