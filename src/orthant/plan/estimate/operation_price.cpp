#include "orthant/plan/estimate/operation_price.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "orthant/base/error.h"
#include "orthant/base/index.h"
#include "orthant/ops/packed_rows.h"
#include "orthant/ops/rule.h"

namespace orthant {
namespace {

// Elements of the block by which ATen turns a matrix of at least as many on a host.
constexpr double kTurned = 60 * 60;

constexpr double kActivation = 2;           // by a kernel, too
constexpr double kPlainActivationBack = 5;  // of one input: made again, and its gradient
constexpr double kPlainGate = 5, kPlainGateBack = 20;
// The same of our kernels, per element of what an activation makes.
constexpr double kActivationBack = 4;
constexpr double kGate = 3, kGateBack = 6;
constexpr double kRoundBytes = 3;  // of each element that is rounded to float8: read in 16 bits, written in 8
constexpr double kTurnBytes = 5;   // of a weight that is turned, too: read twice
constexpr double kSumMoves = 3;    // of a product with a value that is added, the bias included

}  // namespace

OperationPrices::OperationPrices(const Program& program, const UnitSizes& sizes, const PlanSettings& settings,
                                 const ContextPlace& place)
    : program_(program),
      sizes_(sizes),
      settings_(settings),
      place_(place),
      element_(static_cast<double>(bytes_of(sizes.compute))),
      wide_(static_cast<double>(bytes_of(statistics_dtype(sizes.compute)))),
      gradient_(static_cast<double>(bytes_of(settings.gradients))),
      on_host_(settings.on_host),
      kernels_(!settings.on_host && sizes.compute != DType::float64),  // as nn::device::serves()
      values_(program.values.size()) {}

double OperationPrices::bytes(int number) const {
  const ProgramValue& value = program_.values[to_index(number)];
  return is_made(value.number) ? static_cast<double>(local_bytes(value, sizes_)) : 0;
}

double OperationPrices::elements(int number) const {
  return static_cast<double>(local_elements(program_.values[to_index(number)].at, sizes_));
}

double OperationPrices::channels(int number) const {
  return static_cast<double>(local_shape(program_.values[to_index(number)].at, sizes_).back());
}

double OperationPrices::tokens(int number) const {
  return static_cast<double>(local_shape(program_.values[to_index(number)].at, sizes_).front());
}

OperationPrices::Weight OperationPrices::weight(const Operation& operation, std::size_t i) const {
  const Shape shape = local_shape(program_.parameters[to_index(operation.parameters[i])].at, sizes_);
  return {static_cast<double>(shape[0]), static_cast<double>(shape[1])};
}

// As Binding::owns_input().
bool OperationPrices::owns(const Operation& operation) const {
  const auto holds = [&](const std::vector<int>& values) {
    return std::ranges::find(values, operation.in.front()) != values.end();
  };
  return holds(operation.frees) && !holds(program_.inputs) && !holds(program_.seeds) && !holds(program_.kept);
}

bool OperationPrices::drops(const Operation& operation) {
  return operation.attributes.find("p") != nullptr && operation.attributes.number("p") > 0;
}

void OperationPrices::free(const std::vector<int>& numbers) {
  for (const int number : numbers) value(number).reset();
}

double OperationPrices::handed_back(const std::vector<int>& gradients) {
  std::vector<Held> copies;
  for (const int number : gradients) {
    if (on_host_ && number >= 0 && parts_.contains(number) && tokens(number) > 1) copies.push_back(take(number));
  }
  return memory.peak();
}

// By ATen's formulas it takes passes over memory; elsewhere a kernel draws what it uses.
void OperationPrices::draw(double factors) {
  if (on_host_ || kernels_) {
    drawn += factors;
  } else {
    moved += kFormulaDrawMoves * factors;
  }
}

void OperationPrices::run(const Operation& op) {
  using Price = void (OperationPrices::*)(const Operation&);
  static const std::map<std::string_view, Price> kPrices = {
      {"project", &OperationPrices::project},
      {"product_back", &OperationPrices::product_back},
      {"round_float8", &OperationPrices::round_float8},
      {"bias", &OperationPrices::bias},
      {"bias_weight", &OperationPrices::bias_weight},
      {"product_weight", &OperationPrices::product_weight},
      {"add", &OperationPrices::add},
      {"rms_norm", &OperationPrices::norm},
      {"layer_norm", &OperationPrices::norm},
      {"rms_norm_back", &OperationPrices::norm_back},
      {"layer_norm_back", &OperationPrices::norm_back},
      {"head_norm", &OperationPrices::head_norm},
      {"head_norm_back", &OperationPrices::head_norm_back},
      {"dropout_add_norm", &OperationPrices::dropout_add_norm},
      {"dropout_add", &OperationPrices::dropout_add},
      {"activation_back", &OperationPrices::activation_back},
      {"embedding", &OperationPrices::embedding},
      {"embedding_weight", &OperationPrices::embedding_weight},
      {"scale", &OperationPrices::scale},
      {"waves", &OperationPrices::waves},
      {"cross_entropy", &OperationPrices::cross_entropy},
      {"cross_entropy_back", &OperationPrices::cross_entropy_back},
      {"head_loss", &OperationPrices::head_loss},
      {"head_loss_gradients", &OperationPrices::head_loss_gradients},
      {"head_loss_back", &OperationPrices::head_loss_back},
      {"start", &OperationPrices::start},
      {"combine", &OperationPrices::combine},
      {"dispatch_back", &OperationPrices::dispatch_back},
      {"dispatch", &OperationPrices::lay_rows},
      {"combine_back", &OperationPrices::lay_rows},
      {"expert_activation", &OperationPrices::expert_activation},
      {"expert_activation_back", &OperationPrices::expert_activation_back},
  };
  if (const auto found = kPrices.find(op.name); found != kPrices.end()) {
    (this->*found->second)(op);
  } else if (op.name == "attention" || op.name == "rotary_attention") {
    attention(op, op.name != "attention");
  } else if (op.name == "attention_back" || op.name == "rotary_attention_back") {
    attention_back(op, op.name != "attention_back");
  } else if (op.name == "activation") {
    value(op.out[0]) = activated(op, op.in[0], op.out[0]);
  } else if (op.name == "dropout") {
    value(op.out[0]) = dropped(value(op.in[0]), elements(op.in[0]));
  } else if (op.name == "part" || op.name == "rotary" || op.name == "rotary_back") {
    if (op.name == "part") parts_.insert(op.out[0]);
    value(op.out[0]) = value(op.in[0]);
  } else if (op.name != "wait") {  // what makes values of others by a pass over them
    for (const int out : op.out) {
      if (out < 0) continue;
      move(2 * elements(out));
      value(out) = take(out);
    }
  }
}

Held OperationPrices::product(double rows, double in, double out, bool at_once) {
  if (!widens_products()) return narrow_values(rows * out);
  Held operands = memory.take((rows * in + in * out) * wide_);
  Held made = memory.take(rows * out * wide_);
  if (!at_once) operands.reset();
  return narrowed(std::move(made), rows * out);
}

Held OperationPrices::projected(double rows, const Weight& w) {
  Held made = product(rows, w.in, w.out);
  if (on_host_ && !narrow()) {
    const auto lanes = static_cast<std::int64_t>(settings_.vector_bytes / element_);
    const auto packed = packed_elements(static_cast<std::int64_t>(rows), static_cast<std::int64_t>(w.in), lanes);
    memory.for_a_while(static_cast<double>(packed) * element_);
  }
  return made;
}

void OperationPrices::project(const Operation& op) {
  const Weight w = weight(op);
  const double made = elements(op.out[0]);
  if (op.in[1] >= 0) {
    move(kSumMoves * made);
  } else if (op.parameters[1] >= 0) {
    move(kBiasMoves * made);
  }
  if (op.attributes.flag(kFloat8)) {
    const Held rounded = rounded_weight(w, w.out, kRoundBytes);
    value(op.out[0]) = take(op.out[0]);
    return;
  }
  value(op.out[0]) = projected(tokens(op.in[0]), w);
}

void OperationPrices::product_back(const Operation& op) {
  const Weight w = weight(op);
  if (op.attributes.flag(kFloat8)) {
    const Held rounded = rounded_weight(w, w.in, kTurnBytes);
    value(op.out[0]) = take(op.out[0]);
    return;
  }
  value(op.out[0]) = product(tokens(op.in[0]), w.out, w.in, /*at_once=*/true);
}

// In 8 bits, with a scale for each row, while it is multiplied.
Held OperationPrices::rounded_weight(const Weight& w, double rows, double moves) {
  moved += moves * w.in * w.out;
  return memory.take(w.in * w.out + rows * wide_);
}

void OperationPrices::round_float8(const Operation& op) {
  moved += kRoundBytes * elements(op.in[0]);
  for (const int out : op.out) value(out) = take(out);
}

// A product adds itself to copies of the bias; behind a sum over ranks it is added in place.
void OperationPrices::bias(const Operation& op) {
  move(kBiasMoves * elements(op.out[0]));
  value(op.out[0]) = owns(op) ? value(op.in[0]) : take(op.out[0]);
}

void OperationPrices::add(const Operation& op) {
  move(kSumMoves * elements(op.out[0]));
  value(op.out[0]) = owns(op) ? value(op.in[0]) : take(op.out[0]);
}

double OperationPrices::weight_bytes(double rows, const Weight& w) const {
  if (!on_host_) return 0;
  const double operands = rows * (w.out + w.in);
  if (gradient_ < wide_ && settings_.widens_products) {
    return (narrow() ? operands * wide_ : 0) + w.out * w.in * (wide_ + gradient_);
  }
  return gradient_ == element_ ? 0 : operands * gradient_;
}

void OperationPrices::product_weight(const Operation& op) {
  memory.for_a_while(weight_bytes(tokens(op.in[0]), weight(op)));
}

double OperationPrices::column_sums(double rows, double width) const {
  const double blocks = std::max(std::ceil(rows / kRowBlock), 1.0);
  const double bytes = blocks * width * wide_;
  return blocks == 1 ? bytes : bytes + column_sums(blocks, width);
}

void OperationPrices::bias_weight(const Operation& op) {
  move(elements(op.in[0]));
  if (!on_host_) return;
  const Held wide = narrow() ? memory.take(elements(op.in[0]) * wide_) : Held();
  memory.for_a_while(column_sums(tokens(op.in[0]), channels(op.in[0])));
}

Held OperationPrices::dropped(const Held& x, double count) {
  draw(count);
  if (kernels_) {
    move(2 * count);
    return narrow_values(count);
  }
  move(2 * count, count);
  if (!on_host_) {
    memory.for_a_while(count * kDrawnBytes);
    const Held factors = memory.take(count * wide_);
    return narrow_values(count);
  }
  const Held wide = widened(x, count);
  const Held y = memory.take(count * wide_);
  return narrowed(y, count);
}

void OperationPrices::dropout_add(const Operation& op) {
  const double count = elements(op.in[0]);
  move(3 * count);
  const Held left = kernels_ ? Held() : dropped(value(op.in[0]), count);
  if (kernels_) draw(count);
  value(op.out[0]) = narrow_values(count);
}

// A device's activation of one input drops what it makes, too.
Held OperationPrices::activated(const Operation& op, int from, int to) {
  const double in = elements(from), out = elements(to);
  move((in == out ? kActivation : kernels_ ? kGate : kPlainGate) * out);
  Held active;
  if (on_host_ && !is_tanh(op)) {
    const Held wide = widened(value(from), in);
    active = narrowed(memory.take(out * wide_), out);
  } else {
    active = narrow_values(out);
  }
  if (!drops(op)) return active;
  if (kernels_ && in == out) {
    draw(out);
    return active;
  }
  return dropped(active, out);
}

// By ATen, of any type.
bool OperationPrices::is_tanh(const Operation& op) {
  return op.attributes.text("kind") == "tanh";
}

void OperationPrices::activation_back(const Operation& op) {
  const double out = elements(op.in[0]), in = elements(op.in[1]);
  const bool again = op.out.size() > 1 && op.out[1] >= 0;
  if (on_host_ && is_tanh(op)) {
    const Held active = narrow_values(in);
    value(op.out[0]) = narrow_values(in);
    if (again) value(op.out[1]) = active;
    return;
  }
  const bool drops_apart = drops(op) && !(kernels_ && in == out);
  Held gradient = value(op.in[0]);
  if (drops_apart) {
    gradient = dropped(gradient, out);
  } else if (drops(op)) {
    draw(out);
  }
  const double plain_moves = in == out ? kPlainActivationBack : kPlainGateBack;
  const double kernel_moves = in == out ? kActivationBack : kGateBack;
  move((kernels_ ? kernel_moves : plain_moves) * out);
  Held active = gradient;  // which leaves the activation in its place
  Held gx;
  if (on_host_ && narrow()) {
    Held wide;
    {
      const Held x = memory.take(in * wide_);
      wide = memory.take(out * wide_);
      gx = memory.take(in * wide_);
    }
    gx = narrowed(std::move(gx), in);
    if (again) active = narrowed(std::move(wide), out);
  } else {
    const bool plain = !on_host_ && !kernels_;
    if (plain && again) active = narrow_values(out);  // but beside it by ATen's formulas
    gx = narrow_values(in);
    if (plain && in > out) memory.for_a_while(2 * out * element_);
  }
  value(op.out[0]) = gx;
  if (again) value(op.out[1]) = drops_apart ? dropped(active, out) : active;
}

void OperationPrices::waves(const Operation& op) {
  move(5 * elements(op.out[0]));
  const bool zigzag = on_host_ && place_.sharing.degree > 1 && place_.sharing.zigzag;
  const Held own = zigzag ? memory.take(static_cast<double>(sizes_.sequence) * channels(op.out[0]) * element_) : Held();
  const Held scaled = take(op.out[0]);
  const bool picked = on_host_ && program_.values[to_index(op.in[0])].at.cuts_tokens();
  const Held places = picked ? memory.take(2 * tokens(op.in[0]) * bytes_of(DType::int64)) : Held();
  const Held rows = picked ? take(op.out[0]) : Held();
  value(op.out[0]) = take(op.out[0]);
}

void OperationPrices::scale(const Operation& op) {
  move(2 * elements(op.out[0]));
  const Held number = on_host_ ? memory.take(wrapped_number()) : Held();
  value(op.out[0]) = take(op.out[0]);
}

void OperationPrices::start(const Operation& op) {
  const auto& exchange = *op.exchange;
  if (exchange.kind == ExchangeSpec::Kind::sum) {
    value(op.out[0]) = value(op.in[0]);
  } else if (exchange.kind == ExchangeSpec::Kind::gather && exchange.dim != 0) {
    move(4 * elements(op.out[0]));  // gathered, and put in order
    const bool even = elements(op.in[0]) * sizes_.degree == elements(op.out[0]);
    const Held turned = even ? Held() : take(op.in[0]);
    const Held gathered = take(op.out[0]);
    value(op.out[0]) = take(op.out[0]);
    if (on_host_ && !even && elements(op.out[0]) >= kTurned) memory.for_a_while(kTurned * element_);
  } else {
    value(op.out[0]) = take(op.out[0]);
  }
}

}  // namespace orthant
