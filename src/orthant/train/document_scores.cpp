#include "orthant/train/document_scores.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "orthant/base/error.h"

namespace orthant {

double DocumentScore::loss() const {
  return weight > 0 ? loss_sum / weight : std::numeric_limits<double>::quiet_NaN();
}

double DocumentScore::perplexity() const {
  return std::exp(loss());
}

void DocumentScores::tell_before(std::int64_t document) {
  while (current_.document < document) {
    take_(current_);
    current_ = {.document = current_.document + 1};
  }
}

void DocumentScores::add(std::int64_t document, double loss_sum, double weight) {
  if (document < current_.document || document >= documents_) {
    throw InternalError(
        fmt::format("a window of document {} after one of {}, of {}", document, current_.document, documents_));
  }
  tell_before(document);
  current_.loss_sum += loss_sum;
  current_.weight += weight;
}

void DocumentScores::finish() {
  tell_before(documents_);
}

}  // namespace orthant
