#include "orthant/layout/flat_unit.h"

#include <gtest/gtest.h>

#include "layout/random_graph.h"
#include "mesh/thrown_error.h"
#include "orthant/base/error.h"

namespace orthant {
namespace flat_unit_test {

using test::named_parameter;
using test::named_unit;
using test::thrown_text;

// A layer with joined projections, a norm and a frozen bias; the table is tied to a head.
GraphSpec small_graph() {
  const auto projection = [](std::string name, std::int64_t rows) {
    auto parameter = named_parameter(std::move(name), {rows, 5}, Split{.dim = 0, .blocks = {}, .granule = 2});
    parameter.joined = "qkv";
    return parameter;
  };
  ParameterSpec norm = named_parameter("layer.norm", {5});
  norm.decay = false;
  ParameterSpec bias = named_parameter("layer.bias", {5});
  bias.decay = false;
  bias.trainable = false;
  UnitSpec embed =
      named_unit("embed", {named_parameter("embed.position", {4, 5}), named_parameter("embed.table", {7, 5})});
  UnitSpec layer = named_unit("layer", {norm, projection("layer.q", 8), projection("layer.k", 4),
                                        projection("layer.v", 4), bias, named_parameter("layer.out", {3, 11})});
  UnitSpec head = named_unit("head");
  head.borrowed = {"embed.table"};
  return test::named_graph("small", {embed, layer, head});
}

Coordinate tp_coordinate(int tp) {
  Coordinate coordinate;
  coordinate[Axis::tp] = tp;
  return coordinate;
}

TEST(FlatBuffers, LayOutDecayedFirstJoinedWithoutGapFrozenApart) {
  const auto buffers = flat_buffers(small_graph(), 1, Mesh::parse("fsdp=3,tp=2"), tp_coordinate(1));
  ASSERT_EQ(buffers.size(), 2U);
  const FlatBuffer& layer = buffers[0];
  EXPECT_EQ(layer.name, "layer");
  EXPECT_EQ(layer.users, (std::vector<int>{1}));
  ASSERT_EQ(layer.entries.size(), 5U);
  EXPECT_EQ(layer.entry("layer.q").range(), (Range{0, 20}));
  EXPECT_EQ(layer.entry("layer.k").range(), (Range{20, 30}));
  EXPECT_EQ(layer.entry("layer.v").range(), (Range{30, 40}));
  EXPECT_EQ(layer.entry("layer.out").range(), (Range{64, 97}));
  EXPECT_EQ(layer.decayed, 128);
  EXPECT_EQ(layer.entry("layer.norm").range(), (Range{128, 133}));
  EXPECT_EQ(layer.size, 192);
  EXPECT_EQ(layer.shard(1), (Range{64, 128}));
  EXPECT_EQ(layer.find("layer.bias"), nullptr);
  EXPECT_EQ(buffers[1].name, "layer.frozen");
  EXPECT_FALSE(buffers[1].trainable);
  EXPECT_EQ(buffers[1].decayed, 0);
  EXPECT_EQ(buffers[1].size, 96);
}

TEST(FlatBuffers, FindJoinedRuns) {
  const auto buffers = flat_buffers(small_graph(), 1, Mesh(), Coordinate());
  const JoinedRun run = joined_entry(buffers[0], "qkv");
  EXPECT_EQ(run.offset, 0);
  EXPECT_EQ(run.elements, 80);
  EXPECT_EQ(run.first_entry, 0U);
  EXPECT_EQ(run.num_entries, 3U);
  EXPECT_EQ(thrown_text<InternalError>([&] { joined_entry(buffers[0], "gate"); }),
            "buffer layer holds no parameters joined as \"gate\"\n");
  EXPECT_THROW(joined_entry(buffers[0], ""), InternalError);
}

TEST(FlatBuffers, GiveTiedParametersABufferOfTheOwner) {
  const GraphSpec graph = small_graph();
  const auto buffers = flat_buffers(graph, 0, Mesh(), Coordinate());
  ASSERT_EQ(buffers.size(), 2U);
  EXPECT_EQ(buffers[0].name, "embed");
  EXPECT_EQ(buffers[0].entries.at(0).parameter, "embed.position");
  EXPECT_EQ(buffers[1].name, "embed.tied");
  EXPECT_TRUE(buffers[1].tied());
  EXPECT_EQ(buffers[1].users, (std::vector<int>{0, 2}));
  EXPECT_TRUE(flat_buffers(graph, 2, Mesh(), Coordinate()).empty());
}

TEST(FlatBuffers, GroupTiedParametersByTheirBorrowers) {
  GraphSpec graph = small_graph();
  UnitSpec second = named_unit("second");
  second.borrowed = {"embed.position", "embed.extra"};
  graph.units[0].parameters.push_back(named_parameter("embed.extra", {3}));
  graph.units[0].parameters.push_back(named_parameter("embed.also", {3}));
  graph.units[0].parameters.back().trainable = false;
  graph.units[2].borrowed.emplace_back("embed.also");
  graph.units.push_back(second);
  const auto buffers = flat_buffers(graph, 0, Mesh(), Coordinate());
  ASSERT_EQ(buffers.size(), 3U);
  EXPECT_EQ(buffers[0].name, "embed.tied");
  EXPECT_EQ(buffers[0].users, (std::vector<int>{0, 3}));
  EXPECT_EQ(buffers[0].entries.size(), 2U);
  EXPECT_EQ(buffers[1].name, "embed.tied.2");
  EXPECT_EQ(buffers[1].users, (std::vector<int>{0, 2}));
  EXPECT_EQ(buffers[2].name, "embed.tied.2.frozen");
}

TEST(FlatBuffers, KeepEveryPromiseOnRandomGraphs) {
  test::RandomGraphs random(5);
  for (int round = 0; round < 300; ++round) {
    const int tp = 1 + random.below(4);
    const int fsdp = 1 + random.below(4);
    const Mesh mesh(Degrees{{Axis::tp, tp}, {Axis::fsdp, fsdp}});
    const GraphSpec graph = random.graph({tp});
    for (std::size_t u = 0; u < graph.units.size(); ++u) {
      std::size_t entries = 0;
      for (const FlatBuffer& buffer : flat_buffers(graph, static_cast<int>(u), mesh, tp_coordinate(tp - 1))) {
        SCOPED_TRACE(fmt::format("round {} buffer {}", round, buffer.name));
        EXPECT_EQ(buffer.size % (fsdp * kFlatAlignment), 0);
        EXPECT_EQ(buffer.decayed % kFlatAlignment, 0);
        EXPECT_EQ(buffer.shard(fsdp - 1).end, buffer.size);
        std::int64_t end = 0;
        std::string label;
        for (const FlatEntry& entry : buffer.entries) {
          EXPECT_GE(entry.offset, end);
          EXPECT_LT(entry.offset - end, kFlatAlignment);
          EXPECT_TRUE(entry.joined == label ? entry.offset == end : entry.offset % kFlatAlignment == 0);
          EXPECT_EQ(entry.offset < buffer.decayed, buffer.trainable && entry.decay);
          end = entry.range().end;
          label = entry.joined;
        }
        EXPECT_LE(end, buffer.size);
        EXPECT_LT(buffer.size - end, (fsdp + 1) * kFlatAlignment);
        entries += buffer.entries.size();
      }
      EXPECT_EQ(entries, graph.units[u].parameters.size());
    }
  }
}

TEST(FlatBuffers, RefuseJoinedParametersThatLieApart) {
  GraphSpec graph = small_graph();
  graph.units[1].parameters.back().joined = "norms";
  graph.units[1].parameters.front().joined = "norms";
  EXPECT_EQ(thrown_text([&] { flat_buffers(graph, 1, Mesh(), Coordinate()); }),
            "unit layer: parameters layer.out and layer.norm are joined as \"norms\" but would not lie side by side\n"
            "list joined parameters one after another, all decayed or none, or join them under another label");
}

TEST(FlatBuffers, NameWhatIsNotThere) {
  const GraphSpec graph = small_graph();
  const auto buffers = flat_buffers(graph, 1, Mesh(), Coordinate());
  EXPECT_EQ(thrown_text<InternalError>([&] { buffers[0].entry("layer.bias"); }),
            "buffer layer holds no parameter layer.bias\n");
  EXPECT_EQ(thrown_text<InternalError>([&] { buffers[0].shard(1); }),
            "buffer layer has 1 shards and none of index 1\n");
  EXPECT_EQ(thrown_text<InternalError>([&] { flat_buffers(graph, 3, Mesh(), Coordinate()); }),
            "graph small has 3 units and none of index 3\n");
}

}  // namespace flat_unit_test
}  // namespace orthant
