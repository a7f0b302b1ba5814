#include "orthant/program/exchanged.h"

#include <algorithm>

#include "orthant/base/index.h"

namespace orthant {
namespace {

constexpr std::int64_t kLossSums = 3;

// Of an operation that sums numbers per token of the loss itself, in so many chunks; 0: it does not.
std::int64_t loss_chunks(const Operation& operation, std::int64_t tokens) {
  const bool loss = operation.name == "cross_entropy" || operation.name.starts_with("head_loss");
  if (!loss || operation.name.ends_with("_back") || !operation.attributes.flag("cut")) return 0;
  if (operation.name == "cross_entropy") return 1;
  const std::int64_t rows = operation.attributes.integer("chunk_rows");
  return std::max<std::int64_t>(1, tokens / rows + (tokens % rows > 0 ? 1 : 0));
}

Exchanged::Entry& entry_of(Exchanged& total, ExchangeSpec::Kind kind) {
  switch (kind) {
    case ExchangeSpec::Kind::sum:
      return total.sum;
    case ExchangeSpec::Kind::gather:
      return total.gather;
    default:
      return total.scatter;
  }
}

}  // namespace

void Exchanged::add(const Exchanged& other, std::int64_t times) {
  for (const auto entry : {&Exchanged::sum, &Exchanged::gather, &Exchanged::scatter, &Exchanged::all_to_all,
                           &Exchanged::sent, &Exchanged::received}) {
    (this->*entry).add(other.*entry, times);
  }
}

std::int64_t told_choice_bytes(const Program& program, const Operation& operation) {
  if (operation.name != "route" || operation.attributes.integer("capacity") == 0) return 0;
  const std::int64_t per_token = program.values[to_index(operation.out[1])].at.dims.back().factor;
  return per_token * bytes_of(DType::int64);
}

std::int64_t router_count_bytes(const Program& program, const Operation& operation, const UnitSizes& sizes) {
  if (operation.name != "router_loss") return 0;
  const std::int64_t experts = program.values[to_index(operation.in.front())].at.dims.back().factor;
  return sizes.rows * (experts + 1) * bytes_of(statistics_dtype(sizes.compute));
}

Exchanged exchanged(const Program& program, const std::vector<Operation>& list, const UnitSizes& sizes,
                    DType loss_statistics) {
  Exchanged total;
  for (const auto& operation : list) {
    if (operation.name == "start") {
      if (operation.exchange->moves_rows()) continue;
      entry_of(total, operation.exchange->kind).add(payload_bytes(program, operation, sizes));
    } else if (const std::int64_t chunks = loss_chunks(operation, sizes.tokens()); chunks > 0) {
      total.sum.add({kLossSums * chunks, kLossSums * sizes.tokens() * bytes_of(loss_statistics)});
    } else if (operation.name == "router_loss" && program.values[to_index(operation.in[1])].at.cuts_tokens()) {
      total.sum.add(router_count_bytes(program, operation, sizes));
    } else if (const auto bytes = told_choice_bytes(program, operation);
               bytes > 0 && program.values[to_index(operation.out[1])].at.cuts_tokens()) {
      total.sum.add(sizes.tokens() * bytes);
    }
  }
  return total;
}

}  // namespace orthant
