// Lookups of OperationPrices: by kernels, or by ATen's formulas (ops/embedding/embedding_table.cpp), which a host runs
// for tables and gradients of narrow types.
#include <fmt/format.h>

#include "orthant/base/index.h"
#include "orthant/plan/estimate/operation_price.h"

namespace orthant {
namespace {

// Of each row that tables give: of one table, and of several, which are summed.
constexpr double kLookupMoves = 2;
constexpr double kLookupsMoves = 5;

constexpr double kIdBytes = 8;

// Of ATen's own, while it repeats a matrix.
constexpr double kRepeatBytes = 64;

// Which of so many ids are held elsewhere: the two sides of a table, and a number to compare with.
double mask_bytes(double ids) {
  return 2 * ids + kIdBytes;
}

std::string text_of(const Operation& op, const char* key, std::size_t lookup) {
  return op.attributes.text(fmt::format("{}{}", key, lookup));
}

}  // namespace

bool OperationPrices::is_cut_table(const Operation& op, std::size_t i) const {
  return program_.parameters[to_index(op.parameters[i])].at.cut_dim == 0;
}

// Positions of a rank's own tokens, which are picked out of a sequence's.
bool OperationPrices::picks_ids(const Operation& op, std::size_t lookup, int tokens_of, bool cut) const {
  const std::string by = text_of(op, "by", lookup);
  return !cut && by != "ids" && by != "counted_positions" && sizes_.rows > 1 &&
         program_.values[to_index(tokens_of)].at.cuts_tokens();
}

double OperationPrices::num_ids(const Operation& op, std::size_t lookup, int tokens_of, bool cut) const {
  const std::string by = text_of(op, "by", lookup);
  const bool every = by == "ids" || by == "counted_positions" || picks_ids(op, lookup, tokens_of, cut);
  return every ? tokens(tokens_of) : static_cast<double>(sizes_.sequence);
}

Held OperationPrices::own_tokens(int field) {
  if (!on_host_ || place_.sharing.degree == 1) return {};
  const bool by_token = program_.values[to_index(field)].at.dims.front().sym == Sym::tokens;
  const bool apart = place_.sharing.zigzag || sizes_.rows > 1;
  return by_token && apart ? memory.take(static_cast<double>(sizes_.tokens()) * kIdBytes) : Held();
}

Held OperationPrices::looked_up(const Operation& op, std::size_t lookup, int tokens_of, bool cut) {
  const std::string by = text_of(op, "by", lookup);
  if (place_.sharing.degree > 1 && by == "positions") {
    return place_.sharing.zigzag ? memory.take(static_cast<double>(sizes_.sequence) * kIdBytes) : Held();
  }
  if (place_.sharing.degree > 1 && by == "ids") {
    const bool apart = place_.sharing.zigzag || sizes_.rows > 1;
    return apart ? memory.take(static_cast<double>(sizes_.tokens()) * kIdBytes) : Held();
  }
  if (place_.sharing.degree > 1 && by == "counted_positions") {
    const double whole = static_cast<double>(sizes_.rows * sizes_.whole_sequence) * kIdBytes;
    Held counted;
    {
      const Held real = memory.take(whole);
      counted = memory.take(whole);
    }
    return sizes_.rows > 1 ? memory.take(static_cast<double>(sizes_.tokens()) * kIdBytes) : counted;
  }
  if (by == "counted_positions") {
    const double all = static_cast<double>(sizes_.tokens()) * kIdBytes;
    const Held real = memory.take(all);
    return memory.take(all);
  }
  if (!picks_ids(op, lookup, tokens_of, cut)) return {};
  const Held places = memory.take(tokens(tokens_of) * kIdBytes);
  return memory.take(tokens(tokens_of) * kIdBytes);
}

void OperationPrices::embedding(const Operation& op) {
  move((op.parameters.size() == 1 ? kLookupMoves : kLookupsMoves) * elements(op.out[0]));
  if (on_host_ && narrow()) return plain_embedding(op);
  std::vector<Held> ids;
  for (std::size_t i = 0; on_host_ && i < op.parameters.size(); ++i) ids.push_back(looked_up(op, i, op.out[0], false));
  value(op.out[0]) = take(op.out[0]);
}

void OperationPrices::plain_embedding(const Operation& op) {
  const double all = tokens(op.out[0]), width = channels(op.out[0]);
  std::vector<Held> ids;
  bool any_cut = false;
  for (std::size_t i = 0; i < op.parameters.size(); ++i) {
    ids.push_back(looked_up(op, i, op.out[0], false));
    any_cut = any_cut || is_cut_table(op, i);
  }
  for (std::size_t i = 0; i < op.parameters.size(); ++i) {
    const double count = num_ids(op, i, op.out[0], false);
    Held places = is_cut_table(op, i) ? memory.take(count * kIdBytes) : Held();
    Held rows = narrow_values(count * width);
    places.reset();
    const Held repeated = count < all ? narrow_values(all * width) : rows;
    if (count < all) memory.for_a_while(kRepeatBytes);
    if (any_cut) memory.for_a_while(mask_bytes(all));
    if (!value(op.out[0])) value(op.out[0]) = repeated;
  }
}

void OperationPrices::embedding_weight(const Operation& op) {
  const double count = elements(op.in[0]);
  moved += count * (element_ + 2 * gradient_);  // added to rows
  const auto lookup = static_cast<std::size_t>(op.attributes.integer("lookup"));
  // nn::device::serves_rows(); positions repeat from row to row.
  const bool served = kernels_ && gradient_ == wide_ && text_of(op, "by", lookup) == "ids";
  const bool cut = is_cut_table(op, 0);
  const Held ids = on_host_ ? looked_up(op, lookup, op.in[0], cut) : Held();
  const Held converted = gradient_ != element_ && !served ? memory.take(count * gradient_) : Held();
  if (on_host_ && gradient_ < wide_) return plain_embedding_weight(op, cut, num_ids(op, lookup, op.in[0], cut));
  if (cut && !served && !on_host_) memory.for_a_while(count * gradient_);  // words of others, copied
}

void OperationPrices::plain_embedding_weight(const Operation& op, bool cut, double ids) {
  const double all = tokens(op.in[0]), width = channels(op.in[0]);
  Held rows = ids < all ? memory.take(ids * width * gradient_) : Held();
  if (cut) {
    memory.for_a_while(mask_bytes(ids));
    const Held mask = memory.take(ids);
    rows = memory.take(ids * width * gradient_);
  }
  const Held places = cut ? memory.take(ids * kIdBytes) : Held();
  memory.for_a_while(width * wide_);  // a row
}

}  // namespace orthant
