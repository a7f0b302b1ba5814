// The units of our models as runs over sizes: each calls the functions that its code calls, in the same order and with
// the same variables alive. Internal to this layer; see unit_run.h.
#pragma once

#include <memory>

#include "orthant/plan/unit_functions.h"

namespace orthant {

// One forward and one backward of one microbatch.
class SizedUnit {
 public:
  explicit SizedUnit(const FunctionSizes& sizes) : f(sizes) {}
  virtual ~SizedUnit() = default;

  virtual Held input() { return f.own_values(); }
  virtual Held output() { return f.own_values(); }
  virtual Held forward(const Held& x) = 0;
  virtual Held backward(const Held& gy) = 0;  // to the gradient of x

  UnitFunctions f;
};

struct LayerStyle {
  bool norm_first = true;   // before the branches; or behind their sums
  bool drops_sums = false;  // of branches; without it products add what they are added to
  bool drops_activation = false;
  bool norm_adds = false;  // backward of a norm adds the gradient that passed beside its branch
  bool norm_sums =
      false;  // with norm_first: the second norm drops and adds the branch before it, where sums are dropped
};
struct LayerWeights {
  SizedWeight qkv, out, up, down;
};
std::unique_ptr<SizedUnit> sized_layer(const FunctionSizes& sizes, const LayerStyle& style,
                                       const LayerWeights& weights);

struct EmbedStyle {
  bool positions = false;  // are learned, and looked up, too
  bool scales = false;     // and adds positions that are not
  bool norm = false;
  bool drops = false;
};
// `cut`: tp ranks have words of their own.
std::unique_ptr<SizedUnit> sized_embed(const FunctionSizes& sizes, const EmbedStyle& style, bool cut);

struct HeadStyle {
  bool dense = false;  // and an activation
  bool norm = true;
};
// `words`: that a rank hands on; the weight makes its own.
std::unique_ptr<SizedUnit> sized_head(const FunctionSizes& sizes, const HeadStyle& style, const SizedWeight& weight,
                                      double words);

// The same with the loss, whose logits exist for `rows` tokens at a time. `joins`: each tp rank has classes of its own.
std::unique_ptr<SizedUnit> sized_head_loss(const FunctionSizes& sizes, const HeadStyle& style,
                                           const SizedWeight& weight, double rows, bool joins);

// Of logits of so many elements. `joins`: each tp rank has classes of its own.
std::unique_ptr<SizedUnit> sized_loss(const FunctionSizes& sizes, double elements, double classes, bool joins);

}  // namespace orthant
