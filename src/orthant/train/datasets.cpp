#include "orthant/train/datasets.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cmath>

#include "orthant/base/error.h"
#include "orthant/base/random.h"
#include "orthant/comm/control_group.h"
#include "orthant/data/field_checks.h"
#include "orthant/data/fixed_dataset.h"
#include "orthant/data/masked_tokens.h"
#include "orthant/data/tokens.h"
#include "orthant/data/trimodal_demo.h"
#include "orthant/layout/rows.h"
#include "orthant/models/family.h"
#include "orthant/train/file_data.h"
#include "orthant/train/table_of_host.h"

namespace orthant {
namespace {

void refuse_kinds(const RunConfig& config, const std::string& fitting) {
  throw ConfigError(fmt::format("model.kind {} cannot read data.kind {}", model_kind(config.model), config.data.kind),
                    {.remedy = fmt::format("use data.kind {}", fitting)});
}

std::int64_t eval_samples(const DataConfig& data) {
  return std::llround(data.eval_fraction * static_cast<double>(data.samples));
}

// Values without any meaning that fit every field of the model: for benchmarks and comparisons of speed.
at::Tensor random_field(const ValueSpec& field, std::int64_t samples, std::int64_t limit, std::uint64_t seed) {
  const RandomStream stream(seed, "data.random." + field.name);
  auto shape = field.shape;
  shape[0] = samples;
  if (field.dtype == DType::boolean) return at::ones(shape, at::kBool);
  if (field.dtype == DType::int64) {
    auto ids = at::empty(shape, at::kLong);
    auto* data = ids.mutable_data_ptr<std::int64_t>();
    for (std::int64_t i = 0; i < ids.numel(); ++i) {
      data[i] = static_cast<std::int64_t>(stream.uniform(static_cast<std::uint64_t>(i)) * static_cast<double>(limit));
    }
    return ids;
  }
  auto numbers = at::empty(shape, at::kFloat);
  stream.fill_normal({numbers.mutable_data_ptr<float>(), static_cast<std::size_t>(numbers.numel())}, 0, 0.0, 1.0);
  return numbers;
}

RunData random_data(const RunConfig& config) {
  const auto facts = facts_of(config.model);
  const auto& classifier = facts.classifier;
  FieldLimits limits;
  limits.num_labels = classifier ? classifier->num_labels : facts.vocab_size;
  const auto make = [&](std::uint64_t seed, std::int64_t samples) {
    Fields fields;
    for (const auto& field : run_spec(config).batch_fields) {
      const bool label = field.name == kLabelsField;
      const auto limit = label ? limits.num_labels : facts.field_limit(field.name);
      fields[field.name] = random_field(field, samples, limit, seed);
      if (field.dtype == DType::int64 && !label) limits.vocab_sizes[field.name] = limit;
    }
    return std::make_shared<FixedDataset>(
        std::move(fields), limits, classifier ? classifier->class_weights : std::vector<double>{}, "random data");
  };
  RunData data;
  data.train = make(config.trainer.seed, config.data.samples);
  data.num_labels = classifier ? limits.num_labels : 0;
  if (const auto size = eval_samples(config.data); size > 0) data.eval = make(config.trainer.seed + 1, size);
  return data;
}

RunData tokens_data(const RunConfig& config) {
  const auto make = [&](DataSplit split, std::int64_t size) -> std::shared_ptr<const Dataset> {
    const bool masks = config.model.family().task == Task::masked_token;
    const auto words = vocab_size(config.model) - (masks ? 1 : 0);  // the last id is the mask
    auto tokens = std::make_shared<TokensDataset>(TokensOptions{.vocab_size = words,
                                                                .sequence_length = config.data.sequence_length,
                                                                .size = size,
                                                                .seed = config.trainer.seed,
                                                                .split = split});
    if (!masks) return tokens;
    return masked(config, tokens, /*mask_id=*/words, {});
  };
  RunData data;
  data.train = make(DataSplit::train, config.data.samples);
  if (const auto size = eval_samples(config.data); size > 0) data.eval = make(DataSplit::eval, size);
  return data;
}

void check_vocabulary(const Tower& tower, std::int64_t data) {
  if (tower.vocab_size >= data) return;
  throw ConfigError(fmt::format("model.{}.vocab_size is {}, but the data has token ids up to {}", tower.name,
                                tower.vocab_size, data - 1),
                    {.remedy = fmt::format("set model.{}.vocab_size={}", tower.name, data)});
}

RunData demo_data(const RunConfig& config, const Classifier& model) {
  const auto make = [&](DataSplit split, std::int64_t size) {
    TrimodalDemoOptions options;
    options.size = size;
    options.seed = config.trainer.seed;
    options.split = split;
    options.primary_length = config.data.sequence_length;
    options.secondary_length =
        config.data.secondary_length > 0 ? config.data.secondary_length : config.data.sequence_length;
    options.class_weights = model.class_weights;
    try {
      return std::make_shared<TrimodalDemo>(options);
    } catch (const ConfigError& error) {
      throw ConfigError("data.sequence_length or data.secondary_length: " + error.message(),
                        {.remedy = "primary_length is data.sequence_length; " + error.remedy()});
    }
  };
  const auto train = make(DataSplit::train, config.data.samples);
  for (const auto& tower : model.towers) check_vocabulary(tower, train->vocab_size());
  constexpr auto kColumns = static_cast<std::int64_t>(TrimodalSample::kNumbers);
  if (model.columns && *model.columns != kColumns) {
    throw ConfigError(
        fmt::format("model.tabular.input_dim is {}, but the data has {} numeric columns", *model.columns, kColumns),
        {.remedy = fmt::format("set model.tabular.input_dim={}", kColumns)});
  }
  if (model.num_labels < TrimodalDemo::kNumLabels) {
    throw ConfigError(
        fmt::format("model.num_labels is {}, but the data has {} labels", model.num_labels, TrimodalDemo::kNumLabels),
        {.remedy = fmt::format("set model.num_labels={}", TrimodalDemo::kNumLabels)});
  }
  RunData data;
  data.train = train;
  data.num_labels = model.num_labels;
  data.best_accuracy = train->best_accuracy();
  if (const auto size = eval_samples(config.data); size > 0) data.eval = make(DataSplit::eval, size);
  return data;
}

}  // namespace

std::shared_ptr<const Dataset> masked(const RunConfig& config, std::shared_ptr<const Dataset> tokens,
                                      std::int64_t mask_id, const std::vector<std::int64_t>& special_ids) {
  MaskingOptions options;
  options.vocab_size = vocab_size(config.model);
  options.mask_id = mask_id;
  options.special_ids = special_ids;
  options.seed = config.trainer.seed;
  return std::make_shared<MaskedTokens>(std::move(tokens), options);
}

Sampler make_sampler(const RunConfig& config, const RunData& data) {
  return {data.train->size(), config.global_batch_size, config.trainer.seed};
}

std::unique_ptr<Loader> make_loader(const RunConfig& config, const RunData& data, std::int64_t steps_done) {
  LoaderOptions options;
  options.start_step = steps_done;
  options.microbatches = config.trainer.microbatches;
  options.microbatch_rows = work_size(config).rows;
  options.replicas = num_replicas(config.mesh);
  if (const auto& communicator = config.trainer.communicator) {
    options.replica = replica_index(config.mesh, config.mesh.coordinate(communicator->rank()));
  }
  return std::make_unique<Loader>(data.train, make_sampler(config, data), options);
}

void check_same_data(const std::string& found, const ControlGroup& ranks) {
  const auto all = ranks.gather_texts(found);
  for (std::size_t r = 1; r < all.size(); ++r) {
    if (all[r] == all[0]) continue;
    throw DataError(fmt::format("found other data than rank 0: {} instead of {}", all[r], all[0]),
                    {.remedy = "let every rank read the same files", .rank = static_cast<int>(r)});
  }
}

void check_generated_data(RunConfig config) {
  if (config.data.from_files()) return;
  Sampler(config.data.samples, config.global_batch_size, config.trainer.seed);
  if (config.data.kind != "random") make_run_data(config);
}

RunData make_run_data(RunConfig& config) {
  const auto& kind = config.data.kind;
  if (kind == "random") return random_data(config);
  RunData data;
  if (const auto classifier = facts_of(config.model).classifier) {
    if (kind != kTableDemoKind && kind != kTableKind) {
      refuse_kinds(config, fmt::format("{} or {}", kTableKind, kTableDemoKind));
    }
    data = kind == kTableKind ? table_data(config, *classifier, read_table(config, *classifier))
                              : demo_data(config, *classifier);
  } else {
    if (kind != "tokens" && kind != "text") refuse_kinds(config, "tokens or text");
    data = kind == "text" ? text_data(config) : tokens_data(config);
  }
  if (config.data.from_files()) set_samples(config, data.train->size());
  return data;
}

RunData make_run_data(RunConfig& config, const ControlGroup& ranks) {
  RunData data;
  const auto model = facts_of(config.model).classifier;
  if (!model || config.data.kind != kTableKind || ranks.alone()) {
    ranks.together([&] { data = make_run_data(config); });
    return data;
  }
  const auto [table, reader] = read_table_once(config, *model, ranks);
  ranks.together([&] {
    data = table_data(config, *model, table);
    set_samples(config, data.train->size());
  });
  if (reader != ranks.rank())
    data.notes.push_back(fmt::format("rows are shared with rank {}, which read them", reader));
  return data;
}

}  // namespace orthant
