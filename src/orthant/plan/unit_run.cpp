#include "orthant/plan/unit_run.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <utility>

#include "orthant/layout/local_parameter.h"
#include "orthant/plan/layer_heads.h"
#include "orthant/plan/sized_units.h"

namespace orthant {
namespace {

// Runs it as the executor does, whole and with the gradients of weights apart.
class Executed {
 public:
  Executed(const std::function<std::unique_ptr<SizedUnit>()>& make, bool recomputed)
      : make_(make), recomputed_(recomputed) {}

  SizedRun sized() const {
    SizedRun found;
    run(found, /*defers=*/false);
    run(found, /*defers=*/true);
    return found;
  }

  SizedRun::InForward in_forward() const {
    const auto unit = make_();
    auto& f = unit->f;
    f.in_forward = true;
    Held x = unit->input();
    f.memory.reset_peak();
    unit->forward(x);
    SizedRun::InForward found;
    found.forward = f.memory.peak();
    x.reset();
    found.kept = f.memory.now();
    f.memory.reset_peak();
    unit->backward({});
    found.backward = f.memory.peak();
    return found;
  }

 private:
  void run(SizedRun& found, bool defers) const {
    const auto unit = make_();
    auto& f = unit->f;
    Held x = unit->input();
    f.records = !recomputed_;
    f.memory.reset_peak();
    Held y = unit->forward(x);
    found.forward = f.memory.peak();
    found.forward_drawn = std::exchange(f.drawn, 0);
    found.forward_moved = std::exchange(f.moved, 0);
    y.reset();
    if (!recomputed_) x.reset();
    found.kept = f.memory.now();

    f.defers = defers;
    Held gy = unit->output();
    f.memory.reset_peak();
    if (recomputed_) {
      f.records = true;
      y = unit->forward(x);
      y.reset();
      x.reset();
      f.moved = 0;
    }
    Held gx = unit->backward(gy);
    (defers ? found.inputs : found.backward) = f.memory.peak();
    if (!defers) found.backward_moved = f.moved;
    gx.reset();
    gy.reset();
    if (!defers) return;
    found.inputs_drawn = std::exchange(f.drawn, 0);
    found.deferred = f.memory.now();
    f.memory.reset_peak();
    f.moved = 0;
    f.run_deferred();
    found.weights = f.memory.peak();
    found.weights_moved = f.moved;
    found.weights_drawn = f.drawn;
  }

  const std::function<std::unique_ptr<SizedUnit>()>& make_;
  bool recomputed_;
};

double as_double(std::int64_t size) {
  return static_cast<double>(size);
}

// The sizes of a resolved unit, and the run of its kind.
class RunMaker {
 public:
  RunMaker(const GraphSpec& graph, const UnitSpec& unit, const PlanSettings& settings)
      : graph_(graph), unit_(unit), settings_(settings), degree_(graph.tensor ? graph.tensor->degree : 1) {
    set_sizes();
    const auto dot = unit.kind.find('.');
    model_ = unit.kind.substr(0, dot);
    part_ = dot == std::string::npos ? unit.kind : unit.kind.substr(dot + 1);
  }

  // Null: not one of ours.
  std::unique_ptr<SizedUnit> make() const {
    if (part_ == "layer") return layer();
    if (part_ == "embed") return sized_embed(sizes_, embed_style(), degree_ > 1);
    if (part_ == "head" || part_ == "head_loss") return head();
    if (unit_.is_loss) {
      const auto& logits = graph_.value(unit_.inputs.front());
      return sized_loss(sizes_, as_double(num_elements(local(logits))), as_double(local(logits).back()),
                        logits.tp.has_value());
    }
    return nullptr;
  }

 private:
  void set_sizes() {
    sizes_.element = bytes_of(settings_.compute);
    sizes_.wide = settings_.compute == DType::float64 ? 8 : 4;
    sizes_.gradient = bytes_of(settings_.gradients);
    sizes_.on_host = settings_.on_host;
    sizes_.kernels = !settings_.on_host && settings_.compute != DType::float64;  // as nn::device::serves()
    sizes_.widens = settings_.widens_products;
    sizes_.selective = settings_.recompute == PlanRecompute::selective && unit_.recomputable;
    if (const auto field = graph_.tokens_of(unit_); !field.empty()) {
      const auto& shape = graph_.value(field).shape;
      sizes_.rows = as_double(shape[0]);
      sizes_.sequence = as_double(shape[1]);
    }
    const bool cuts = degree_ > 1 && graph_.tensor->sequence_parallel;
    sizes_.cuts_tokens = cuts;
    sizes_.regathers = cuts && graph_.tensor->regather;
    sizes_.own = cuts ? std::ceil(sizes_.tokens() / degree_) : sizes_.tokens();
    for (const auto* names : {&unit_.outputs, &unit_.inputs}) {
      for (const auto& name : *names) {
        const auto& value = graph_.value(name);
        if (value.sequence_sharded || value.shape.size() == 3) sizes_.hidden = as_double(value.shape.back());
      }
    }
  }

  Shape local(const ValueSpec& value) const {
    Shape shape = value.shape;
    if (value.tp) shape.back() = (shape.back() + degree_ - 1) / degree_;
    return shape;
  }

  // Whether the unit has a bias of so many numbers.
  bool has_bias(std::int64_t outputs) const {
    return std::ranges::any_of(unit_.parameters, [&](const ParameterSpec& parameter) {
      return parameter.name.ends_with("bias") && parameter.shape == Shape{outputs};
    });
  }

  // The unit's matrices in order, joined ones as one.
  std::vector<SizedWeight> weights() const {
    std::vector<SizedWeight> found;
    std::map<std::string, std::size_t> joined;
    const auto add = [&](const ParameterSpec& parameter) {
      const auto shape = parameter.tp ? local_parameter(parameter, degree_, degree_ - 1).shape : parameter.shape;
      if (shape.size() != 2) return;
      const auto [place, added] =
          joined.emplace(parameter.joined.empty() ? parameter.name : parameter.joined, found.size());
      if (!added) {
        found[place->second].out += as_double(shape[0]);
        return;
      }
      found.push_back({.out = as_double(shape[0]),
                       .in = as_double(shape[1]),
                       .cut = parameter.tp && degree_ > 1 ? parameter.tp->dim : -1,
                       .trainable = parameter.trainable,
                       .bias = has_bias(parameter.shape[0])});
    };
    for (const auto& parameter : unit_.parameters) add(parameter);
    for (const auto& name : unit_.borrowed) add(graph_.parameter(name));
    return found;
  }

  std::unique_ptr<SizedUnit> layer() const {
    const auto found = weights();
    if (found.size() != 4) return nullptr;
    const LayerWeights weights{found[0], found[1], found[2], found[3]};
    auto sizes = sizes_;
    const LayerHeads heads = layer_heads(unit_, sizes.tokens(), weights.out.in, settings_.compute);
    sizes.heads = heads.number;
    if (!settings_.on_host) sizes.heads_by = heads_by(graph_, unit_, heads, settings_);
    sizes.repeatable = sizes.heads_by == HeadsBy::library && settings_.deterministic;
    sizes.rotates = model_ == "llama";
    sizes.norm_numbers = model_ == "llama" ? 1 : 2;
    sizes.drops_scores = settings_.drops.scores;
    sizes.seen = seen_scores(weights);
    const bool on_device_gpt2 = model_ == "gpt2" && !settings_.on_host;
    const LayerStyle style{.norm_first = model_ == "llama" || model_ == "gpt2",
                           .drops_sums = settings_.drops.sums,
                           .drops_activation = settings_.drops.sums && model_ == "encoder_lm",
                           .norm_adds = model_ == "llama" || on_device_gpt2,
                           .norm_sums = on_device_gpt2};
    return sized_layer(sizes, style, weights);
  }

  // What a layer's FLOPs have beside its products is attention, less what a mask hides. A rank of cp has the keys of
  // all.
  double seen_scores(const LayerWeights& weights) const {
    double products = 0;
    for (const auto* weight : {&weights.qkv, &weights.out, &weights.up, &weights.down}) {
      products += 2 * sizes_.tokens() * weight->out * weight->in;
    }
    const double whole = 4 * sizes_.tokens() * sizes_.sequence * weights.out.in;
    return std::max(unit_.cost.forward_flops - products, 0.0) / whole * settings_.mesh.degree(Axis::cp);
  }

  EmbedStyle embed_style() const {
    return {.positions = model_ == "gpt2" || model_ == "bert",
            .scales = model_ == "encoder_lm",
            .norm = model_ == "bert",
            .drops = settings_.drops.embedding};
  }

  std::unique_ptr<SizedUnit> head() const {
    const auto found = weights();
    if (found.empty()) return nullptr;
    const HeadStyle style{.dense = model_ == "bert", .norm = model_ != "encoder_lm"};
    auto sizes = sizes_;
    sizes.norm_numbers = model_ == "llama" ? 1 : 2;
    sizes.hidden = found.back().in;
    if (unit_.logits) {
      return sized_head_loss(sizes, style, found.back(), as_double(unit_.logits->rows), degree_ > 1);
    }
    return sized_head(sizes, style, found.back(), as_double(local(graph_.value("logits")).back()));
  }

  const GraphSpec& graph_;
  const UnitSpec& unit_;
  const PlanSettings& settings_;
  int degree_;
  std::string model_;
  std::string part_;
  FunctionSizes sizes_;
};

}  // namespace

SizedRun run_sized(const GraphSpec& resolved, const UnitSpec& unit, const PlanSettings& settings) {
  const RunMaker maker(resolved, unit, settings);
  const std::function<std::unique_ptr<SizedUnit>()> make = [&] { return maker.make(); };
  if (make() == nullptr) return {};
  const Executed executed(make, settings.recompute == PlanRecompute::full && unit.recomputable);
  SizedRun run = executed.sized();
  if (unit.logits) run.in_forward = executed.in_forward();
  return run;
}

Dropouts dropouts_of(const ModelConfig& config) {
  struct Visitor {
    Dropouts operator()(const LlamaConfig& model) const { return {.scores = model.attention_dropout > 0}; }
    Dropouts operator()(const Gpt2Config& model) const {
      return {.embedding = model.embd_pdrop > 0, .scores = model.attn_pdrop > 0, .sums = model.resid_pdrop > 0};
    }
    Dropouts operator()(const BertConfig& tower) const {
      const bool drops = tower.hidden_dropout_prob > 0;
      return {.embedding = drops, .scores = tower.attention_probs_dropout_prob > 0, .sums = drops};
    }
    Dropouts operator()(const BertModelConfig& model) const { return (*this)(model.encoder); }
    Dropouts operator()(const EncoderLmConfig& model) const {
      const bool drops = model.dropout > 0;
      return {.embedding = drops, .scores = drops, .sums = drops};
    }
    Dropouts operator()(const TrimodalConfig& model) const {
      const Dropouts first = (*this)(model.primary);
      const Dropouts second = (*this)(model.secondary);
      return {.embedding = first.embedding || second.embedding,
              .scores = first.scores || second.scores,
              .sums = first.sums || second.sums};
    }
  };
  return std::visit(Visitor(), config);
}

}  // namespace orthant
