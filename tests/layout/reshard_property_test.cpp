// Whole worlds at once: what one mesh writes is each element once, and any other mesh finds all it needs in it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>

#include "layout/naive_layout.h"
#include "layout/random_graph.h"
#include "mesh/random_mesh.h"
#include "orthant/layout/pieces.h"

namespace orthant {
namespace reshard_property_test {

using test::Elements;

struct Stored {
  Piece piece;
  Elements data;
};
using Store = std::map<std::string, std::vector<Stored>>;  // by tensor

Elements slice(const Elements& data, std::int64_t begin, std::int64_t count) {
  return {data.begin() + begin, data.begin() + begin + count};
}

// Unit u lives on stage u mod pp.
bool on_stage(const Mesh& mesh, int rank, int unit) {
  return mesh.coordinate(rank)[Axis::pp] == unit % mesh.degree(Axis::pp);
}

// What all ranks of the mesh write. Also holds what each rank writes against its own shard.
Store written(const GraphSpec& graph, const Mesh& mesh) {
  Store store;
  for (int rank = 0; rank < mesh.world_size(); ++rank) {
    const Coordinate at = mesh.coordinate(rank);
    for (int unit = 0; unit < static_cast<int>(graph.units.size()); ++unit) {
      if (!on_stage(mesh, rank, unit)) continue;
      for (const FlatBuffer& buffer : flat_buffers(graph, unit, mesh, at)) {
        const Elements data = test::filled(graph, buffer, mesh.degree(Axis::tp), at[Axis::tp]);
        const Range shard = buffer.shard(at[Axis::fsdp]);
        for (const Piece& piece : pieces_to_write(buffer, mesh, rank)) {
          EXPECT_GE(piece.local_offset, shard.begin) << piece.tensor << " rank " << rank;
          EXPECT_LE(piece.local_offset + piece.elements(), shard.end) << piece.tensor << " rank " << rank;
          store[piece.tensor].push_back({piece, slice(data, piece.local_offset, piece.elements())});
        }
      }
    }
  }
  return store;
}

void expect_each_element_once(const GraphSpec& graph, const Store& store) {
  for (const UnitSpec& unit : graph.units) {
    for (const ParameterSpec& parameter : unit.parameters) {
      std::vector<int> writers(static_cast<std::size_t>(num_elements(parameter.shape)), 0);
      for (const Stored& stored : store.at(parameter.name)) {
        ASSERT_EQ(stored.data, test::piece_elements(parameter.shape, stored.piece)) << parameter.name;
        for (const std::int64_t element : stored.data) ++writers[static_cast<std::size_t>(element)];
      }
      EXPECT_EQ(writers, std::vector<int>(writers.size(), 1)) << parameter.name;
    }
  }
}

// Every rank of the mesh fills its shards from the store alone.
void expect_restored(const GraphSpec& graph, const Mesh& mesh, const Store& store) {
  for (int rank = 0; rank < mesh.world_size(); ++rank) {
    const Coordinate at = mesh.coordinate(rank);
    if (at[Axis::dp] + at[Axis::cp] > 0) continue;  // equal to the first replica
    for (int unit = 0; unit < static_cast<int>(graph.units.size()); ++unit) {
      for (const FlatBuffer& buffer : flat_buffers(graph, unit, mesh, at)) {
        const Range shard = buffer.shard(at[Axis::fsdp]);
        const Elements data = test::filled(graph, buffer, mesh.degree(Axis::tp), at[Axis::tp]);
        Elements restored(data.size(), -1);
        for (const Piece& wanted : pieces_of(buffer, shard)) {
          for (const Stored& stored : store.at(wanted.tensor)) {
            for (const Overlap& run : intersect(wanted, stored.piece)) {
              for (std::int64_t e = 0; e < run.length; ++e) {
                restored.at(static_cast<std::size_t>(wanted.local_offset + run.wanted_offset + e)) =
                    stored.data.at(static_cast<std::size_t>(run.stored_offset + e));
              }
            }
          }
        }
        ASSERT_EQ(slice(restored, shard.begin, shard.size()), slice(data, shard.begin, shard.size()))
            << buffer.name << " rank " << rank << " of " << mesh.to_string();
      }
    }
  }
}

TEST(Reshard, AnyMeshReadsWhatAnyOtherWrote) {
  test::RandomMeshes meshes(3);
  test::RandomGraphs graphs(4);
  for (int round = 0; round < 60; ++round) {
    const Mesh writer = meshes.next();
    const Mesh reader = meshes.next();
    SCOPED_TRACE(fmt::format("round {}: {} -> {}", round, writer.to_string(), reader.to_string()));
    const GraphSpec graph = graphs.graph({writer.degree(Axis::tp), reader.degree(Axis::tp)});
    const Store store = written(graph, writer);
    expect_each_element_once(graph, store);
    expect_restored(graph, reader, store);
    if (HasFatalFailure()) return;
  }
}

TEST(Reshard, EveryElementLiesOnAsManyRanksAsThePlacementsSay) {
  test::RandomMeshes meshes(7);
  test::RandomGraphs graphs(8);
  for (int round = 0; round < 60; ++round) {
    const Mesh mesh = meshes.next();
    SCOPED_TRACE(fmt::format("round {}: {}", round, mesh.to_string()));
    const int tp = mesh.degree(Axis::tp);
    const GraphSpec graph = graphs.graph({tp});
    std::map<std::string, std::vector<int>> ranks;
    for (int rank = 0; rank < mesh.world_size(); ++rank) {
      const Coordinate at = mesh.coordinate(rank);
      for (int unit = 0; unit < static_cast<int>(graph.units.size()); ++unit) {
        if (!on_stage(mesh, rank, unit)) continue;
        for (const FlatBuffer& buffer : flat_buffers(graph, unit, mesh, at)) {
          for (const Piece& piece : pieces_of(buffer, buffer.shard(at[Axis::fsdp]))) {
            const Shape& shape = test::spec_of(graph, piece.tensor).shape;
            auto& count = ranks[piece.tensor];
            count.resize(static_cast<std::size_t>(num_elements(shape)));
            for (const std::int64_t e : test::piece_elements(shape, piece)) ++count[static_cast<std::size_t>(e)];
          }
        }
      }
    }
    const int replicas = mesh.degree(Axis::dp) * mesh.degree(Axis::cp);
    for (const auto& [name, count] : ranks) {
      std::vector<int> expected(count.size(), 0);
      for (int t = 0; t < tp; ++t) {
        for (const std::int64_t e : test::local_elements(test::spec_of(graph, name), tp, t)) {
          expected[static_cast<std::size_t>(e)] += replicas;
        }
      }
      EXPECT_EQ(count, expected) << name;
    }
  }
}

}  // namespace reshard_property_test
}  // namespace orthant
