#include "orthant/train/table_findings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "orthant/text/shown.h"

namespace orthant {
namespace {

// In quotes where a blank at an end would not be seen.
std::string visible(const std::string& name) {
  const bool plain = !name.empty() && name.front() != ' ' && name.back() != ' ';
  return plain ? name : shown(name);
}

std::string joined(const std::vector<std::string>& names) {
  std::vector<std::string> texts;
  std::ranges::transform(names, std::back_inserter(texts), visible);
  return fmt::format("{}", fmt::join(texts, ", "));
}

std::string label_text(const TableLook& look) {
  constexpr std::size_t kShownLabels = 8;
  std::vector<std::string> labels;
  for (std::size_t i = 0; i < std::min(look.labels.size(), kShownLabels); ++i) {
    labels.push_back(fmt::format("{} ({})", visible(look.labels[i].text), look.labels[i].count));
  }
  return fmt::format("{}: {} classes: {}{}", visible(look.label), look.labels.size(), fmt::join(labels, ", "),
                     look.labels.size() > labels.size() ? ", ..." : "");
}

// Of columns that are neither all numbers nor all words.
std::string cells_text(const TableLook& look) {
  std::vector<std::string> texts;
  for (const auto& column : look.worded_numbers) {
    texts.push_back(fmt::format("{}: {}; such rows are left out (data.bad_rows skip)", visible(column.name),
                                describe_stray_words(column)));
  }
  for (const auto& column : look.numbered_words) {
    texts.push_back(
        fmt::format("{}: {}; too many for a column of numbers", visible(column.name), describe_stray_words(column)));
  }
  for (const auto& column : look.wordless) {
    texts.push_back(fmt::format("{}: neither numbers nor texts, such as {} in line {}; write numbers like -2.5 or 1e3",
                                visible(column.name), shown(column.first_word.text), column.first_word.line));
  }
  return fmt::format("{}", fmt::join(texts, "; "));
}

}  // namespace

std::vector<std::pair<std::string, std::string>> table_findings(const TableLook& look, const std::string& path) {
  std::vector<std::pair<std::string, std::string>> found;
  const auto bad = look.bad_rows == 0
                       ? std::string()
                       : fmt::format(", and {} bad ones or without label, which are left out", look.bad_rows);
  found.emplace_back("data", fmt::format("{}: a table of {} rows{}", path, look.rows, bad));
  found.emplace_back("label", label_text(look));
  if (!look.typos.empty()) {
    found.emplace_back("misspelt?", fmt::format("{}: if so, mend the table; else each is a class of its own",
                                                describe_typos(look.typos)));
  }
  const bool two = !look.secondary_text.empty();
  found.emplace_back("texts", fmt::format("{}{}; 99 of 100 have at most {}{} tokens", visible(look.primary_text),
                                          two ? " and " + visible(look.secondary_text) : "", look.primary_tokens,
                                          two ? fmt::format(" and {}", look.secondary_tokens) : ""));
  found.emplace_back("numbers", look.numbers.empty() ? "none" : joined(look.numbers));
  if (auto cells = cells_text(look); !cells.empty()) found.emplace_back("cells", std::move(cells));
  if (!look.unused.empty()) found.emplace_back("unused", joined(look.unused));
  return found;
}

}  // namespace orthant
