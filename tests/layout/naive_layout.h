// The plain version of layouts, one element at a time: which global elements a rank holds, in which order. Tests
// compare the real ones with it. Elements are known by their row-major index in the global tensor.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "orthant/base/ranges.h"
#include "orthant/graph/spec.h"
#include "orthant/layout/flat_unit.h"

namespace orthant::test {

using Elements = std::vector<std::int64_t>;

// Whether a tp coordinate holds index `i` of the split dim.
inline bool holds(const Split& split, std::int64_t dim_size, std::int64_t i, int degree, int coordinate) {
  const std::vector<std::int64_t> blocks = split.blocks.empty() ? std::vector<std::int64_t>{dim_size} : split.blocks;
  for (const std::int64_t block : blocks) {
    if (i >= block) {
      i -= block;
      continue;
    }
    const std::int64_t granules = block / split.granule;
    const std::int64_t granule = i / split.granule;
    if (granules < degree) return coordinate / (degree / granules) == granule;
    return granule >= coordinate * granules / degree && granule < (coordinate + 1) * granules / degree;
  }
  return false;
}

// The elements of the local tensor, row-major.
inline Elements local_elements(const ParameterSpec& parameter, int degree, int coordinate) {
  std::int64_t total = 1;
  for (const std::int64_t size : parameter.shape) total *= size;
  std::int64_t inner = 1;
  std::int64_t size = 1;
  if (parameter.tp) {
    const auto dim = static_cast<std::size_t>(parameter.tp->dim);
    size = parameter.shape[dim];
    for (std::size_t d = dim + 1; d < parameter.shape.size(); ++d) inner *= parameter.shape[d];
  }
  Elements out;
  for (std::int64_t e = 0; e < total; ++e) {
    if (!parameter.tp || holds(*parameter.tp, size, e / inner % size, degree, coordinate)) out.push_back(e);
  }
  return out;
}

// The elements of a box, or of a range inside it, of a tensor of that shape.
inline Elements box_elements(const Shape& shape, const std::vector<std::int64_t>& offsets,
                             const std::vector<std::int64_t>& lengths) {
  std::int64_t count = 1;
  for (const std::int64_t length : lengths) count *= length;
  Elements out;
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t rest = i;
    std::int64_t element = 0;
    std::int64_t step = 1;
    for (std::size_t d = shape.size(); d-- > 0;) {
      element += (offsets[d] + rest % lengths[d]) * step;
      rest /= lengths[d];
      step *= shape[d];
    }
    out.push_back(element);
  }
  return out;
}

template <class Piece>
Elements piece_elements(const Shape& shape, const Piece& piece) {
  const Elements all = box_elements(shape, piece.offsets, piece.lengths);
  if (!piece.range) return all;
  return {all.begin() + piece.range->begin, all.begin() + piece.range->end};
}

inline const ParameterSpec& spec_of(const GraphSpec& graph, const std::string& name) {
  static const ParameterSpec kNone;
  for (const UnitSpec& unit : graph.units) {
    for (const ParameterSpec& parameter : unit.parameters) {
      if (parameter.name == name) return parameter;
    }
  }
  return kNone;
}

// A buffer whose every place holds its element's index; -1 in the padding.
inline Elements filled(const GraphSpec& graph, const FlatBuffer& buffer, int tp_degree, int tp_coordinate) {
  Elements data(static_cast<std::size_t>(buffer.size), -1);
  for (const FlatEntry& entry : buffer.entries) {
    const Elements local = local_elements(spec_of(graph, entry.parameter), tp_degree, tp_coordinate);
    for (std::size_t i = 0; i < local.size(); ++i) data[static_cast<std::size_t>(entry.offset) + i] = local[i];
  }
  return data;
}

}  // namespace orthant::test
