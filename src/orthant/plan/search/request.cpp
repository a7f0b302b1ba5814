#include "orthant/plan/search/request.h"

#include <fmt/format.h>

#include <algorithm>

#include "orthant/base/error.h"
#include "orthant/plan/search/space.h"

namespace orthant {
namespace {

constexpr std::int64_t kMostRows = std::int64_t{1} << 32;

void require_positive(std::int64_t size, const char* what, const char* option) {
  if (size >= 1) return;
  throw ConfigError(fmt::format("{} {}: {} must be at least 1", option, size, what),
                    {.remedy = fmt::format("set {} to a whole number from 1 up", option)});
}

bool is_narrow(DType dtype) {
  return dtype == DType::bfloat16 || dtype == DType::float16;
}

void check_precision(const SearchRequest& request) {
  if (is_narrow(request.params)) {
    throw ConfigError(
        fmt::format("--params {}: the optimizer's copy would lose small updates", dtype_name(request.params)),
        {.remedy = fmt::format("use --params float32 --compute {}", dtype_name(request.params))});
  }
  if (request.params != request.compute && !is_narrow(request.compute)) {
    throw ConfigError(
        fmt::format("--compute {} with --params {}", dtype_name(request.compute), dtype_name(request.params)),
        {.remedy = "use the same dtype, bfloat16 or float16"});
  }
}

}  // namespace

void check_request(const SearchRequest& request) {
  require_positive(request.cards, "the number of cards", "--gpus");
  require_positive(request.hardware.cards_per_node, "the number of cards in a node", "--gpus-per-node");
  require_positive(request.global_batch, "the global batch", "--global-batch");
  require_positive(request.sequence, "the sequence length", "--seq");
  require_positive(request.top, "the number of plans", "--top");
  if (request.cards > Mesh::kMaxRanks) {
    throw ConfigError(fmt::format("--gpus {}: a mesh has at most {} ranks", request.cards, Mesh::kMaxRanks),
                      {.remedy = fmt::format("set --gpus to at most {}", Mesh::kMaxRanks)});
  }
  if (request.global_batch > kMostRows) {
    throw ConfigError(fmt::format("--global-batch {}: no step has so many rows", request.global_batch),
                      {.remedy = fmt::format("set --global-batch to at most {}", kMostRows)});
  }
  const auto longest = request.model.longest_sequence();
  if (longest > 0 && request.sequence > longest) {
    throw ConfigError(fmt::format("--seq {}: {} has {} positions", request.sequence, request.model.name, longest),
                      {.remedy = fmt::format("set --seq to at most {}", longest)});
  }
  check_precision(request);
}

void refuse_batch(const SearchRequest& request, const SearchModel& model) {
  std::int64_t below = 0;
  std::int64_t above = 0;
  std::int64_t fewest = request.cards;  // replicas
  for (const std::int64_t tp : divisors(request.cards)) {
    if (!model.fits_tensor(static_cast<int>(tp))) continue;
    for (const std::int64_t pp : divisors(request.cards / tp)) {
      if (pp > model.most_stages()) continue;
      const auto ranks = static_cast<int>(request.cards / tp / pp);
      const std::int64_t replicas = ranks / context_degrees(ranks, request.sequence).back();
      const std::int64_t multiple = request.global_batch / replicas * replicas;
      fewest = std::min(fewest, replicas);
      below = std::max(below, multiple);
      above = above == 0 ? multiple + replicas : std::min(above, multiple + replicas);
    }
  }
  throw ConfigError(
      fmt::format("a global batch of {} on {} cards: every mesh for {} has at least {} replicas (dp x fsdp), and "
                  "none of their numbers divides the batch",
                  request.global_batch, request.cards, request.model.name, fewest),
      {.remedy = below > 0 ? fmt::format("set --global-batch {} or {}", below, above)
                           : fmt::format("set --global-batch {}", above)});
}

}  // namespace orthant
