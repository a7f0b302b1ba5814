// The content of one table file in memory, as ClassifierTable keeps it. Internal to the files of such tables.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "orthant/data/classifier_table.h"

namespace orthant {

// Elements that this process has read, or that lie in memory which another one filled.
template <class Element>
struct RowArray {
  std::vector<Element> own;
  std::span<const Element> shared;

  std::span<const Element> all() const { return shared.data() != nullptr ? shared : std::span<const Element>(own); }
};

// Token ids of many texts, end to end.
struct RaggedIds {
  RowArray<std::int32_t> ids;
  RowArray<std::int64_t> ends;

  void add(std::span<const std::int32_t> more) {
    ids.own.insert(ids.own.end(), more.begin(), more.end());
    ends.own.push_back(static_cast<std::int64_t>(ids.own.size()));
  }

  std::int64_t length(std::int64_t row) const { return end(row) - end(row - 1); }
  std::span<const std::int32_t> operator[](std::int64_t row) const {
    return ids.all().subspan(static_cast<std::size_t>(end(row - 1)), static_cast<std::size_t>(length(row)));
  }
  void shrink() {
    ids.own.shrink_to_fit();
    ends.own.shrink_to_fit();
  }

 private:
  std::int64_t end(std::int64_t row) const { return row < 0 ? 0 : ends.all()[static_cast<std::size_t>(row)]; }
};

struct TextRows {
  RaggedIds ids;
  std::int64_t length = 0;  // that rows are padded to
  std::int64_t pad = 0;
};

struct ClassifierTable::Rows {
  TextRows primary;
  TextRows secondary;
  std::int64_t columns = 0;
  RowArray<float> numbers;  // standardised, row-major
  RowArray<std::int32_t> labels;
  RowArray<std::int64_t> file_rows;
  std::int64_t classes = 0;
  std::shared_ptr<const void> memory = {};  // of shared elements
};

}  // namespace orthant
