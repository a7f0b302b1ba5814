#include "orthant/train/run_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

#include "orthant/base/error.h"
#include "orthant/base/json_reader.h"
#include "orthant/base/nearest.h"
#include "orthant/base/printable.h"
#include "orthant/files/io_patience.h"
#include "orthant/layout/rows.h"
#include "orthant/models/model_facts.h"
#include "orthant/ops/rule.h"
#include "orthant/program/cost.h"
#include "orthant/train/context_parallel_config.h"
#include "orthant/train/count_key.h"
#include "orthant/train/data_parallel_config.h"
#include "orthant/train/default_config.h"
#include "orthant/train/flat_config.h"
#include "orthant/train/foreign_names.h"
#include "orthant/train/pipeline_config.h"
#include "orthant/train/precision_config.h"
#include "orthant/train/tensor_parallel_config.h"
#include "orthant/train/tower_vocabulary.h"
#include "orthant/train/usual_values.h"

namespace orthant {
namespace {

const std::vector<std::string> kOptimizers = {"adamw", "sgd"};

int small_number(JsonReader& section, std::string_view key, int standard, int least, int most) {
  const auto value = read_count(section, key, standard, least);
  if (value > most) {
    section.fail(key, fmt::format("is {}; it must be at most {}", value, most), fmt::format("use at most {}", most));
  }
  return static_cast<int>(value);
}

// A mode, or names of operations that are made again.
void read_recompute(JsonReader& section, TrainerOptions& trainer) {
  if (!section.has("recompute") || !section.require_raw("recompute").is_array()) {
    trainer.recompute = parse_recompute(section.get<std::string>("recompute", "none"));
    return;
  }
  trainer.remade = section.get<std::vector<std::string>>("recompute", {});
  for (const auto& name : trainer.remade) {
    if (std::ranges::find(remade_names(), name) != remade_names().end()) continue;
    section.fail("recompute", fmt::format("no operation of a layer is named \"{}\"", name),
                 did_you_mean(name, remade_names()));
  }
}

// Layers keep less where operations are made again by name.
GraphSpec with_remade(GraphSpec graph, const TrainerOptions& trainer) {
  if (!trainer.remade.empty()) set_kept_bytes(graph, trainer.remade);
  return graph;
}

// A setting of an axis of degree 1 is accepted, checked, and has no effect: one configuration runs on every mesh.
void read_parallel(JsonReader section, const ModelConfig& model, const Mesh& mesh, TrainerOptions& trainer) {
  trainer.stages = read_pipeline(section, model);
  trainer.microbatches = small_number(section, "microbatches", 1, 1, 1 << 20);
  read_recompute(section, trainer);
  read_data_parallel(section, mesh, trainer);
  trainer.tensor = read_tensor_parallel(section);
  trainer.context = read_context_parallel(section);
}

OptimizerOptions read_optimizer(JsonReader& section) {
  OptimizerOptions options;
  options.kind = section.get<std::string>("kind", options.kind);
  if (options.kind != "adamw" && options.kind != "sgd") {
    section.fail("kind", fmt::format("unknown optimizer \"{}\"", options.kind),
                 did_you_mean(options.kind, kOptimizers));
  }
  const auto betas = section.get<std::vector<double>>("betas", {options.beta1, options.beta2});
  if (betas.size() != 2 || betas[0] < 0 || betas[0] >= 1 || betas[1] < 0 || betas[1] >= 1) {
    section.fail("betas", fmt::format("must be two numbers in [0, 1), found {}", fmt::join(betas, ", ")),
                 "use [0.9, 0.95]");
  }
  options.beta1 = betas[0];
  options.beta2 = betas[1];
  const auto at_least_zero = [&](const char* key, double standard) {
    const double value = section.get<double>(key, standard);
    if (value < 0) section.fail(key, fmt::format("is {}; it must not be negative", value), "use 0 or more");
    return value;
  };
  options.eps = at_least_zero("eps", options.eps);
  options.weight_decay = at_least_zero("weight_decay", options.weight_decay);
  options.momentum = at_least_zero("momentum", options.momentum);
  options.clip = at_least_zero("clip", options.clip);
  if (options.kind == "adamw" && options.eps == 0) {
    section.fail("eps", "is 0: a gradient of zero would be divided by it", "use 1e-8");
  }
  if (options.kind == "adamw" && options.momentum > 0) {
    section.fail("momentum", "belongs to sgd; adamw has betas", "leave it out, or set optimizer.kind=sgd");
  }
  return options;
}

LrSchedule read_lr(JsonReader section, double peak) {
  LrSchedule lr;
  lr.kind = parse_lr_schedule(section.get<std::string>("kind", "cosine"));
  lr.peak = peak;
  lr.warmup_steps = read_count(section, "warmup_steps", 0, 0);
  lr.final_fraction = section.get<double>("final_fraction", lr.kind == LrSchedule::Kind::constant ? 1.0 : 0.1);
  lr.decay_steps = section.get<std::int64_t>("decay_steps", lr.decay_steps);
  lr.check_values();
  return lr;
}

Mesh read_mesh(JsonReader section) {
  Degrees degrees;
  for (const auto axis : kAxes) degrees[axis] = section.get<std::int64_t>(axis_name(axis), 1);
  return Mesh(degrees, section.get<std::string>("order", ""));
}

// The name becomes part of a path.
void check_name(const JsonReader& root, const std::string& name) {
  const auto plain = [](char letter) {
    return std::isalnum(static_cast<unsigned char>(letter)) != 0 || letter == '.' || letter == '_' || letter == '-';
  };
  constexpr std::size_t kMostBytes = 240;  // with a number it still names a folder
  if (name.size() > kMostBytes) {
    root.fail("name", fmt::format("has {} letters, and a folder's name at most {}", name.size(), kMostBytes),
              "use a shorter name");
  }
  if (!name.empty() && std::ranges::all_of(name, plain) && name.front() != '-' && name.front() != '.') return;
  root.fail("name", fmt::format("\"{}\" cannot name a folder", name), "use letters, digits, '.', '_' and '-'");
}

void read_length(JsonReader& train, RunConfig& config) {
  config.epochs = read_count(train, "epochs", 0, 0);
  config.steps = read_count(train, "steps", config.epochs > 0 ? 0 : 20, config.epochs > 0 ? 0 : 1);
  if (config.epochs > 0 && config.steps > 0) {
    train.fail("epochs", "is given beside train.steps", "set one of them (epochs=0 for steps)");
  }
}

JoinHeadAndLoss read_join(JsonReader& train) {
  const char* key = "join_head_and_loss";
  try {
    return parse_join(train.get<std::string>(key, std::string(join_name(JoinHeadAndLoss::automatic))));
  } catch (const ConfigError& error) {
    train.fail(key, error.message(), error.remedy());
  }
}

RecordSteps read_record_steps(JsonReader& train) {
  const char* key = "cuda_graph";
  const auto text = train.get<std::string>(key, "auto");
  if (text == "auto") return RecordSteps::automatic;
  if (text == "on") return RecordSteps::on;
  if (text == "off") return RecordSteps::off;
  train.fail(key, fmt::format("found \"{}\"", text), "use auto, on or off");
}

constexpr double kMostRetrySeconds = 3600;

// Without an interval of steps a run saves by the clock: whoever set none would lose all of it.
double read_save_minutes(JsonReader& section, bool by_clock) {
  constexpr double kStandard = 10;
  constexpr double kMost = 1 << 20;
  const double minutes = section.get<double>("save_minutes", by_clock ? kStandard : 0);
  if (minutes >= 0 && minutes <= kMost) return minutes;
  section.fail("save_minutes", fmt::format("is {}; it must be 0 to {}", minutes, kMost), "use 10, or 0 for never");
}

CheckpointConfig read_checkpoint(JsonReader section) {
  CheckpointConfig config;
  config.save_every = read_count(section, "save_every", 0, 0);
  config.save_every_epochs = read_count(section, "save_every_epochs", 0, 0);
  if (config.save_every > 0 && config.save_every_epochs > 0) {
    section.fail("save_every_epochs", "is given beside checkpoint.save_every", "set one of them");
  }
  config.save_minutes = read_save_minutes(section, config.save_every == 0 && config.save_every_epochs == 0);
  config.keep.last = read_count(section, "keep_last", config.keep.last, 1);
  config.keep.every = read_count(section, "keep_every", 0, 0);
  config.keep.best = read_count(section, "keep_best", 0, 0);
  config.asynchronous = section.get<bool>("asynchronous", false);
  config.key_file = section.find<std::string>("key_file").value_or("");
  if (config.key_file.empty() && section.has("key_file") && !section.require_raw("key_file").is_null()) {
    section.fail("key_file", "is empty", "name a key file, or leave the key out: checkpoints then have no tags");
  }
  config.retry_seconds = section.get<double>("retry_seconds", config.retry_seconds);
  if (!(config.retry_seconds >= 0 && config.retry_seconds <= kMostRetrySeconds)) {
    section.fail("retry_seconds", fmt::format("is {}; it must be 0 to {}", config.retry_seconds, kMostRetrySeconds),
                 fmt::format("use {}", IoPatience::kDefaultSeconds));
  }
  return config;
}

// A rule that no checkpoint could ever meet. Epochs have been turned into steps.
void check_keep_rules(const RunConfig& config) {
  const auto save_every = config.checkpoint.save_every;
  const auto& keep = config.checkpoint.keep;
  if (keep.every > 0 && save_every > 0 && keep.every % save_every != 0) {
    throw ConfigError(
        fmt::format("checkpoint.keep_every is {}, but only multiples of save_every {} are saved", keep.every,
                    save_every),
        {.remedy = save_every == 0 ? "set checkpoint.save_every" : fmt::format("use a multiple of {}", save_every)});
  }
  if (keep.best > 0 && !has_eval_data(config)) {
    throw ConfigError("checkpoint.keep_best without data to evaluate on",
                      {.remedy = "set data.eval_fraction or data.eval_path, or checkpoint.keep_best=0"});
  }
  // A checkpoint is ranked by an evaluation of its own weights.
  if (keep.best > 0 && (save_every == 0 || config.eval_every == 0 || save_every % config.eval_every != 0)) {
    throw ConfigError(
        fmt::format(
            "checkpoint.keep_best ranks checkpoints by the evaluation of their step, and save_every is {} where "
            "train.eval_every is {}",
            save_every, config.eval_every),
        {.remedy = "set checkpoint.save_every, and train.eval_every to the same or a divisor of it, or keep_best=0"});
  }
}

// Dynamic rotary frequencies follow the length of a text: with padding to the longest of a microbatch they would follow
// the cut into microbatches.
void check_positions(const RunConfig& config) {
  const auto positions = facts_of(config.model).dynamic_positions;
  if (positions && config.trainer.unpadded) {
    throw ConfigError(
        "model.rope_scaling dynamic with data.padding none: its frequencies depend on the length of a row",
        {.remedy = "set data.padding=full"});
  }
  if (!positions || !config.trainer.pad_to_longest || config.data.sequence_length <= *positions) return;
  throw ConfigError(
      fmt::format("model.rope_scaling dynamic with data.sequence_length {} beyond max_position_embeddings {}: its "
                  "frequencies depend on the length of each microbatch",
                  config.data.sequence_length, *positions),
      {.remedy = "set data.padding=full, or data.sequence_length to at most that"});
}

// Another kind of model or data, or a folder that describes a model, makes the section's other keys meaningless: an
// override that sets one of these replaces the section. What all kinds of data share stays.
void make_room(JsonDocument& document, const std::string& assignment) {
  const auto equals = std::min(assignment.find('='), assignment.size());
  const auto key = assignment.substr(0, equals);
  const bool kind = key == "model.kind" || key == "data.kind";
  const bool folder = key == "model.path" || key == "model.primary.path" || key == "model.secondary.path";
  if (!kind && !folder) return;
  std::string place_of_key = "/" + key;
  std::ranges::replace(place_of_key, '.', '/');
  const nlohmann::json::json_pointer pointer(place_of_key);
  const auto before = document.value().contains(pointer) ? document.value().at(pointer) : nlohmann::json();
  if (before == assignment.substr(std::min(equals + 1, assignment.size()))) return;
  const auto section = key.substr(0, key.rfind('.'));
  const auto place = pointer.parent_pointer();
  if (!document.value().contains(place) || !document.value().at(place).is_object()) return;
  std::vector<std::string> keys;
  for (const auto& [name, value] : document.value().at(place).items()) keys.push_back(name);
  for (const auto& name : keys) {
    const bool shared = section == "data" && (name == "sequence_length" || name == "eval_fraction");
    if (!shared) document.remove(section + "." + name);
  }
}

void check_batch(const RunConfig& config) {
  const auto replicas = num_replicas(config.mesh);
  const auto parts = static_cast<std::int64_t>(replicas) * config.trainer.microbatches;
  if (config.global_batch_size % parts == 0) return;
  const auto below = config.global_batch_size / parts * parts;
  const auto above = below + parts;
  throw ConfigError(
      fmt::format("train.global_batch_size is {}, not a multiple of dp x fsdp x parallel.microbatches = {} x {}",
                  config.global_batch_size, replicas, config.trainer.microbatches),
      {.remedy = below > 0 ? fmt::format("set train.global_batch_size={} or {} (--batch_size {} or {})", below, above,
                                         below / replicas, above / replicas)
                           : fmt::format("set train.global_batch_size={} (--batch_size {})", above, above / replicas)});
}

}  // namespace

bool has_eval_data(const RunConfig& config) {
  return config.data.eval_fraction > 0 || !config.data.text.eval_path.empty() || !config.data.table.eval_path.empty();
}

JsonDocument load_run_document(const std::string& path, const std::vector<std::string>& overrides) {
  JsonOptions options;
  options.source = "the embedded default";
  options.hint = hint_of_key;
  auto document = path.empty() ? JsonDocument::parse(kDefaultConfig, options) : JsonDocument::load(path, options);
  if (is_flat_config(document)) document = sections_of_flat_config(document);
  if (path.empty()) leave_demo(document, overrides);
  for (const auto& assignment : overrides) make_room(document, assignment);
  for (const auto& assignment : overrides) document.apply_override(assignment);
  follow_tokenizers(document);
  return document;
}

Mesh read_run_mesh(const JsonDocument& document) {
  JsonReader root(document);
  return read_mesh(root.object("mesh"));
}

RunConfig read_run_config(const JsonDocument& document) {
  JsonReader root(document);
  RunConfig config;
  config.name = root.get<std::string>("name", config.name);
  check_name(root, config.name);
  config.trainer.seed = root.get<std::uint64_t>("seed", 0);
  config.model = read_model(root.require_object("model"));
  config.data = read_data(root.object("data"));
  config.trainer.pad_to_longest = config.data.from_files() && config.data.pad_to_longest;
  config.trainer.unpadded = config.data.from_files() && config.data.unpadded;
  config.mesh = read_mesh(root.object("mesh"));
  if (shards_over_dp(root.object("parallel"), config.mesh)) config.mesh = with_shards_of_dp(config.mesh);
  read_parallel(root.object("parallel"), config.model, config.mesh, config.trainer);
  read_precision(root.object("precision"), config.trainer);
  auto optimizer = root.object("optimizer");
  config.trainer.optimizer = read_optimizer(optimizer);
  const double peak = optimizer.get<double>("lr", 1e-3);
  auto train = root.object("train");
  config.global_batch_size = read_count(train, "global_batch_size", config.global_batch_size, 1);
  read_length(train, config);
  config.eval_every = read_count(train, "eval_every", 0, 0);
  config.early_stop = read_count(train, "early_stop", 0, 0);
  if (config.early_stop > 0 && config.eval_every == 0) {
    train.fail("early_stop", "is given without train.eval_every: nothing would be evaluated before the end",
               "set train.eval_every, or early_stop=0");
  }
  if (config.early_stop > 0 && !has_eval_data(config)) {
    throw ConfigError("train.early_stop without data to evaluate on",
                      {.remedy = "set data.eval_fraction or data.eval_path, or train.early_stop=0"});
  }
  config.bad_steps = read_switch(train, "bad_steps", "stop", "skip", false) ? BadSteps::skip : BadSteps::stop;
  for (const auto& one : train.get<std::vector<std::string>>("poison", {})) {
    config.trainer.poison.push_back(parse_poison(one));
  }
  config.trainer.verify_replicas = read_count(train, "verify_replicas", 0, 0);
  config.trainer.allow_unused_parameters = train.get<bool>("allow_unused_parameters", false);
  config.trainer.deterministic = train.find<bool>("deterministic");
  config.trainer.product_plans = read_switch(train, "product_plans", "heuristic", "measured", false)
                                     ? ProductChoice::measured
                                     : ProductChoice::heuristic;
  config.trainer.record_steps = read_record_steps(train);
  config.trainer.join_head_and_loss = read_join(train);
  config.trainer.loss_chunk_rows = read_count(train, "loss_chunk_rows", 0, 0);
  config.trainer.lr = read_lr(root.object("lr_schedule"), peak);
  config.checkpoint = read_checkpoint(root.object("checkpoint"));
  if (config.checkpoint.save_every_epochs == 0) check_keep_rules(config);
  root.finish();
  check_batch(config);
  check_positions(config);
  if (config.data.text.pack) check_packs(config.model);
  if (!config.data.from_files()) set_samples(config, config.data.samples);
  return config;
}

std::string resolved_config(const JsonDocument& document) {
  nlohmann::ordered_json root;
  for (const auto& entry : document.entries()) {
    auto* place = &root;
    std::size_t begin = 0;
    for (auto dot = entry.key.find('.'); dot != std::string::npos; dot = entry.key.find('.', begin)) {
      place = &(*place)[entry.key.substr(begin, dot - begin)];
      begin = dot + 1;
    }
    (*place)[entry.key.substr(begin)] = nlohmann::ordered_json::parse(entry.value);
  }
  return root.dump(1) + "\n";
}

std::string printed_config(const JsonDocument& document) {
  std::size_t width = 0;
  for (const auto& entry : document.entries()) width = std::max(width, entry.key.size() + entry.value.size());
  width = std::min<std::size_t>(width, 80);
  std::string text;
  for (const auto& entry : document.entries()) {
    const auto line = printable(fmt::format("{} = {}", entry.key, entry.value));
    text += fmt::format("{:{}}  ({})\n", line, width + 3, printable(entry.origin));
  }
  return text;
}

std::int64_t steps_per_epoch(const RunConfig& config) {
  return (config.data.samples + config.global_batch_size - 1) / config.global_batch_size;
}

void set_samples(RunConfig& config, std::int64_t samples) {
  config.data.samples = samples;
  const auto per_epoch = steps_per_epoch(config);
  if (config.epochs > 0) config.steps = config.epochs * per_epoch;
  if (config.checkpoint.save_every_epochs > 0) {
    config.checkpoint.save_every = config.checkpoint.save_every_epochs * per_epoch;
    check_keep_rules(config);
  }
  config.trainer.lr.total_steps = config.steps;
  config.trainer.lr.check();
}

WorkSize work_size(const RunConfig& config) {
  const auto replicas = num_replicas(config.mesh);
  return {.rows = config.global_batch_size / replicas / config.trainer.microbatches,
          .sequence = config.data.sequence_length,
          .secondary_sequence = config.data.secondary_length,
          .compute = config.trainer.precision.compute,
          .packed = config.data.text.pack,
          .tensor = {.degree = config.mesh.degree(Axis::tp),
                     .sequence_parallel = config.trainer.tensor.sequence_parallel,
                     .regather = config.trainer.tensor.regather,
                     .loss_parallel = config.trainer.tensor.loss_parallel}};
}

GraphSpec declared_spec(const RunConfig& config) {
  auto work = work_size(config);
  work.tensor = {};
  return with_remade(build_spec(config.model, work), config.trainer);
}

GraphSpec run_spec(const RunConfig& config) {
  return with_remade(trainer_graph(build_spec(config.model, work_size(config)), config.mesh, config.trainer),
                     config.trainer);
}

}  // namespace orthant
