#include "orthant/plan/estimate/inference_size.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "orthant/base/error.h"
#include "orthant/base/human.h"
#include "orthant/models/example_names.h"
#include "orthant/plan/estimate/plan_settings.h"
#include "orthant/plan/estimate/stage_cut.h"
#include "orthant/plan/estimate/unit_work.h"
#include "orthant/plan/stacks/stack.h"

namespace orthant {
namespace {

constexpr std::int64_t kUnboundedContext = 4096;       // where neither the model nor the user says one
constexpr std::int64_t kLongestRow = 1 << 17;          // of the table, where the model has no longest
constexpr std::int64_t kShortestRow = 1024;            // likewise
constexpr std::int64_t kMost = std::int64_t{1} << 40;  // sequences, or tokens of one

// One copy of the model: everything but batch and context.
class Server {
 public:
  Server(const InferenceRequest& request, const Mesh& mesh);

  std::vector<InferenceStage> stages(std::int64_t batch, std::int64_t context) const;
  bool fits(std::int64_t batch, std::int64_t context) const;
  bool countable(std::int64_t batch, std::int64_t context) const;  // bytes are numbers that an integer holds
  std::int64_t largest_batch(std::int64_t context) const;
  std::int64_t largest_context(std::int64_t batch) const;

  // Of `layers` layers.
  std::int64_t cache_bytes(std::int64_t layers) const;
  std::int64_t most_layers() const { return std::ranges::max(layers_); }

 private:
  std::int64_t working_bytes(std::int64_t batch, std::int64_t context) const;
  std::vector<std::int64_t> stage_parameters() const;

  const InferenceRequest& request_;
  const TransformerShape& shape_;
  const int tp_;
  const std::int64_t kv_heads_;             // of a tp rank
  const std::vector<std::int64_t> layers_;  // per stage
  const std::vector<std::int64_t> parameters_;
};

// The largest size from 0 to `most` that is good; smaller ones are good where a larger one is.
template <typename Good>
std::int64_t largest(std::int64_t most, const Good& good) {
  std::int64_t low = 0;
  std::int64_t high = most;
  while (low < high) {
    const std::int64_t middle = high - (high - low) / 2;
    if (good(middle)) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

std::int64_t longest_of(const PlanModel& model, std::int64_t otherwise) {
  return model.longest_sequence() > 0 ? model.longest_sequence() : otherwise;
}

const TransformerShape& shape_of(const PlanModel& model) {
  if (!model.shape || !model.shape->causal) {
    throw ConfigError(
        fmt::format("--inference: {} keeps no cache of keys and values: it is no causal decoder", model.name),
        {.remedy = fmt::format("name a language model, as in --model {}", kExampleLanguageModel)});
  }
  return *model.shape;
}

void check_sizes(const InferenceRequest& request) {
  for (const auto& [name, size] : {std::pair("--batch", request.batch), std::pair("--context", request.context),
                                   std::pair("prefill", request.prefill)}) {
    if (size >= 1 && size <= kMost) continue;
    throw ConfigError(fmt::format("{} is {}", name, size), {.remedy = fmt::format("set it from 1 to {}", kMost)});
  }
  const std::int64_t longest = longest_of(request.model, kMost);
  if (request.context > longest) {
    throw ConfigError(
        fmt::format("--context is {}, but {} reads {} tokens at most", request.context, request.model.name, longest),
        {.remedy = fmt::format("set --context {} or less, or name a model with more positions", longest)});
  }
}

void check_mesh(const Mesh& mesh, const TransformerShape& shape) {
  for (const Axis axis : {Axis::fsdp, Axis::cp, Axis::ep}) {
    if (mesh.degree(axis) == 1) continue;
    throw ConfigError(
        fmt::format("--inference: mesh {} has {}={}", mesh.to_string(), axis_name(axis), mesh.degree(axis)),
        {.remedy = "a served model is cut over tp and pp; dp copies serve on their own"});
  }
  if (mesh.degree(Axis::pp) > shape.layers) {
    throw ConfigError(fmt::format("pp={} is more than {} layers", mesh.degree(Axis::pp), shape.layers),
                      {.remedy = fmt::format("set pp={} or less", shape.layers)});
  }
}

Server::Server(const InferenceRequest& request, const Mesh& mesh)
    : request_(request),
      shape_(*request.model.shape),
      tp_(mesh.degree(Axis::tp)),
      kv_heads_(std::max<std::int64_t>(1, shape_.kv_heads / tp_)),
      layers_(layers_per_stage("even", shape_.layers, mesh.degree(Axis::pp))),
      parameters_(stage_parameters()) {}

// As closed forms count them: embedding, layers, head. Experts are spread over the tp ranks. Borrowed ones are a copy
// where their owner is on another stage.
std::vector<std::int64_t> Server::stage_parameters() const {
  TransformerShape shape = shape_;
  shape.frozen = false;
  PlanSettings settings;
  settings.mesh = Mesh({{Axis::tp, tp_}, {Axis::ep, shape.experts > 0 ? std::gcd(shape.experts, tp_) : 1}});
  const ModelWork work = formula_work(shape, Stack{}, settings);
  std::vector<std::int64_t> parameters;
  std::size_t next = 1;
  for (const std::int64_t layers : layers_) {
    double sum = 0;
    for (std::int64_t layer = 0; layer < layers; ++layer) sum += work.at(next++).parameters;
    parameters.push_back(std::llround(sum));
  }
  const double borrowed = layers_.size() == 1 ? work.back().borrowed : 0;
  parameters.front() += std::llround(work.front().parameters);
  parameters.back() += std::llround(work.back().parameters - borrowed);
  return parameters;
}

std::int64_t Server::cache_bytes(std::int64_t layers) const {
  return 2 * layers * kv_heads_ * shape_.head_size * bytes_of(request_.cache);
}

std::int64_t Server::working_bytes(std::int64_t batch, std::int64_t context) const {
  const std::int64_t tokens = std::min(request_.prefill, batch * context);
  const std::int64_t attention = (2 * (shape_.heads / tp_) + 2 * kv_heads_) * shape_.head_size;
  const std::int64_t inner =
      shape_.experts > 0 ? shape_.experts_per_token * shape_.expert_inner + shape_.shared_inner : shape_.inner;
  const std::int64_t channels = (shape_.gated ? 3 : 2) * ((inner + tp_ - 1) / tp_);
  return tokens * (2 * shape_.hidden + std::max(attention, channels)) * bytes_of(request_.weights);
}

std::vector<InferenceStage> Server::stages(std::int64_t batch, std::int64_t context) const {
  std::vector<InferenceStage> stages;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    InferenceStage stage{.layers = layers_[i],
                         .weights = parameters_[i] * bytes_of(request_.weights),
                         .cache = cache_bytes(layers_[i]) * batch * context,
                         .working = working_bytes(batch, context)};
    if (i + 1 == layers_.size()) stage.working += batch * shape_.vocab * bytes_of(DType::float32);
    const double share = request_.hardware.reserve_share * static_cast<double>(stage.total());
    stage.reserve = request_.hardware.reserve_bytes + std::llround(share);
    stages.push_back(stage);
  }
  return stages;
}

bool Server::countable(std::int64_t batch, std::int64_t context) const {
  return static_cast<double>(batch) * static_cast<double>(context) * static_cast<double>(cache_bytes(most_layers())) <
         1e17;
}

bool Server::fits(std::int64_t batch, std::int64_t context) const {
  if (!countable(batch, context)) return false;
  return std::ranges::all_of(stages(batch, context), [&](const InferenceStage& stage) {
    return stage.total() <= request_.hardware.memory_bytes;
  });
}

std::int64_t Server::largest_batch(std::int64_t context) const {
  return largest(kMost, [&](std::int64_t batch) { return fits(batch, context); });
}

std::int64_t Server::largest_context(std::int64_t batch) const {
  return largest(longest_of(request_.model, kMost), [&](std::int64_t context) { return fits(batch, context); });
}

// Powers of two up to the model's longest, that one, and the context that was asked for.
std::vector<ContextRow> context_rows(const Server& server, const InferenceRequest& request) {
  const std::int64_t longest = longest_of(request.model, std::max(kLongestRow, request.context));
  std::vector<std::int64_t> contexts = {request.context, longest};
  for (std::int64_t context = kShortestRow; context < longest; context *= 2) contexts.push_back(context);
  std::ranges::sort(contexts);
  contexts.erase(std::ranges::unique(contexts).begin(), contexts.end());
  std::vector<ContextRow> rows;
  for (const std::int64_t context : contexts) {
    rows.push_back({context, server.cache_bytes(server.most_layers()) * context, server.largest_batch(context)});
  }
  return rows;
}

bool divides_heads(int tp, const TransformerShape& shape) {
  return shape.heads % tp == 0 && (shape.kv_heads % tp == 0 || tp % shape.kv_heads == 0);
}

// Fewest cards; of equal counts the widest tp, since stages wait for each other. More stages never need more.
std::optional<Mesh> smallest_mesh(const InferenceRequest& request) {
  const TransformerShape& shape = *request.model.shape;
  std::optional<Mesh> best;
  for (int tp = request.hardware.cards_per_node; tp >= 1; --tp) {
    if (!divides_heads(tp, shape)) continue;
    const auto mesh_with = [&](std::int64_t pp) { return Mesh({{Axis::pp, pp}, {Axis::tp, tp}}); };
    const std::int64_t too_few = largest(shape.layers, [&](std::int64_t pp) {
      return !Server(request, mesh_with(pp)).fits(request.batch, request.context);
    });
    if (too_few == shape.layers) continue;
    const Mesh mesh = mesh_with(too_few + 1);
    if (!best || mesh.world_size() < best->world_size()) best = mesh;
  }
  return best;
}

std::string reason(const InferenceSize& size) {
  const int worst = size.worst_stage();
  const InferenceStage& stage = size.stages[static_cast<std::size_t>(worst)];
  const std::string which = size.stages.size() == 1 ? "a card" : fmt::format("a card of stage {}", worst);
  return fmt::format("{} needs {} ({} weights, {} cache) and has {}", which, format_bytes(stage.total()),
                     format_bytes(stage.weights), format_bytes(stage.cache),
                     format_bytes(size.request.hardware.memory_bytes));
}

}  // namespace

int InferenceSize::worst_stage() const {
  return static_cast<int>(std::ranges::max_element(stages, {}, &InferenceStage::total) - stages.begin());
}

InferenceSize size_inference(const InferenceRequest& request) {
  InferenceSize size{.request = request};
  InferenceRequest& asked = size.request;
  const TransformerShape& shape = shape_of(asked.model);
  if (asked.context == 0) asked.context = longest_of(asked.model, kUnboundedContext);
  check_sizes(asked);
  if (asked.mesh) check_mesh(*asked.mesh, shape);
  size.smallest_mesh = smallest_mesh(asked);
  size.mesh = asked.mesh ? *asked.mesh : size.smallest_mesh.value_or(Mesh());

  const Server server(asked, size.mesh);
  if (!server.countable(asked.batch, asked.context)) {
    throw ConfigError(fmt::format("--batch {} of --context {} is more than any card holds", asked.batch, asked.context),
                      {.remedy = "set smaller ones; the largest that fit are printed"});
  }
  size.stages = server.stages(asked.batch, asked.context);
  size.fits = server.fits(asked.batch, asked.context);
  if (!size.fits) size.why_not = reason(size);
  size.cache_copies = static_cast<int>(std::max<std::int64_t>(1, size.mesh.degree(Axis::tp) / shape.kv_heads));
  size.cache_bytes_per_token = server.cache_bytes(server.most_layers());
  size.largest_batch = server.largest_batch(asked.context);
  size.largest_context = server.largest_context(asked.batch);
  size.contexts = context_rows(server, asked);
  return size;
}

}  // namespace orthant
