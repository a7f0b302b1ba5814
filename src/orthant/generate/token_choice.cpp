#include "orthant/generate/token_choice.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <span>

#include "orthant/generate/device_choice.h"

namespace orthant {
namespace {

template <class T>
std::span<const T> row_of(const at::Tensor& logits, std::int64_t row) {
  return {logits.const_data_ptr<T>() + row * logits.size(1), static_cast<std::size_t>(logits.size(1))};
}

}  // namespace

// In the order of the parts with an answer.
std::vector<TokenChoice::Row> TokenChoice::rows_of(const StepOrder& order) {
  for (const auto sequence : order.ended) choosers_.erase(sequence);
  std::vector<Row> rows;
  std::size_t begun = 0;
  for (const auto& part : order.parts) {
    if (part.first) choosers_.insert_or_assign(part.sequence, TokenChooser(order.begun.at(begun++)));
    TokenChooser& chooser = choosers_.at(part.sequence);
    chooser.see(part.tokens);
    if (part.answer >= 0) rows.push_back({&chooser, part.answer});
  }
  return rows;
}

// On the host, from their logits.
void TokenChoice::choose_on_host(const at::Tensor& logits, const std::vector<Row>& rows,
                                 const std::vector<std::int64_t>& which, std::vector<GeneratedToken>& tokens) {
  const bool all = which.size() == rows.size();
  const auto index = [&] { return at::tensor(which, at::kLong).to(logits.device()); };
  at::Tensor wide = all ? logits : logits.index_select(0, index());
  wide = wide.to(wide.scalar_type() == at::kDouble ? at::kDouble : at::kFloat).cpu().contiguous();
  for (std::size_t i = 0; i < which.size(); ++i) {
    const auto row = static_cast<std::size_t>(which[i]);
    const auto place = static_cast<std::int64_t>(i);
    const auto& [chooser, answer] = rows[row];
    tokens[row] = wide.scalar_type() == at::kDouble ? chooser->choose(row_of<double>(wide, place), answer)
                                                    : chooser->choose(row_of<float>(wide, place), answer);
  }
}

std::vector<GeneratedToken> TokenChoice::choose(const StepOrder& order, const at::Tensor& all_logits) {
  const auto rows = rows_of(order);
  std::vector<GeneratedToken> tokens(rows.size());
  if (rows.empty()) return tokens;
  const at::Tensor logits = all_logits.narrow(0, 0, static_cast<std::int64_t>(rows.size()));
  std::vector<ChoiceRow> asked;
  for (const auto& row : rows) {
    const SamplingParams& params = row.chooser->params();
    asked.push_back({device_chooses(params) ? &params : nullptr, row.answer});
  }
  const bool any = std::ranges::any_of(asked, [](const ChoiceRow& row) { return row.params != nullptr; });
  std::vector<std::optional<std::int64_t>> chosen(rows.size());
  if (any && serves_choice(logits)) chosen = choose_on_device(logits, asked);
  std::vector<std::int64_t> left;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (!chosen[i]) left.push_back(static_cast<std::int64_t>(i));
    tokens[i].token = chosen[i].value_or(0);
  }
  if (!left.empty()) choose_on_host(logits, rows, left, tokens);
  return tokens;
}

}  // namespace orthant
