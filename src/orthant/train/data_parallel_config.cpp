#include "orthant/train/data_parallel_config.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "orthant/base/error.h"
#include "orthant/train/count_key.h"

namespace orthant {
namespace {

constexpr double kMostBucketMb = 1 << 20;
constexpr int kMostGathers = 1 << 20;

// 3 where nobody says so. Without an fsdp axis that is noted as null: a 3 in the resolved configuration would shard
// over dp when it is read again.
int read_zero(JsonReader& section, bool has_shards) {
  constexpr int kStandard = 3;
  const bool given = section.has("zero") && !section.is_null("zero");
  if (!given && (section.has("zero") || !has_shards)) {
    section.find<std::int64_t>("zero");
    return kStandard;
  }
  if (given && section.require_raw("zero").is_string()) return parse_zero(section.get<std::string>("zero", ""));
  const auto zero = read_count(section, "zero", kStandard, 0);
  if (zero > 3) section.fail("zero", fmt::format("is {}; it must be at most 3", zero), "use 0, 1, 2 or 3");
  return static_cast<int>(zero);
}

UnitGrouping read_units(JsonReader& section) {
  UnitGrouping grouping;
  const char* remedy =
      R"(use "layer", {"min_params": N} with a whole N from 1 on, or lists of unit names such as [["layers.0","layers.1"]])";
  if (!section.has("units")) {
    section.get<std::string>("units", "layer");
    return grouping;
  }
  const auto& units = section.require_raw("units");
  if (units == "layer") return grouping;
  if (units.is_object() && units.size() == 1 && units.contains("min_params") &&
      units["min_params"].is_number_integer() && units["min_params"].get<std::int64_t>() > 0) {
    grouping.kind = UnitGrouping::Kind::min_params;
    grouping.min_params = units["min_params"].get<std::int64_t>();
    return grouping;
  }
  if (!units.is_array()) section.fail("units", fmt::format("found {}", units.dump()), remedy);
  try {
    grouping.names = units.get<std::vector<std::vector<std::string>>>();
  } catch (const nlohmann::json::exception&) {
    section.fail("units", "is not a list of lists of unit names", remedy);
  }
  grouping.kind = UnitGrouping::Kind::names;
  return grouping;
}

}  // namespace

bool shards_over_dp(JsonReader section, const Mesh& mesh) {
  return read_zero(section, mesh.degree(Axis::fsdp) > 1) > 0 && section.has("zero") && !section.is_null("zero");
}

void read_data_parallel(JsonReader& section, const Mesh& mesh, TrainerOptions& trainer) {
  auto& policy = trainer.policy;
  policy.zero = read_zero(section, mesh.degree(Axis::fsdp) > 1);
  const auto accumulate = section.get<std::string>("accumulate", "full");
  if (accumulate != "full" && accumulate != "sharded") {
    section.fail("accumulate", fmt::format("unknown value \"{}\"", accumulate), "use full or sharded");
  }
  policy.accumulate_sharded = accumulate == "sharded";
  const auto limit = read_count(section, "limit_all_gathers", policy.limit_all_gathers, 1);
  if (limit > kMostGathers)
    section.fail("limit_all_gathers", fmt::format("is {}; it must be at most {}", limit, kMostGathers), "use 2");
  policy.limit_all_gathers = static_cast<int>(limit);
  policy.keep_gathered = section.get<bool>("keep_gathered", policy.keep_gathered);
  const double bucket = section.get<double>("bucket_mb", 25);
  if (!(bucket >= 0) || bucket > kMostBucketMb) {
    section.fail("bucket_mb", fmt::format("is {}; it must be 0 to {}", bucket, kMostBucketMb), "use 25");
  }
  policy.bucket_bytes = std::llround(bucket * (1 << 20));
  policy.offload = parse_offload(section.get<std::string>("offload", "none"));
  policy.shard_over_context = section.get<bool>("shard_over_context", policy.shard_over_context);
  parameter_mesh(mesh, policy);
  trainer.hook = named_hook(section.get<std::string>("comm_hook", "none"));
  trainer.units = read_units(section);
  effective_policy(policy, mesh);
}

}  // namespace orthant
