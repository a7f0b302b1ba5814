#include "orthant/layout/local_parameter.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <string>

#include "orthant/base/error.h"

namespace orthant {
namespace {

void check_coordinate(const ParameterSpec& parameter, int degree, int coordinate) {
  if (coordinate >= 0 && coordinate < degree) return;
  throw InternalError(
      fmt::format("parameter {}: no tp coordinate {} of degree {}", parameter.name, coordinate, degree));
}

std::vector<std::int64_t> blocks_of(const ParameterSpec& parameter) {
  const Split& split = *parameter.tp;
  if (split.dim < 0 || split.dim >= static_cast<int>(parameter.shape.size())) {
    throw ConfigError(fmt::format("parameter {}: split along dim {}, but its shape is [{}]", parameter.name, split.dim,
                                  fmt::join(parameter.shape, ", ")),
                      {.remedy = "split along a dim of the shape"});
  }
  const std::int64_t size = parameter.shape[static_cast<std::size_t>(split.dim)];
  std::vector<std::int64_t> blocks = split.blocks.empty() ? std::vector<std::int64_t>{size} : split.blocks;
  const bool whole = split.granule > 0 && std::ranges::all_of(blocks, [&](std::int64_t block) {
                       return block > 0 && block % split.granule == 0;
                     });
  if (!whole || std::accumulate(blocks.begin(), blocks.end(), std::int64_t{0}) != size) {
    throw ConfigError(
        fmt::format("parameter {}: blocks [{}] with granules of {} do not make up dim {} of shape [{}]", parameter.name,
                    fmt::join(blocks, ", "), split.granule, split.dim, fmt::join(parameter.shape, ", ")),
        {.remedy = "give blocks that are multiples of the granule and add up to the dim"});
  }
  return blocks;
}

bool fits(std::int64_t granules, int degree) {
  return granules >= degree || degree % granules == 0;
}

bool all_fit(const std::vector<std::int64_t>& blocks, std::int64_t granule, int degree) {
  return std::ranges::all_of(blocks, [&](std::int64_t block) { return fits(block / granule, degree); });
}

// The nearest degrees that fit: up to four below and one above.
std::string degrees_that_fit(const std::vector<std::int64_t>& blocks, std::int64_t granule, int degree) {
  constexpr std::size_t kBelow = 4;
  std::vector<std::string> names;
  for (int d = degree - 1; d > 0 && names.size() < kBelow; --d) {
    if (all_fit(blocks, granule, d)) names.insert(names.begin(), std::to_string(d));
  }
  const std::int64_t largest = *std::ranges::max_element(blocks) / granule;
  for (std::int64_t d = degree + 1; d <= 2 * (largest + degree); ++d) {
    if (!all_fit(blocks, granule, static_cast<int>(d))) continue;
    names.push_back(std::to_string(d));
    break;
  }
  const std::string last = names.back();
  names.pop_back();
  return names.empty() ? last : fmt::format("{} or {}", fmt::join(names, ", "), last);
}

void check_blocks(const ParameterSpec& parameter, const std::vector<std::int64_t>& blocks, int degree) {
  const Split& split = *parameter.tp;
  for (const std::int64_t block : blocks) {
    const std::int64_t granules = block / split.granule;
    if (fits(granules, degree)) continue;
    throw ConfigError(
        fmt::format("parameter {}: tp={} does not fit dim {} of shape [{}], where a block has {} granules of {}: more "
                    "ranks than granules must be a multiple of them",
                    parameter.name, degree, split.dim, fmt::join(parameter.shape, ", "), granules, split.granule),
        {.remedy = fmt::format("set tp to {}", degrees_that_fit(blocks, split.granule, degree))});
  }
}

struct Cut {
  Range granules;
  Range holders;
};

Cut cut_block(std::int64_t granules, int degree, int coordinate) {
  if (granules >= degree) return {balanced_range(granules, degree, coordinate), {coordinate, coordinate + 1}};
  const std::int64_t copies = degree / granules;
  const std::int64_t granule = coordinate / copies;
  return {{granule, granule + 1}, {granule * copies, (granule + 1) * copies}};
}

}  // namespace

LocalParameter local_parameter(const ParameterSpec& parameter, int tp_degree, int tp_coordinate) {
  check_coordinate(parameter, tp_degree, tp_coordinate);
  LocalParameter local{.shape = parameter.shape, .dim = 0, .boxes = {}, .holders = {}};
  const TensorBox whole{parameter.shape, Shape(parameter.shape.size(), 0), parameter.shape};
  if (!parameter.tp) {
    local.boxes = {whole};
    local.holders = {{0, tp_degree}};
    return local;
  }
  const auto blocks = blocks_of(parameter);
  check_blocks(parameter, blocks, tp_degree);
  local.dim = parameter.tp->dim;
  const auto dim = static_cast<std::size_t>(local.dim);
  local.shape[dim] = 0;
  std::int64_t block_begin = 0;
  for (const std::int64_t block : blocks) {
    const std::int64_t granule = parameter.tp->granule;
    const Cut cut = cut_block(block / granule, tp_degree, tp_coordinate);
    TensorBox box = whole;
    box.offsets[dim] = block_begin + cut.granules.begin * granule;
    box.lengths[dim] = cut.granules.size() * granule;
    local.shape[dim] += box.lengths[dim];
    local.boxes.push_back(std::move(box));
    local.holders.push_back(cut.holders);
    block_begin += block;
  }
  return local;
}

std::vector<Range> copy_holders(const ParameterSpec& parameter, int tp_degree, int tp_coordinate) {
  if (!parameter.tp) return {};
  return local_parameter(parameter, tp_degree, tp_coordinate).holders;
}

}  // namespace orthant
