#include "orthant/graph/context.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

namespace orthant {
namespace {

const std::vector<std::string> kWays = {"ring", "all_to_all", "gather"};

}  // namespace

std::string_view context_way_name(ContextWay way) {
  return kWays[static_cast<std::size_t>(way)];
}

OwnPositions own_positions(std::int64_t sequence, const ContextSharing& sharing, int coordinate) {
  if (!sharing.zigzag) {
    const Range own = balanced_range(sequence, sharing.degree, coordinate);
    return {sequence, {own, Range{own.end, own.end}}};
  }
  const int chunks = 2 * sharing.degree;
  return {sequence,
          {balanced_range(sequence, chunks, coordinate), balanced_range(sequence, chunks, chunks - 1 - coordinate)}};
}

bool KeyRule::sees(Range queries, Range keys) const {
  if (queries.empty() || keys.empty()) return false;
  if (!causal) return true;
  const bool in_window = window == 0 || keys.end - 1 > queries.begin - window;
  return keys.begin <= queries.end - 1 && in_window;
}

std::array<bool, 2> seen_pieces(std::int64_t sequence, const ContextSharing& sharing, const KeyRule& rule, int holder,
                                int reader) {
  const OwnPositions keys = own_positions(sequence, sharing, holder);
  const OwnPositions queries = own_positions(sequence, sharing, reader);
  std::array<bool, 2> seen = {};
  for (std::size_t k = 0; k < 2; ++k) {
    seen.at(k) = rule.sees(queries.pieces[0], keys.pieces.at(k)) || rule.sees(queries.pieces[1], keys.pieces.at(k));
  }
  return seen;
}

std::int64_t seen_positions(std::int64_t sequence, const ContextSharing& sharing, const KeyRule& rule, int holder,
                            int reader) {
  const OwnPositions keys = own_positions(sequence, sharing, holder);
  const auto seen = seen_pieces(sequence, sharing, rule, holder, reader);
  return (seen[0] ? keys.pieces[0].size() : 0) + (seen[1] ? keys.pieces[1].size() : 0);
}

std::int64_t most_own_positions(std::int64_t sequence, const ContextSharing& sharing) {
  std::int64_t most = 0;
  for (int c = 0; c < sharing.degree; ++c) most = std::max(most, own_positions(sequence, sharing, c).size());
  return most;
}

std::int64_t least_sequence(const ContextSharing& sharing) {
  return std::int64_t{sharing.zigzag ? 2 : 1} * sharing.degree;
}

std::string short_rows_text(std::int64_t sequence, const ContextSharing& sharing) {
  return fmt::format("rows of {} tokens over cp={}: a chunk of them would have none", sequence, sharing.degree);
}

std::string short_rows_remedy(const ContextSharing& sharing) {
  const std::string other = sharing.zigzag ? ", or parallel.context=all_to_all with one chunk for each rank" : "";
  return fmt::format("use rows of {} tokens or more, or a smaller cp{}", least_sequence(sharing), other);
}

}  // namespace orthant
