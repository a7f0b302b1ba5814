#include "orthant/plan/sized_units.h"

#include <algorithm>
#include <utility>

namespace orthant {
namespace {

class SizedLayer : public SizedUnit {
 public:
  SizedLayer(const FunctionSizes& sizes, const LayerStyle& style, const LayerWeights& weights)
      : SizedUnit(sizes), style_(style), w_(weights), elements_(sizes.own * sizes.hidden) {}

  Held forward(const Held& x) override { return style_.norm_first ? norm_first(x) : norm_last(x); }
  Held backward(const Held& gy) override { return style_.norm_first ? norm_first_back(gy) : norm_last_back(gy); }

 private:
  // Of the product with `weight`, which has added itself to a copy unless it is dropped first.
  Held residual_sum(const Held& branch, const SizedWeight& weight) {
    if (style_.drops_sums) return f.dropout_add(branch, elements_);
    f.move((3 - (weight.bias ? kBiasMoves : 0)) * elements_);  // which has the bias in it, too
    return branch;
  }

  bool norm_sums() const { return style_.norm_sums && style_.drops_sums; }

  // A gradient and what a branch adds to it: in place, unless it waits for a weight, too.
  Held summed(const Held& g) {
    f.move(3 * elements_);
    return f.defers && !style_.drops_sums ? f.own_values() : g;
  }
  Held joined() {
    f.move(3 * elements_);
    return f.own_values();
  }

  Held norm_first(const Held& x) {
    const Held qkv = f.linear(f.norm(x, norm1_), w_.qkv, qkv_);
    const Held attended = f.attention(qkv, w_.qkv, w_.out, attention_);
    Held middle = norm_sums() ? Held() : residual_sum(attended, w_.out);
    Held normed = norm_sums() ? f.dropout_add_norm(attended, true, norm2_, &middle) : f.norm(middle, norm2_);
    const Held wide = f.linear(std::exchange(normed, {}), w_.up, up_);
    const Held narrow = f.activation_linear(wide, w_.up.out, w_.down, style_.drops_activation, down_);
    return residual_sum(narrow, w_.down);
  }

  Held norm_first_back(const Held& gy) {
    const auto undropped = [&](const Held& g) { return style_.drops_sums ? f.dropout(g, elements_) : g; };
    Held g = f.activation_linear_back(undropped(gy), std::move(down_), w_.up.out, w_.down, style_.drops_activation);
    g = f.linear_back(g, std::move(up_), w_.up);
    Held dropped;
    g = f.norm_back(g, std::move(norm2_), norm_sums() ? &dropped : nullptr, style_.norm_adds);
    const Held middle = style_.norm_adds ? g : joined();  // beside gy, which the engine's caller holds
    g.reset();
    if (!norm_sums()) dropped = undropped(middle);
    g = f.attention_back(std::exchange(dropped, {}), std::move(attention_), w_.qkv, w_.out);
    g = f.linear_back(g, std::move(qkv_), w_.qkv);
    g = f.norm_back(g, std::move(norm1_), nullptr, style_.norm_adds);
    return style_.norm_adds ? g : summed(middle);
  }

  Held norm_last(const Held& x) {
    const Held attended = f.attention(f.linear(x, w_.qkv, qkv_), w_.qkv, w_.out, attention_);
    const Held middle = f.dropout_add_norm(attended, style_.drops_sums, norm1_);
    const Held narrow =
        f.activation_linear(f.linear(middle, w_.up, up_), w_.up.out, w_.down, style_.drops_activation, down_);
    return f.dropout_add_norm(narrow, style_.drops_sums, norm2_);
  }

  Held norm_last_back(const Held& gy) {
    Held dropped;
    const auto norm_back = [&](const Held& g, UnitFunctions::Norm norm) {
      Held direct = f.norm_back(g, std::move(norm), style_.drops_sums ? &dropped : nullptr);
      if (!style_.drops_sums) dropped = direct;
      return direct;
    };
    Held direct = norm_back(gy, std::move(norm2_));
    Held g = f.activation_linear_back(std::exchange(dropped, {}), std::move(down_), w_.up.out, w_.down,
                                      style_.drops_activation);
    g = f.linear_back(g, std::move(up_), w_.up);
    g.reset();
    direct = summed(direct);
    direct = norm_back(std::exchange(direct, {}), std::move(norm1_));
    g = f.attention_back(std::exchange(dropped, {}), std::move(attention_), w_.qkv, w_.out);
    g = f.linear_back(g, std::move(qkv_), w_.qkv);
    return summed(direct);
  }

  LayerStyle style_;
  LayerWeights w_;
  double elements_;
  UnitFunctions::Norm norm1_, norm2_;
  UnitFunctions::Linear qkv_, up_, down_;
  UnitFunctions::Attention attention_;
};

// Lookups, summed; then what the model does to the sum.
class SizedEmbed : public SizedUnit {
 public:
  SizedEmbed(const FunctionSizes& sizes, const EmbedStyle& style, bool cut)
      : SizedUnit(sizes), style_(style), sizes_(sizes), cut_(cut), elements_(sizes.own * sizes.hidden) {}

  Held input() override { return {}; }

  Held forward(const Held& /*ids*/) override {
    Held sum = f.values(sizes_.tokens(), sizes_.hidden);
    f.move((style_.positions ? 5 : 2) * sizes_.tokens() * sizes_.hidden);
    if (sizes_.cuts_tokens) sum = f.own_values();
    const Held words = sum;
    if (style_.scales) {
      f.move(5 * elements_);
      const Held scaled = f.own_values();
      sum = f.own_values();
    }
    if (style_.norm) sum = f.norm(sum, norm_);
    return style_.drops ? f.dropout(sum, elements_) : sum;
  }

  Held backward(const Held& gy) override {
    Held g = style_.drops ? f.dropout(gy, elements_) : gy;
    if (style_.norm) g = f.norm_back(std::exchange(g, {}), std::move(norm_));
    if (style_.scales) {
      f.move(2 * elements_);
      g = f.own_values();
    }
    const Held all = sizes_.cuts_tokens ? f.values(sizes_.tokens(), sizes_.hidden) : g;
    const double tables = style_.positions ? 2 : 1;
    f.moved += tables * sizes_.tokens() * sizes_.hidden * (sizes_.element + 2 * sizes_.gradient);  // added to rows
    // nn::device::serves_rows(); positions repeat from row to row.
    const bool served = sizes_.kernels && sizes_.gradient == sizes_.wide && !style_.positions;
    const bool converts = sizes_.gradient != sizes_.element && !served;
    const bool hides =
        cut_ && !served && (!sizes_.on_host || sizes_.gradient < sizes_.wide);  // words of others, copied
    const double wide = (converts + hides) * sizes_.tokens() * sizes_.hidden * sizes_.gradient;
    if (f.defers) {
      f.defer({all, style_.positions ? g : Held()}, [this, wide] { f.for_a_while(wide); });
    } else {
      f.for_a_while(wide);
    }
    return {};
  }

 private:
  EmbedStyle style_;
  FunctionSizes sizes_;
  bool cut_;
  double elements_;
  UnitFunctions::Norm norm_;
};

// Hidden states to what the last product reads.
class SizedHead : public SizedUnit {
 public:
  SizedHead(const FunctionSizes& sizes, const HeadStyle& style, const SizedWeight& weight)
      : SizedUnit(sizes), sizes_(sizes), weight_(weight), style_(style) {
    dense_weight_ = {.out = sizes.hidden, .in = sizes.hidden, .cut = -1, .trainable = true};
  }

  Held forward(const Held& x) override {
    Held active = x;
    if (style_.dense) {
      const Held made = f.linear(x, dense_weight_, dense_);
      f.move(2 * sizes_.own * sizes_.hidden);
      active = f.own_values();
      if (f.records) made_ = made;
    }
    return last(style_.norm ? f.norm(active, norm_) : active);
  }

  Held backward(const Held& gy) override {
    Held g = last_back(gy);
    if (style_.norm) g = f.norm_back(std::exchange(g, {}), std::move(norm_));
    if (!style_.dense) return g;
    f.move(3 * sizes_.own * sizes_.hidden);
    g = f.own_values();  // through the activation, in place of what came
    made_.reset();
    return f.linear_back(g, std::move(dense_), dense_weight_);
  }

 protected:
  virtual Held last(const Held& normed) = 0;
  virtual Held last_back(const Held& gy) = 0;

  FunctionSizes sizes_;
  SizedWeight weight_;

 private:
  HeadStyle style_;
  SizedWeight dense_weight_;
  UnitFunctions::Norm norm_;
  UnitFunctions::Linear dense_;
  Held made_;
};

// To logits.
class SizedLogits : public SizedHead {
 public:
  SizedLogits(const FunctionSizes& sizes, const HeadStyle& style, const SizedWeight& weight, double words)
      : SizedHead(sizes, style, weight), words_(words) {}

  Held output() override { return f.values(sizes_.tokens(), words_); }

 protected:
  Held last(const Held& normed) override {
    const Held own = f.linear(normed, weight_, logits_);
    return hands_own_on() ? own : f.whole_channels(weight_.out, words_);
  }

  Held last_back(const Held& gy) override {
    Held g = hands_own_on() ? gy : f.values(sizes_.tokens(), weight_.out);
    return f.linear_back(std::exchange(g, {}), std::move(logits_), weight_);
  }

 private:
  bool hands_own_on() const { return words_ == weight_.out; }

  double words_;
  UnitFunctions::Linear logits_;
};

// To the loss.
class SizedHeadLoss : public SizedHead {
 public:
  SizedHeadLoss(const FunctionSizes& sizes, const HeadStyle& style, const SizedWeight& weight, double rows, bool joins)
      : SizedHead(sizes, style, weight), rows_(rows), joins_(joins) {}

  Held output() override { return {}; }

 protected:
  Held last(const Held& normed) override {
    f.linear_loss(normed, weight_, rows_, joins_, loss_);
    return {};
  }

  Held last_back(const Held& /*gy*/) override { return f.linear_loss_back(std::move(loss_), weight_, rows_); }

 private:
  double rows_;
  bool joins_;
  UnitFunctions::Loss loss_;
};

// Logits of `elements`, which their gradient overwrites.
class SizedLoss : public SizedUnit {
 public:
  SizedLoss(const FunctionSizes& sizes, double elements, double classes, bool joins)
      : SizedUnit(sizes),
        sizes_(sizes),
        elements_(elements),
        targets_(elements / std::max(classes, 1.0)),
        joins_(joins) {}

  Held input() override { return f.values(1, elements_); }
  Held output() override { return {}; }

  Held forward(const Held& x) override {
    const double statistic = sizes_.on_host ? bytes_of(DType::float64) : sizes_.wide;
    statistics_ = f.memory.take(targets_ * statistic);
    kept_ = x;
    const Held chosen = f.memory.take(targets_ * statistic);
    f.move_logits(kLossMoves, elements_);
    if (!sizes_.kernels && (sizes_.narrow() || !sizes_.on_host)) f.memory.take(elements_ * sizes_.wide);
    if (joins_) f.memory.take(targets_ * statistic);
    return {};
  }

  Held backward(const Held& /*gy*/) override {
    const Held logits = std::exchange(kept_, {});
    const Held statistics = std::exchange(statistics_, {});
    f.move_logits(kGradientMoves, elements_);
    if (sizes_.kernels || !sizes_.narrow()) return logits;
    const Held wide = f.memory.take(elements_ * sizes_.wide);
    return f.values(1, elements_);
  }

 private:
  FunctionSizes sizes_;
  double elements_;
  double targets_;
  bool joins_;
  Held kept_, statistics_;
};

}  // namespace

std::unique_ptr<SizedUnit> sized_layer(const FunctionSizes& sizes, const LayerStyle& style,
                                       const LayerWeights& weights) {
  return std::make_unique<SizedLayer>(sizes, style, weights);
}

std::unique_ptr<SizedUnit> sized_embed(const FunctionSizes& sizes, const EmbedStyle& style, bool cut) {
  return std::make_unique<SizedEmbed>(sizes, style, cut);
}

std::unique_ptr<SizedUnit> sized_head(const FunctionSizes& sizes, const HeadStyle& style, const SizedWeight& weight,
                                      double words) {
  return std::make_unique<SizedLogits>(sizes, style, weight, words);
}

std::unique_ptr<SizedUnit> sized_head_loss(const FunctionSizes& sizes, const HeadStyle& style,
                                           const SizedWeight& weight, double rows, bool joins) {
  return std::make_unique<SizedHeadLoss>(sizes, style, weight, rows, joins);
}

std::unique_ptr<SizedUnit> sized_loss(const FunctionSizes& sizes, double elements, double classes, bool joins) {
  return std::make_unique<SizedLoss>(sizes, elements, classes, joins);
}

}  // namespace orthant
