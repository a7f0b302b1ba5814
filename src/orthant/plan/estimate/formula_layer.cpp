#include <algorithm>

#include "orthant/plan/estimate/formula_sizes.h"

namespace orthant {
namespace {

// The closed forms of a layer.
class LayerFormulas {
 public:
  LayerFormulas(const TransformerShape& shape, const Stack& stack, const PlanSettings& settings,
                const FormulaSizes& sizes)
      : shape_(shape), stack_(stack), settings_(settings), sizes_(sizes) {}

  UnitWork work() const;

 private:
  void set_parameters(UnitWork& work) const;
  void set_products(UnitWork& work) const;
  void set_moved(UnitWork& work) const;
  void set_kept(UnitWork& work) const;
  void set_exchanges(UnitWork& work) const;

  bool has_experts() const { return shape_.experts > 0; }
  double first_matrices() const {
    return static_cast<double>(shape_.mlp_matrices() - 1);
  }  // of an MLP: up, gate and up
  double local_experts() const { return static_cast<double>(shape_.experts) / sizes_.ep; }
  // Without an ep axis each expert is cut over tp, as a dense MLP is.
  int expert_cut() const { return sizes_.ep == 1 ? sizes_.tp : 1; }
  double expert_inner() const { return static_cast<double>(shape_.expert_inner) / expert_cut(); }
  double shared_inner() const { return static_cast<double>(shape_.shared_inner) / sizes_.tp; }

  // Inner channels of all MLPs on this rank, each times the tokens that pass it.
  double inner_elements() const;
  double heads_bytes() const { return stack_.projection * sizes_.query * sizes_.tokens; }  // of their output
  double score_bytes() const;
  double mlp_bytes() const;
  double kept_besides_attention() const;
  double kept_by_op() const;
  double deferred_bytes() const;
  std::vector<PricedExchange> row_exchanges() const;  // of a forward: before column and after row products
  std::vector<PricedExchange> backward_exchanges() const;
  std::vector<PricedExchange> dispatch() const;
  PricedExchange ring(double times) const;

  const TransformerShape& shape_;
  const Stack& stack_;
  const PlanSettings& settings_;
  const FormulaSizes& sizes_;
};

double LayerFormulas::inner_elements() const {
  if (!has_experts()) return sizes_.inner * sizes_.tokens;
  return expert_inner() * sizes_.routed + shared_inner() * sizes_.tokens;
}

void LayerFormulas::set_parameters(UnitWork& work) const {
  const auto h = static_cast<double>(shape_.hidden);
  const double norms = 2 * static_cast<double>(shape_.norm_parameters());
  const bool output_bias = shape_.attention_biases && shape_.attention_output_bias;
  const double row_bias = (output_bias ? h : 0) + (shape_.mlp_biases ? h : 0);
  const double column_bias = (shape_.attention_biases ? sizes_.query + 2 * sizes_.key : 0) +
                             (shape_.mlp_biases ? first_matrices() * sizes_.inner : 0);
  const double head_norms = shape_.head_norms ? 2 * static_cast<double>(shape_.head_size) : 0;
  work.parameters = h * (2 * sizes_.query + 2 * sizes_.key) + norms + head_norms + row_bias + column_bias;
  const auto matrices = static_cast<double>(shape_.mlp_matrices());
  if (!has_experts()) {
    work.parameters += matrices * h * sizes_.inner;
    return;
  }
  work.expert_parameters = local_experts() * static_cast<double>(shape_.expert_parameters()) / expert_cut();
  work.parameters += h * static_cast<double>(shape_.experts + (shape_.shared_gate ? 1 : 0)) +
                     matrices * h * shared_inner() + work.expert_parameters;
}

void LayerFormulas::set_products(UnitWork& work) const {
  const double h = sizes_.hidden;
  const double tokens = sizes_.tokens;
  const auto add_mlp = [&](double m, double inner) {
    if (inner == 0) return;
    work.products.push_back({m, first_matrices() * inner, h});
    work.products.push_back({m, h, inner});
  };
  work.products = {{tokens, sizes_.query + 2 * sizes_.key, h}, {tokens, h, sizes_.query}};
  if (has_experts()) {
    work.products.push_back({sizes_.own, static_cast<double>(shape_.experts), h});
    add_mlp(tokens, shared_inner());
    for (int i = 0; i < static_cast<int>(local_experts()); ++i) {
      add_mlp(sizes_.routed / local_experts(), expert_inner());
    }
  } else {
    add_mlp(tokens, sizes_.inner);
  }
  work.fused_attention = settings_.flash;
  const bool halved = settings_.flash && shape_.causal;
  const auto head_size = static_cast<double>(shape_.head_size);
  work.attention_flops = 4 * sizes_.heads * sizes_.pairs * head_size * (halved ? 0.5 : 1);

  const int attention = settings_.flash ? 1 : (shape_.dropout ? 4 : 3);  // two products, softmax, dropout
  const int rotation = shape_.positions == 0 && shape_.causal ? 1 : 0;
  const int routing = has_experts() ? 6 : 0;  // choice of experts, dispatch, and back
  const int sweeps = 5;                       // norms, residual sums, the MLP's activation
  work.kernels = static_cast<int>(work.products.size()) + attention + rotation + routing + sweeps;
}

void LayerFormulas::set_moved(UnitWork& work) const {
  const double channel = shape_.gated ? stack_.moved_gated_channel : stack_.moved_plain_channel;
  const double score = stack_.moved_score + (shape_.dropout ? stack_.moved_score_dropout : 0);
  work.attention_moved_bytes = settings_.flash ? 0 : score * sizes_.heads * sizes_.pairs;
  work.moved_bytes = stack_.moved_hidden * sizes_.hidden * sizes_.own +
                     stack_.moved_projection * (sizes_.query + 2 * sizes_.key) * sizes_.tokens +
                     channel * inner_elements() + work.attention_moved_bytes;
  if (has_experts()) work.moved_bytes += 4 * sizes_.element * sizes_.hidden * sizes_.routed;  // dispatch, and back
  work.backward_moved_bytes = stack_.moved_in_backward * work.moved_bytes;
  work.weights_moved_bytes = stack_.accumulate_moved * work.parameters;
}

double LayerFormulas::score_bytes() const {
  if (settings_.flash) return stack_.score_statistic * sizes_.heads * sizes_.tokens;
  return (stack_.score + (shape_.dropout ? stack_.score_dropout : 0)) * sizes_.heads * sizes_.pairs;
}

double LayerFormulas::mlp_bytes() const {
  const double channel = shape_.gated ? stack_.gated_channel : stack_.plain_channel;
  return channel * inner_elements() + stack_.routed_token * sizes_.hidden * sizes_.routed;
}

// Norms, column inputs, masks, query, key and value, and the MLP.
double LayerFormulas::kept_besides_attention() const {
  const double statistics = (shape_.norm_biases ? 2 : 1) * stack_.norm_statistic;
  const double mask = shape_.dropout ? stack_.dropout_mask : 0;
  return 2 * (stack_.norm_input + mask) * sizes_.hidden * sizes_.own + 2 * statistics * sizes_.own +
         2 * stack_.column_input * sizes_.hidden * sizes_.column +
         stack_.projection * (sizes_.query + 2 * sizes_.key) * sizes_.tokens + mlp_bytes();
}

// Products are counted in the order query, key, value, heads' output, gate, up, down, and the odd ones are kept; those
// of query, key and value are one where the MLP has no gate. Besides these the layer's input, fused attention's result,
// and what is scattered after row products.
double LayerFormulas::kept_by_op() const {
  const double scattered = sizes_.cuts_tokens ? 2 * sizes_.hidden * sizes_.own : 0;
  const double products = shape_.gated ? (sizes_.query + sizes_.key + sizes_.hidden) * sizes_.tokens + inner_elements()
                                       : (sizes_.query + 2 * sizes_.key) * sizes_.tokens + inner_elements();
  return sizes_.element * (sizes_.hidden * sizes_.own + scattered + products) + heads_bytes() + score_bytes();
}

// Inputs and output gradients of every product.
double LayerFormulas::deferred_bytes() const {
  const double inner = (first_matrices() + 1) * inner_elements() + 2 * sizes_.hidden * sizes_.routed;
  return sizes_.element *
         (4 * sizes_.hidden * sizes_.column + (2 * sizes_.query + 2 * sizes_.key) * sizes_.tokens + inner);
}

void LayerFormulas::set_kept(UnitWork& work) const {
  const double besides = kept_besides_attention();
  const double none = besides + heads_bytes() + score_bytes();
  const double selective = besides + (stack_.selective_keeps_heads ? heads_bytes() : 0);
  const double full = sizes_.element * sizes_.hidden * sizes_.own;
  work.kept_bytes = {none, selective, full, kept_by_op()};
  work.remade_bytes = std::max(0.0, none - work.kept_bytes.at(static_cast<std::size_t>(settings_.recompute)));
  work.deferred_bytes = deferred_bytes();
}

std::vector<PricedExchange> LayerFormulas::row_exchanges() const {
  if (sizes_.tp == 1) return {};
  const PricedExchange sum{ExchangeKind::all_reduce, Axis::tp, sizes_.hidden_bytes()};
  if (!sizes_.cuts_tokens) return {sum, sum};
  const PricedExchange gather{ExchangeKind::all_gather, Axis::tp, sizes_.hidden_bytes()};
  const PricedExchange scatter{ExchangeKind::reduce_scatter, Axis::tp, sizes_.hidden_bytes()};
  // Experts take own tokens as they are.
  if (has_experts() && shape_.shared_inner == 0) return {gather, scatter};
  return {gather, scatter, gather, scatter};
}

// Gradients of row products' outputs are gathered before anything can run; those of column products' inputs are summed,
// and the inputs gathered again, beside the products of weights' gradients where the stack does so.
std::vector<PricedExchange> LayerFormulas::backward_exchanges() const {
  std::vector<PricedExchange> exchanges;
  for (PricedExchange exchange : row_exchanges()) {
    exchange.beside_weights = stack_.overlaps_exchanges && exchange.kind != ExchangeKind::all_gather;
    exchanges.push_back(exchange);
    if (exchange.kind == ExchangeKind::reduce_scatter && sizes_.regathers) {
      exchange.kind = ExchangeKind::all_gather;
      exchanges.push_back(exchange);
    }
  }
  return exchanges;
}

// Tokens to their experts, and back.
std::vector<PricedExchange> LayerFormulas::dispatch() const {
  if (!has_experts() || sizes_.ep == 1) return {};
  const PricedExchange tokens{ExchangeKind::all_to_all, Axis::ep, sizes_.element * sizes_.hidden * sizes_.routed};
  return {tokens, tokens};
}

// Keys and values, past every other cp rank.
PricedExchange LayerFormulas::ring(double times) const {
  return {ExchangeKind::ring, Axis::cp, times * (sizes_.cp - 1) * 2 * sizes_.element * sizes_.key * sizes_.tokens};
}

void LayerFormulas::set_exchanges(UnitWork& work) const {
  work.forward_exchanges = row_exchanges();
  work.backward_exchanges = backward_exchanges();
  for (const auto& exchange : dispatch()) {
    work.forward_exchanges.push_back(exchange);
    work.backward_exchanges.push_back(exchange);
  }
  if (sizes_.cp > 1) {
    work.forward_exchanges.push_back(ring(1));
    work.backward_exchanges.push_back(ring(2));
  }
  if (settings_.recompute == PlanRecompute::full) work.remade_exchanges = work.forward_exchanges;
}

UnitWork LayerFormulas::work() const {
  UnitWork work;
  work.role = UnitRole::layer;
  set_parameters(work);
  set_products(work);
  set_moved(work);
  set_kept(work);
  set_exchanges(work);
  work.output_bytes = sizes_.message_bytes(stack_);
  return work;
}

}  // namespace

UnitWork formula_layer(const TransformerShape& shape, const Stack& stack, const PlanSettings& settings,
                       const FormulaSizes& sizes) {
  return LayerFormulas(shape, stack, settings, sizes).work();
}

}  // namespace orthant
