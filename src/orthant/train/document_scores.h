// The scores of documents from those of their windows, which come one after the other: every document of the file gets
// its turn, also one that no window is of. Local.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

namespace orthant {

struct DocumentScore {
  std::int64_t document = 0;  // of the file, from 0
  double loss_sum = 0;
  double weight = 0;  // tokens that were predicted

  double loss() const;        // NaN without any
  double perplexity() const;  // NaN without any
};

class DocumentScores {
 public:
  DocumentScores(std::int64_t documents, std::function<void(const DocumentScore&)> take)
      : documents_(documents), take_(std::move(take)) {}

  // A window of `document`, never of one before the last.
  void add(std::int64_t document, double loss_sum, double weight);

  // Tells the rest.
  void finish();

 private:
  void tell_before(std::int64_t document);

  std::int64_t documents_;
  std::function<void(const DocumentScore&)> take_;
  DocumentScore current_;
};

}  // namespace orthant
