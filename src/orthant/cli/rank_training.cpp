#include "orthant/cli/rank_training.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <set>
#include <span>

#include "orthant/base/error.h"
#include "orthant/base/json_text.h"
#include "orthant/files/xxhash.h"
#include "orthant/launch/activity_board.h"
#include "orthant/train/device_setup.h"

namespace orthant::cli {
namespace {

std::map<std::string, std::string> values_of(const std::string& resolved) {
  std::map<std::string, std::string> values;
  const auto flat = nlohmann::json::parse(resolved).flatten();
  for (const auto& [key, value] : flat.items()) {
    auto dotted = key.substr(key.starts_with('/') ? 1 : 0);
    for (auto& letter : dotted) letter = letter == '/' ? '.' : letter;
    values[dotted] = json_text(value);
  }
  return values;
}

constexpr double kGoodbyeSeconds = 5;

// The stages and their order, in which files have a say whose names alone are in the configuration.
std::string pipeline_digest(const Pipeline& pipeline) {
  auto text = to_text(pipeline.table);
  for (std::size_t s = 0; s < pipeline.map.units.size(); ++s) {
    text += fmt::format("{}: {}\n", pipeline.map.pp_coordinates[s], fmt::join(pipeline.map.units[s], " "));
  }
  return fmt::format("{:016x}", xxh64(std::as_bytes(std::span(text))));
}

// With what else must be alike: options of communication, what files say.
std::string with_options(const std::string& resolved, const comm::CommOptions& options, const Pipeline& pipeline) {
  auto text = nlohmann::json::parse(resolved);
  text["stages and schedule, as their files say (hash)"] = pipeline_digest(pipeline);
  text["--backend"] = comm::name_of(options.backend);
  text["--check-collectives"] = options.check;
  return json_text(text);
}

// Whoever serves the store stays until the others have read it.
void await_readers(const comm::Store& store, const RankContext& rank, int world_size) {
  try {
    comm::wait_for_all(store.below("read"), rank.job.rank, world_size, kGoodbyeSeconds, "");
  } catch (const Error&) {
    // It is gone: this rank has read all it needs.
  }
}

// Every rank sees all texts, so that all of them refuse alike.
void check_same_config(const comm::Store& store, const RankContext& rank, int world_size, const std::string& resolved) {
  const auto texts = comm::wait_for_all(store, rank.job.rank, world_size, rank.comm.timeout_seconds, resolved);
  for (std::size_t r = 1; r < texts.size(); ++r) {
    const auto difference = first_difference(texts.front(), texts[r], static_cast<int>(r));
    if (difference.empty()) continue;
    await_readers(store, rank, world_size);
    throw ConfigError(fmt::format("ranks were given different configurations: {}", difference),
                      {.remedy = "start every rank with the same file and the same options", .rank = rank.job.rank});
  }
}

}  // namespace

std::string first_difference(const std::string& first, const std::string& other, int other_rank) {
  if (first == other) return {};
  const auto ours = values_of(first);
  const auto theirs = values_of(other);
  std::set<std::string> keys;
  for (const auto& [key, value] : ours) keys.insert(key);
  for (const auto& [key, value] : theirs) keys.insert(key);
  const auto shown = [](const std::map<std::string, std::string>& values, const std::string& key) {
    const auto found = values.find(key);
    return found == values.end() ? std::string("not set") : found->second;
  };
  for (const auto& key : keys) {
    const auto a = shown(ours, key);
    const auto b = shown(theirs, key);
    if (a != b) return fmt::format("{} is {} on rank 0 and {} on rank {}", key, a, b, other_rank);
  }
  return {};
}

void check_backend(const RankOptions& ranks, const Context& context, const RunConfig& config) {
  check_rank_options(ranks);
  launch::Job local;  // ranks started here
  local.world_size = local.local_world_size = config.mesh.world_size();
  const auto job = job_of_launcher(ranks, context.environment).value_or(local);
  const auto comm = comm_options(ranks, context, job, config.mesh);
  auto options = config.trainer;
  options.device = comm.device;
  check_device(options);
}

void refuse_fake_backend(const RankOptions& ranks, const Mesh& mesh) {
  if (comm::parse_backend(ranks.backend) != comm::BackendKind::fake || mesh.world_size() == 1) return;
  throw ConfigError("--backend fake moves nothing between ranks: what it trains is no model",
                    {.remedy = "use another backend, or orthant bench step"});
}

std::optional<int> said_elsewhere(const RankContext& rank, const Error& error) {
  if (dynamic_cast<const CommError*>(&error) != nullptr) return std::nullopt;
  if (error.rank() < 0 || error.rank() == rank.job.rank) return std::nullopt;
  return rank.job.is_launched_by_us() ? launch::kPeerLostExitCode
                                      : error.exit_code();  // ours takes it for a consequence
}

RankTraining::RankTraining(const RankContext& rank) : rank_(rank), store_(comm::join_store(rank.job, rank.comm)) {}

std::vector<std::string> RankTraining::gather_texts(const Mesh& mesh, const std::string& name,
                                                    const std::string& text) const {
  if (mesh.world_size() == 1 || !store_) return {text};
  return comm::wait_for_all(store_->below(name), rank_.job.rank, mesh.world_size(), rank_.comm.timeout_seconds, text);
}

void RankTraining::await_readers_of(const Mesh& mesh, const std::string& name) const {
  if (mesh.world_size() > 1 && store_) await_readers(store_->below(name), rank_, mesh.world_size());
}

void RankTraining::prepare(RunConfig& config, const std::string& resolved, const std::string& name,
                           const comm::WrapTransport& wrap) {
  launch::Activity::of_process().enter(JobPhase::start);  // of this training, which may be the second
  config.trainer.device = rank_.comm.device;
  if (rank_.is_first()) config.trainer.say = [log = rank_.log](const std::string& text) { log.info(text); };
  const auto world_size = config.mesh.world_size();
  if (world_size == 1) return;
  std::optional<comm::Store> store;
  if (store_) {
    store = store_->below(name);
    const auto pipeline = trainer_pipeline(run_spec(config), config.mesh, config.trainer);
    check_same_config(store->below("config"), rank_, world_size, with_options(resolved, rank_.comm, pipeline));
  }
  const auto groups = trainer_groups(run_spec(config), config.mesh, config.trainer);
  auto options = rank_.comm;
  options.wrap = wrap;
  config.trainer.communicator =
      std::make_shared<comm::Communicator>(config.mesh, rank_.job.rank, store, options, groups.axes, groups.subsets);
}

}  // namespace orthant::cli
