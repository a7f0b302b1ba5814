#include "orthant/program/sizes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "orthant/base/error.h"
#include "orthant/base/index.h"

namespace orthant {
namespace {

// Sums of a few of these stay within 64 bits.
constexpr std::int64_t kMaxBytes = std::int64_t{1} << 56;

std::int64_t largest_part(std::int64_t size, const DimCut& cut, int degree) {
  std::int64_t local = 0;
  const auto blocks = cut.blocks.empty() ? std::vector<std::int64_t>{size} : cut.blocks;
  // A block of fewer granules than ranks is held in copies.
  for (const std::int64_t block : blocks) {
    local += std::max<std::int64_t>((block / cut.granule + degree - 1) / degree, 1) * cut.granule;
  }
  return local;
}

std::int64_t size_of(const Dim& dim, const UnitSizes& sizes) {
  std::int64_t size = dim.factor;
  if (dim.sym == Sym::rows) size *= sizes.rows;
  if (dim.sym == Sym::tokens) size *= sizes.tokens();
  if (dim.sym == Sym::sequence) size *= sizes.sequence;
  for (const auto& cut : dim.cuts) {
    size = dim.sym == Sym::one ? largest_part(size, cut, sizes.degree)
                               : (size / cut.granule + sizes.degree - 1) / sizes.degree * cut.granule;
  }
  return size;
}

}  // namespace

UnitSizes unit_sizes(const GraphSpec& graph, const UnitSpec& unit, const TensorSharing& sharing) {
  UnitSizes sizes{.degree = sharing.degree};
  sizes.compute = graph.value(unit.is_loss ? unit.inputs.front() : unit.outputs.front()).dtype;
  if (const auto field = graph.tokens_of(unit); !field.empty()) {
    const Shape& shape = graph.value(field).shape;
    sizes.rows = shape[0];
    sizes.whole_sequence = shape[1];
    sizes.sequence = most_own_positions(shape[1], graph.context);
  } else if (const Shape& shape = graph.value(unit.inputs.front()).shape; !shape.empty()) {
    sizes.rows = shape[0];
  }
  return sizes;
}

Shape local_shape(const ValuePlace& at, const UnitSizes& sizes) {
  Shape shape;
  for (const auto& dim : at.dims) shape.push_back(size_of(dim, sizes));
  return shape;
}

Shape local_shape(const ParameterAt& at, const UnitSizes& sizes) {
  Shape shape = at.shape;
  if (at.experts > 0) {
    shape[0] = shape[0] / at.experts * ((at.experts + at.expert_degree - 1) / at.expert_degree);
  }
  if (at.cut_dim >= 0) {
    auto& size = shape[to_index(at.cut_dim)];
    size = largest_part(size, at.cut, sizes.degree);
  }
  return shape;
}

std::int64_t local_elements(const ValuePlace& at, const UnitSizes& sizes) {
  return num_elements(local_shape(at, sizes));
}

DType statistics_dtype(DType compute) {
  return compute == DType::float64 ? DType::float64 : DType::float32;
}

std::int64_t element_bytes(Number number, DType compute) {
  switch (number) {
    case Number::compute:
      return bytes_of(compute);
    case Number::statistic:
      return bytes_of(statistics_dtype(compute));
    case Number::index:
      return bytes_of(DType::int64);
    case Number::mask:
      return bytes_of(DType::boolean);
    case Number::opaque:
      return 0;
    case Number::place:
      return bytes_of(DType::int64);
    case Number::float8:
      return 1;
  }
  return 0;
}

std::int64_t local_bytes(const ProgramValue& value, const UnitSizes& sizes) {
  if (value.number == Number::opaque) return 0;
  const Shape shape = local_shape(value.at, sizes);
  const std::int64_t elements = num_elements(shape), element = element_bytes(value.number, sizes.compute);
  if (elements <= kMaxBytes / element) return elements * element;
  throw ConfigError(
      fmt::format("one microbatch needs an activation of shape [{}], more than 2^56 bytes", fmt::join(shape, ", ")),
      {.remedy = "use fewer rows or a shorter sequence"});
}

std::int64_t activation_bytes(const Program& program, const std::vector<int>& values, const UnitSizes& sizes) {
  std::int64_t bytes = 0;
  for (const int value : values) {
    const auto& held = program.values[to_index(value)];
    if (is_made(held.number)) bytes += local_bytes(held, sizes);
  }
  return bytes;
}

std::int64_t payload_bytes(const Program& program, const Operation& start, const UnitSizes& sizes) {
  const bool gathers = start.exchange->kind == ExchangeSpec::Kind::gather;
  return local_bytes(program.values[to_index(gathers ? start.out.front() : start.in.front())], sizes);
}

}  // namespace orthant
