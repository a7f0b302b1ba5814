// Cross entropy of logits, and of a product that makes them in chunks.
#include <ATen/ATen.h>

#include "orthant/nn/binding.h"
#include "orthant/ops/cross_entropy/cross_entropy.h"
#include "orthant/ops/cross_entropy/head_loss.h"
#include "orthant/ops/exchange/token_values.h"

namespace orthant {
namespace {

// Options of a loss; weights of classes are made on the device when it is first known.
class LossOptions {
 public:
  explicit LossOptions(const Binding& b) {
    if (b.attributes().flag("cut")) options_.classes = b.attributes().integer("classes");
    if (b.attributes().find("class_weights") != nullptr) weights_ = b.attributes().numbers("class_weights");
  }
  const nn::CrossEntropyOptions& get(const at::Tensor& like) {
    if (!weights_.empty() && !options_.class_weights.defined()) {
      options_.class_weights = at::tensor(weights_, at::kDouble).to(like.device());
    }
    return options_;
  }

 private:
  nn::CrossEntropyOptions options_;
  std::vector<double> weights_;
};

// The labels of what a rank has logits of: every rank has all labels.
class Targets {
 public:
  Targets(const Binding& b, std::size_t in) : labels_(b.in(in)), per_token_(is_per_token(b.placement(b.in(in)))) {}

  at::Tensor get(Frame& frame) const {
    const at::Tensor labels = frame[labels_];
    if (!per_token_ || frame.pass.context == nullptr) return labels.contiguous().view({-1});
    const at::Tensor rows = labels.view({frame.pass.rows, frame.pass.whole_sequence()});
    return nn::own_columns(rows, frame.pass).contiguous().view({-1});
  }

 private:
  static bool is_per_token(const ValuePlace& at) { return at.dims.front().sym == Sym::tokens; }

  int labels_;
  bool per_token_;
};

Step bind_cross_entropy(const Binding& b) {
  return [options = LossOptions(b), logits = b.in(0), labels = Targets(b, 1), loss = b.out(0),
          lse = b.out(1)](Frame& frame) mutable {
    const at::Tensor targets = labels.get(frame);
    const at::Tensor matrix = frame[logits].view({targets.numel(), frame[logits].size(-1)});
    nn::CrossEntropyForward out =
        nn::cross_entropy_forward(matrix, targets, options.get(matrix), frame.pass.tensor, frame.pass.subject());
    frame[loss] = std::move(out.loss);
    if (lse >= 0) frame[lse] = std::move(out.lse);
  };
}

// in gy, logits, labels, lse. Over the logits where nobody reads them any more.
Step bind_cross_entropy_back(const Binding& b) {
  return [options = LossOptions(b), gy = b.in(0), logits = b.in(1), labels = Targets(b, 2), lse = b.in(3),
          gx = b.out(0)](Frame& frame) mutable {
    nn::CrossEntropyOptions now = options.get(frame[logits]);
    now.consume_logits = frame.pass.owns_inputs;
    frame[gx] =
        nn::cross_entropy_backward(frame[logits], labels.get(frame), frame[lse], frame[gy], now, frame.pass.tensor);
  };
}

// The head of a pass, and names that outlive it.
class HeadCall {
 public:
  explicit HeadCall(const Binding& b)
      : names_{b.unit, b.attributes().text("loss")},
        weight_(b.parameter(0)),
        bias_(b.parameter(1)),
        chunk_rows_(b.attributes().integer("chunk_rows")) {
    options_.consume_logits = true;
    if (b.attributes().flag("cut")) options_.classes = b.attributes().integer("classes");
  }
  nn::HeadLoss get(Frame& frame) const { return {weight_, bias_, &frame.pass, options_, chunk_rows_, names_}; }

 private:
  std::array<std::string_view, 2> names_;
  nn::Parameter* weight_;
  nn::Parameter* bias_;
  std::int64_t chunk_rows_;
  nn::CrossEntropyOptions options_;
};

Step bind_head_loss(const Binding& b) {
  return [call = HeadCall(b), x = b.in(0), labels = Targets(b, 1), loss = b.out(0), lse = b.out(1)](Frame& frame) {
    std::vector<at::Tensor> numbers;
    frame[loss] =
        nn::forward_chunks(call.get(frame), frame[x], labels.get(frame), lse < 0 ? nullptr : &numbers, nullptr);
    if (lse >= 0) frame[lse] = numbers.size() == 1 ? numbers.front() : at::cat(numbers);
  };
}

// in x, labels, gradient of the loss; out loss, none, gradient of x.
Step bind_head_loss_gradients(const Binding& b) {
  return [call = HeadCall(b), x = b.in(0), labels = Targets(b, 1), seed = b.in(2), loss = b.out(0),
          gx = b.out(2)](Frame& frame) {
    const nn::HeadLoss head = call.get(frame);
    nn::HeadGradients gradients{.of_x = gx >= 0, .of_weights = head.trains(), .d_loss = frame[seed]};
    frame[loss] = nn::forward_chunks(head, frame[x], labels.get(frame), nullptr, &gradients);
    if (gx >= 0) frame[gx] = std::move(gradients.x);
  };
}

// in gy, x, labels, lse.
Step bind_head_loss_back(const Binding& b) {
  return [call = HeadCall(b), gy = b.in(0), x = b.in(1), labels = Targets(b, 2), lse = b.in(3), gx = b.out(0),
          weights = b.attributes().flag("weights")](Frame& frame) {
    nn::HeadGradients gradients{.of_x = gx >= 0, .of_weights = weights, .d_loss = frame[gy]};
    nn::backward_chunks(call.get(frame), frame[x], labels.get(frame), frame[lse], gradients);
    if (gx >= 0) frame[gx] = std::move(gradients.x);
  };
}

}  // namespace

std::vector<NamedBinder> cross_entropy_binders() {
  return {{"cross_entropy", bind_cross_entropy},
          {"cross_entropy_back", bind_cross_entropy_back},
          {"head_loss", bind_head_loss},
          {"head_loss_gradients", bind_head_loss_gradients},
          {"head_loss_back", bind_head_loss_back}};
}

}  // namespace orthant
