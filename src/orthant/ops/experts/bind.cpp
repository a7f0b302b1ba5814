// Routing, rows of experts, their products and sums.
#include <ATen/ATen.h>

#include "orthant/nn/binding.h"
#include "orthant/ops/exchange/token_values.h"
#include "orthant/ops/experts/expert_products.h"
#include "orthant/ops/experts/router_loss.h"
#include "orthant/ops/experts/routing.h"
#include "orthant/ops/experts/token_exchange.h"

namespace orthant {
namespace {

nn::RouteKind kind_of(const Binding& b) {
  const Attributes& said = b.attributes();
  return {said.integer("per_token"), said.flag("normalised"),      said.flag("sigmoid"),
          said.integer("groups"),    said.integer("groups_taken"), said.number("scaling")};
}

std::vector<std::int64_t> ends_of(const at::Tensor& held, const nn::Pass& pass) {
  return nn::row_ends(held, pass.experts == nullptr ? 1 : pass.experts->degree());
}

Step bind_route(const Binding& b) {
  return [kind = kind_of(b), logits = b.in(0), weights = b.out(0), chosen = b.out(1), places = b.out(2),
          slots = b.out(3), counts = b.out(4), bias = b.parameter(1)](Frame& frame) {
    nn::Routes made = nn::route(frame[logits], kind, bias == nullptr ? at::Tensor() : bias->value);
    frame[weights] = std::move(made.weights);
    frame[chosen] = std::move(made.chosen);
    frame[places] = std::move(made.places);
    frame[slots] = std::move(made.slots);
    frame[counts] = std::move(made.counts);
  };
}

Step bind_route_back(const Binding& b) {
  return [kind = kind_of(b), gw = b.in(0), logits = b.in(1), chosen = b.in(2), gx = b.out(0)](Frame& frame) {
    frame[gx] = nn::route_gradient(frame[gw], frame[logits], frame[chosen], kind);
  };
}

Step bind_dispatch(const Binding& b) {
  return [x = b.in(0), places = b.in(1), slots = b.in(2), counts = b.in(3), rows = b.out(0),
          held = b.out(1)](Frame& frame) {
    nn::ExpertAxis* axis = frame.pass.experts;
    const at::Tensor own = nn::rows_of_tokens(frame[x], frame[slots], frame[places].size(1));
    frame[held] = nn::held_counts(frame[counts], axis);
    frame[rows] = nn::to_experts(own, frame[counts], frame[held], axis);
  };
}

// in gy, places, counts, held.
Step bind_dispatch_back(const Binding& b) {
  return [gy = b.in(0), places = b.in(1), counts = b.in(2), held = b.in(3), gx = b.out(0)](Frame& frame) {
    const at::Tensor own = nn::from_experts(frame[gy], frame[counts], frame[held], frame.pass.experts);
    frame[gx] = nn::sums_of_rows(own, frame[places], {});
  };
}

Step bind_expert_product(const Binding& b) {
  return [rows = b.in(0), held = b.in(1), y = b.out(0), weight = b.parameter(0)](Frame& frame) {
    frame[y] = nn::expert_products(frame[rows], ends_of(frame[held], frame.pass), weight->value);
  };
}

Step bind_expert_product_back(const Binding& b) {
  return [gy = b.in(0), held = b.in(1), gx = b.out(0), weight = b.parameter(0)](Frame& frame) {
    frame[gx] = nn::expert_products_back(frame[gy], ends_of(frame[held], frame.pass), weight->value);
  };
}

Step bind_expert_product_weight(const Binding& b) {
  return [gy = b.in(0), rows = b.in(1), held = b.in(2), weight = b.parameter(0)](Frame& frame) {
    nn::add_expert_gradients(*weight, frame[gy], frame[rows], ends_of(frame[held], frame.pass));
  };
}

Step bind_combine(const Binding& b) {
  return [rows = b.in(0), weights = b.in(1), places = b.in(2), counts = b.in(3), held = b.in(4),
          y = b.out(0)](Frame& frame) {
    const at::Tensor own = nn::from_experts(frame[rows], frame[counts], frame[held], frame.pass.experts);
    frame[y] = nn::sums_of_rows(own, frame[places], frame[weights]);
  };
}

// in gy, rows, weights, places, counts, held. Rows travel back once more for the gradients of weights.
Step bind_combine_back(const Binding& b) {
  return [gy = b.in(0), rows = b.in(1), weights = b.in(2), places = b.in(3), counts = b.in(4), held = b.in(5),
          d_rows = b.out(0), d_weights = b.out(1)](Frame& frame) {
    nn::ExpertAxis* axis = frame.pass.experts;
    const at::Tensor own = nn::from_experts(frame[rows], frame[counts], frame[held], axis);
    nn::SumGradients made =
        nn::sum_gradients(frame[gy], own, frame[weights], frame[places], /*wants_weights=*/d_weights >= 0);
    frame[d_rows] = nn::to_experts(made.rows, frame[counts], frame[held], axis);
    if (d_weights >= 0) frame[d_weights] = std::move(made.weights);
  };
}

// The labels of the tokens that `tokens` is a value of.
class RouterLabels {
 public:
  RouterLabels(const Binding& b, int labels, int tokens) : labels_(labels), own_(b.placement(tokens).cuts_tokens()) {}

  bool own() const { return own_; }
  at::Tensor get(Frame& frame) const {
    at::Tensor labels = frame[labels_];
    if (frame.pass.context != nullptr) {
      labels = nn::own_columns(labels.view({frame.pass.rows, frame.pass.whole_sequence()}), frame.pass);
    }
    labels = labels.reshape({-1});
    if (!own_) return labels;
    const Range own = frame.pass.own_tokens();
    return labels.narrow(0, own.begin, own.size());
  }

 private:
  int labels_;
  bool own_;
};

nn::RouterLossKind loss_kind_of(const Binding& b) {
  return {b.attributes().number("balance"), b.attributes().number("z"), b.attributes().flag("sigmoid")};
}

Step bind_router_loss(const Binding& b) {
  return [kind = loss_kind_of(b), logits = b.in(0), chosen = b.in(1), labels = RouterLabels(b, b.in(2), b.in(0)),
          loss = b.out(0), shares = b.out(1)](Frame& frame) {
    nn::RouterLossForward made =
        nn::router_loss(frame[logits], frame[chosen], labels.get(frame), kind, frame.pass, labels.own());
    const nn::Pass& pass = frame.pass;
    // Of tokens that all tp ranks have, the first one tells.
    const bool tells = labels.own() || pass.tensor == nullptr || pass.tensor->coordinate() == 0;
    if (pass.expert_loads != nullptr && tells) pass.expert_loads->add_(made.taken);
    frame[loss] = std::move(made.loss);
    if (shares >= 0) frame[shares] = std::move(made.shares);
  };
}

// in gy, logits, labels, shares.
Step bind_router_loss_back(const Binding& b) {
  return [kind = loss_kind_of(b), gy = b.in(0), logits = b.in(1), labels = RouterLabels(b, b.in(2), b.in(1)),
          shares = b.in(3), gx = b.out(0)](Frame& frame) {
    frame[gx] = nn::router_loss_gradient(frame[gy], frame[logits], labels.get(frame), frame[shares], kind, frame.pass,
                                         labels.own());
  };
}

Step bind_token_gate(const Binding& b) {
  return [x = b.in(0), gate = b.in(1), y = b.out(0)](Frame& frame) { frame[y] = frame[x] * frame[gate].sigmoid(); };
}

// in gy, x, gate.
Step bind_token_gate_back(const Binding& b) {
  return [gy = b.in(0), x = b.in(1), gate = b.in(2), d_x = b.out(0), d_gate = b.out(1)](Frame& frame) {
    const at::Tensor share = frame[gate].sigmoid();
    if (d_gate >= 0) {
      const at::Tensor sum = (frame[gy] * frame[x]).sum(-1, /*keepdim=*/true);
      frame[d_gate] = sum.mul_(share).mul_(1 - share);
    }
    if (d_x >= 0) frame[d_x] = frame[gy] * share;
  };
}

}  // namespace

std::vector<NamedBinder> experts_binders() {
  return {{"route", bind_route},
          {"route_back", bind_route_back},
          {"dispatch", bind_dispatch},
          {"dispatch_back", bind_dispatch_back},
          {"expert_product", bind_expert_product},
          {"expert_product_back", bind_expert_product_back},
          {"expert_product_weight", bind_expert_product_weight},
          {"combine", bind_combine},
          {"combine_back", bind_combine_back},
          {"router_loss", bind_router_loss},
          {"router_loss_back", bind_router_loss_back},
          {"token_gate", bind_token_gate},
          {"token_gate_back", bind_token_gate_back}};
}

}  // namespace orthant
