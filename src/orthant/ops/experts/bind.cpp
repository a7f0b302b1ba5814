// Routing, rows of experts, their products and sums.
#include <ATen/ATen.h>

#include <algorithm>

#include "orthant/nn/binding.h"
#include "orthant/ops/activation/activation.h"
#include "orthant/ops/exchange/token_values.h"
#include "orthant/ops/experts/capacity.h"
#include "orthant/ops/experts/expert_products.h"
#include "orthant/ops/experts/expert_rows.h"
#include "orthant/ops/experts/router_loss.h"
#include "orthant/ops/experts/routing.h"
#include "orthant/ops/experts/token_exchange.h"

namespace orthant {
namespace {

nn::RouteKind kind_of(const Binding& b) {
  const Attributes& said = b.attributes();
  return {said.integer("per_token"),    said.flag("normalised"), said.flag("sigmoid"),    said.integer("groups"),
          said.integer("groups_taken"), said.number("scaling"),  said.integer("capacity")};
}

nn::HeldRows held_rows(const at::Tensor& counts, const nn::Pass& pass) {
  return {counts, pass.experts == nullptr ? 1 : pass.experts->degree()};
}

Step bind_route(const Binding& b) {
  return
      [kind = kind_of(b), logits = b.in(0), weights = b.out(0), chosen = b.out(1), places = b.out(2), slots = b.out(3),
       counts = b.out(4), bias = b.parameter(1), own = b.placement(b.out(1)).cuts_tokens()](Frame& frame) {
        nn::Routes made = nn::choose(frame[logits], kind, bias == nullptr ? at::Tensor() : bias->value);
        const std::int64_t experts = frame[logits].size(1);
        at::Tensor room;
        if (kind.capacity > 0) room = nn::slots_with_room(made.chosen, experts, kind.capacity, frame.pass, own);
        nn::lay_rows(made, experts, room);
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

Step bind_count_held(const Binding& b) {
  return [counts = b.in(0), held = b.out(0)](Frame& frame) {
    frame[held] = nn::held_counts(frame[counts], *frame.pass.experts);
  };
}

Step bind_dispatch(const Binding& b) {
  return [x = b.in(0), weights = b.in(1), places = b.in(2), slots = b.in(3), rows = b.out(0),
          row_weights = b.out(1)](Frame& frame) {
    frame[rows] = nn::rows_of_tokens(frame[x], frame[slots], frame[places].size(1));
    if (row_weights >= 0) frame[row_weights] = nn::weights_of_rows(frame[weights], frame[slots]);
  };
}

// in the gradients of rows and of their weights, places.
Step bind_dispatch_back(const Binding& b) {
  return [rows = b.in(0), row_weights = b.in(1), places = b.in(2), gx = b.out(0), weights = b.out(1),
          drops = b.attributes().flag("drops")](Frame& frame) {
    if (gx >= 0) frame[gx] = nn::sums_of_rows(frame[rows], frame[places], drops);
    if (weights >= 0) frame[weights] = nn::weights_of_slots(frame[row_weights], frame[places], drops);
  };
}

Step bind_expert_activation(const Binding& b) {
  return [gates = b.in(0), weights = b.in(1), y = b.out(0)](Frame& frame) {
    if (nn::device::serves_expert_activation(frame[gates], frame[weights])) {
      frame[y] = nn::device::expert_activation(frame[gates], frame[weights]);
      return;
    }
    frame[y] = nn::weigh_rows(nn::activate(nn::ActivationKind::swiglu, frame[gates]), frame[weights]);
  };
}

// in gy, gates, weights; out their gradients and, where wanted, what forward made. Some rows at a time, which stay in a
// host's caches.
Step bind_expert_activation_back(const Binding& b) {
  return [gy = b.in(0), gates = b.in(1), weights = b.in(2), d_gates = b.out(0), d_weights = b.out(1), again = b.out(2),
          over = b.owns_input()](Frame& frame) {
    constexpr std::int64_t kRows = 64;
    const at::Tensor& given = frame[gy];
    if (given.is_contiguous() && nn::device::serves_expert_activation(frame[gates], frame[weights])) {
      const at::Tensor active = again < 0 ? at::Tensor() : over ? given : at::empty_like(given);
      auto made = nn::device::expert_activation_gradient(given, frame[gates], frame[weights], d_weights >= 0, active);
      frame[d_gates] = std::move(made.gates);
      if (d_weights >= 0) frame[d_weights] = std::move(made.weights);
      if (again >= 0) frame[again] = active;
      return;
    }
    const std::int64_t rows = given.size(0);
    at::Tensor made_gates = at::empty_like(frame[gates]);
    at::Tensor made_weights = d_weights >= 0 ? at::empty_like(frame[weights]) : at::Tensor();
    at::Tensor active = again < 0 ? at::Tensor() : over ? given : at::empty_like(given);
    const std::int64_t step = given.is_cpu() ? kRows : std::max<std::int64_t>(rows, 1);
    for (std::int64_t begin = 0; begin < rows; begin += step) {
      const std::int64_t count = std::min(step, rows - begin);
      const auto part = [&](const at::Tensor& whole) { return whole.narrow(0, begin, count); };
      const at::Tensor weight = part(frame[weights]);
      nn::ActivationGradient made =
          nn::activation_gradient(nn::ActivationKind::swiglu, part(frame[gates]),
                                  part(given) * weight.to(given.scalar_type()), /*wants_activation=*/true);
      part(made_gates).copy_(made.d_x);
      if (d_weights >= 0)
        part(made_weights).copy_(nn::row_products(part(given), made.activation, weight.scalar_type()));
      if (again >= 0) part(active).copy_(nn::weigh_rows(std::move(made.activation), weight));
    }
    frame[d_gates] = std::move(made_gates);
    if (d_weights >= 0) frame[d_weights] = std::move(made_weights);
    if (again >= 0) frame[again] = std::move(active);
  };
}

Step bind_expert_product(const Binding& b) {
  return [rows = b.in(0), held = b.in(1), y = b.out(0), weight = b.parameter(0)](Frame& frame) {
    frame[y] = nn::expert_products(frame[rows], held_rows(frame[held], frame.pass), weight->value);
  };
}

Step bind_expert_product_back(const Binding& b) {
  return [gy = b.in(0), held = b.in(1), gx = b.out(0), weight = b.parameter(0)](Frame& frame) {
    frame[gx] = nn::expert_products_back(frame[gy], held_rows(frame[held], frame.pass), weight->value);
  };
}

Step bind_expert_product_weight(const Binding& b) {
  return [gy = b.in(0), rows = b.in(1), held = b.in(2), weight = b.parameter(0)](Frame& frame) {
    nn::add_expert_gradients(*weight, frame[gy], frame[rows], held_rows(frame[held], frame.pass));
  };
}

Step bind_combine(const Binding& b) {
  return [rows = b.in(0), places = b.in(1), y = b.out(0), drops = b.attributes().flag("drops")](Frame& frame) {
    frame[y] = nn::sums_of_rows(frame[rows], frame[places], drops);
  };
}

// in gy, places, slots.
Step bind_combine_back(const Binding& b) {
  return [gy = b.in(0), places = b.in(1), slots = b.in(2), rows = b.out(0)](Frame& frame) {
    frame[rows] = nn::rows_of_tokens(frame[gy], frame[slots], frame[places].size(1));
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
          places = b.in(3), loss = b.out(0), shares = b.out(1)](Frame& frame) {
    const at::Tensor counted = labels.get(frame);
    nn::RouterLossForward made = nn::router_loss(frame[logits], frame[chosen], counted, kind, frame.pass, labels.own());
    const nn::Pass& pass = frame.pass;
    // Of tokens that all tp ranks have, the first one tells.
    const bool tells = labels.own() || pass.tensor == nullptr || pass.tensor->coordinate() == 0;
    if (pass.expert_loads != nullptr && tells) {
      const std::int64_t experts = made.taken.size(0);
      pass.expert_loads->narrow(0, 0, experts).add_(made.taken);
      const at::Tensor dropped = frame[places].lt(0).logical_and_(counted.ge(0).unsqueeze(1));
      pass.expert_loads->narrow(0, experts, 1).add_(dropped.sum());
    }
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
          {"count_held", bind_count_held},
          {"dispatch", bind_dispatch},
          {"dispatch_back", bind_dispatch_back},
          {"expert_product", bind_expert_product},
          {"expert_product_back", bind_expert_product_back},
          {"expert_product_weight", bind_expert_product_weight},
          {"expert_activation", bind_expert_activation},
          {"expert_activation_back", bind_expert_activation_back},
          {"combine", bind_combine},
          {"combine_back", bind_combine_back},
          {"router_loss", bind_router_loss},
          {"router_loss_back", bind_router_loss_back},
          {"token_gate", bind_token_gate},
          {"token_gate_back", bind_token_gate_back}};
}

}  // namespace orthant
