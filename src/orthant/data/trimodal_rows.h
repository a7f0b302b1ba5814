// The content of one table file in memory, as TrimodalTable keeps it. Internal to the trimodal table's files.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "orthant/data/trimodal_table.h"

namespace orthant {

// Token ids of many texts, end to end.
class RaggedIds {
 public:
  void add(std::span<const std::int32_t> ids) {
    ids_.insert(ids_.end(), ids.begin(), ids.end());
    ends_.push_back(static_cast<std::int64_t>(ids_.size()));
  }

  std::int64_t length(std::int64_t row) const { return end(row) - end(row - 1); }
  std::span<const std::int32_t> operator[](std::int64_t row) const {
    return {ids_.data() + end(row - 1), static_cast<std::size_t>(length(row))};
  }
  void shrink() {
    ids_.shrink_to_fit();
    ends_.shrink_to_fit();
  }

 private:
  std::int64_t end(std::int64_t row) const { return row < 0 ? 0 : ends_[static_cast<std::size_t>(row)]; }

  std::vector<std::int32_t> ids_;
  std::vector<std::int64_t> ends_;
};

struct TextRows {
  RaggedIds ids;
  std::int64_t length = 0;  // that rows are padded to
  std::int64_t pad = 0;
};

struct TrimodalTable::Rows {
  TextRows primary;
  TextRows secondary;
  std::int64_t columns = 0;
  std::vector<float> numbers;  // standardised, row-major
  std::vector<std::int32_t> labels;
  std::vector<std::int64_t> file_rows;
  std::int64_t classes = 0;
};

}  // namespace orthant
