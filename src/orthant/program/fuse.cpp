#include "orthant/program/fuse.h"

#include <algorithm>
#include <optional>
#include <set>

#include "orthant/base/index.h"
#include "orthant/ops/rule.h"

namespace orthant {
namespace {

constexpr const char* kOfNorm = "of_norm";  // ops/add reads it, too

bool reads(const Operation& operation, int value) {
  return std::ranges::find(operation.in, value) != operation.in.end();
}

class Fuser {
 public:
  Fuser(std::vector<Operation> list, const std::set<int>& needed) : list_(std::move(list)), needed_(needed) {}

  std::vector<Operation> fuse() {
    for (std::size_t i = 0; i < list_.size(); ++i) {
      if (list_[i].name == "product") fuse_product(i);
      if (list_[i].name == "dropout" || list_[i].name == "add") fuse_sum(i);
      if (list_[i].name == "rotary") fuse_rotary(i);
      if (list_[i].name == "attention_back") fuse_rotary_back(i);
      if (list_[i].name == "layer_norm_back") fuse_dropped(i);
    }
    return std::move(list_);
  }

  std::vector<Operation> fuse_generation() {
    for (std::size_t i = 0; i < list_.size(); ++i) {
      if (list_[i].name == "rms_norm") fuse_norm(i);
      if (list_[i].name != "project") continue;
      list_[i].attributes.set(kGenerates, 1);
      fuse_gate(i);
    }
    return std::move(list_);
  }

 private:
  // The next operation, when it has that name and reads the value.
  Operation* next(std::size_t i, const char* name, int value) {
    if (i + 1 >= list_.size() || list_[i + 1].name != name || !reads(list_[i + 1], value)) return nullptr;
    return &list_[i + 1];
  }

  // By the next operation alone, which need not hand it on then.
  bool read_once(int value, std::size_t from) const {
    std::size_t readers = needed_.contains(value) ? 1 : 0;
    for (std::size_t i = from; i < list_.size(); ++i) readers += reads(list_[i], value) ? 1U : 0U;
    return readers == 1;
  }

  void erase(std::size_t i) { list_.erase(list_.begin() + static_cast<std::ptrdiff_t>(i)); }

  // project: in x, what is added or -1; parameters weight, bias or -1.
  void fuse_product(std::size_t i) {
    Operation& product = list_[i];
    product.name = "project";
    product.in.push_back(-1);
    product.parameters.push_back(-1);
    if (Operation* bias = next(i, "bias", product.out[0]); bias != nullptr && read_once(product.out[0], i)) {
      product.parameters[1] = bias->parameters[0];
      product.out = bias->out;
      if (bias->attributes.flag("once")) product.attributes.set("once", 1);
      erase(i + 1);
    }
    Operation* add = next(i, "add", list_[i].out[0]);
    if (add == nullptr || add->attributes.flag(kOfNorm) || !read_once(list_[i].out[0], i)) return;
    const std::size_t mine = add->in[0] == list_[i].out[0] ? 0 : 1;
    if (const auto once = add->attributes.find("once")) {
      if (std::get<std::int64_t>(*once) != static_cast<std::int64_t>(mine) + 1) return;
      list_[i].attributes.set("once", 1);
    }
    list_[i].in[1] = add->in[1 - mine];
    list_[i].out = add->out;
    erase(i + 1);
  }

  // dropout_add_norm: in x, residual; out sum, normed, statistics. dropout_add: the first of them.
  void fuse_sum(std::size_t i) {
    const bool drops = list_[i].name == "dropout";
    const std::size_t at = drops ? i + 1 : i;
    if (drops) {
      const Operation* sum = next(i, "add", list_[i].out[0]);
      if (sum == nullptr || sum->in[0] != list_[i].out[0] || !read_once(list_[i].out[0], i)) return;
    }
    const Operation add = list_[at];
    const Operation* norm = next(at, "layer_norm", add.out[0]);
    if (!drops && (norm == nullptr || !add.attributes.flag(kOfNorm) || add.attributes.flag("once"))) return;
    Operation made = list_[i];
    made.name = norm == nullptr ? "dropout_add" : "dropout_add_norm";
    made.in = {list_[i].in[0], add.in[1]};
    made.out = add.out;
    if (!drops) made.attributes.set("p", 0.0);
    if (norm != nullptr) {
      made.out.insert(made.out.end(), norm->out.begin(), norm->out.end());
      made.parameters = norm->parameters;
      made.attributes.set("eps", norm->attributes.number("eps"));
    }
    const std::size_t last = norm == nullptr ? at : at + 1;
    list_.erase(list_.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                list_.begin() + static_cast<std::ptrdiff_t>(last) + 1);
    list_[i] = std::move(made);
  }

  // rotary_attention: in qkv, mask, starts of documents; out turned, and attention's.
  void fuse_rotary(std::size_t i) {
    const Operation* attention = next(i, "attention", list_[i].out[0]);
    // Keys are turned before they travel over cp.
    if (attention == nullptr || shares_rows(*attention)) return;
    Operation made = *attention;
    made.name = "rotary_attention";
    made.in[0] = list_[i].in[0];
    made.out.insert(made.out.begin(), list_[i].out[0]);
    add_attributes(made, list_[i]);
    erase(i + 1);
    list_[i] = std::move(made);
  }

  void fuse_rotary_back(std::size_t i) {
    const Operation* turned = next(i, "rotary_back", list_[i].out[0]);
    if (turned == nullptr || shares_rows(list_[i]) || !read_once(list_[i].out[0], i)) return;
    list_[i].name = "rotary_attention_back";
    list_[i].out = turned->out;
    add_attributes(list_[i], *turned);
    erase(i + 1);
  }

  void fuse_dropped(std::size_t i) {
    if (list_[i].out[0] < 0) return;
    const Operation* dropped = next(i, "dropout", list_[i].out[0]);
    if (dropped == nullptr) return;
    list_[i].out.push_back(dropped->out[0]);
    add_attributes(list_[i], *dropped);
    erase(i + 1);
  }

  // The product takes what the norm takes.
  void fuse_norm(std::size_t i) {
    Operation* product = next(i, "project", list_[i].out[0]);
    if (product == nullptr || product->in[0] != list_[i].out[0] || !read_once(list_[i].out[0], i)) return;
    product->in[0] = list_[i].in[0];
    product->parameters.push_back(list_[i].parameters[0]);
    product->attributes.set(kNormEps, list_[i].attributes.number("eps"));
    erase(i);
  }

  void fuse_gate(std::size_t i) {
    const Operation* gate = next(i, "activation", list_[i].out[0]);
    if (gate == nullptr || gate->attributes.text("kind") != "swiglu" || list_[i].in[1] >= 0) return;
    if (!read_once(list_[i].out[0], i)) return;
    list_[i].attributes.set(kGated, 1);
    list_[i].out = gate->out;
    erase(i + 1);
  }

  static void add_attributes(Operation& to, const Operation& from) {
    for (const auto& [name, value] : from.attributes.all()) to.attributes.set(name, value);
  }

  std::vector<Operation> list_;
  const std::set<int>& needed_;
};

}  // namespace

void mark_sums_of_norms(Body& body) {
  for (auto& add : body.operations) {
    if (add.name != "add") continue;
    std::size_t readers = 0;
    bool norm = false;
    for (const auto& operation : body.operations) {
      if (!reads(operation, add.out[0])) continue;
      ++readers;
      norm = norm || operation.name == "layer_norm";
    }
    const bool handed_on = std::ranges::find(body.outputs, add.out[0]) != body.outputs.end();
    if (norm && readers == 1 && !handed_on) add.attributes.set(kOfNorm, 1);
  }
}

std::vector<Operation> fused(std::vector<Operation> list, const std::set<int>& needed) {
  return Fuser(std::move(list), needed).fuse();
}

std::vector<Operation> fused_of_generation(std::vector<Operation> list, const std::set<int>& needed) {
  return Fuser(Fuser(std::move(list), needed).fuse(), needed).fuse_generation();
}

}  // namespace orthant
