// Padding to the longest row of a microbatch instead of to the sequence length: columns that are padding in every row
// are cut off. Decided from fields on the host alone, which every rank of a replica has, so all know the same lengths.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "orthant/data/batch.h"

namespace orthant {

// Fields that belong together, and per row how many of its columns count; names as needed_columns() lists them.
struct PaddedFields {
  std::vector<std::string> names;
  std::vector<std::int64_t> lengths;
};
std::vector<PaddedFields> padded_fields(const Fields& fields);

// Columns (dim 1) to keep, by field, of those that need fewer than they have; at least 1. What belongs together:
// - "P_mask" [rows, length] with "P_ids" and "P_types" of that length: up to the last column where any row is true;
// - "attention_mask" [rows, length] with "input_ids", "token_type_ids", "position_ids", "document_starts" and "labels"
// of
//   that length: up to the last column with a true or a target;
// - without a mask, "input_ids", "document_starts" and "labels" of one length [rows, length]: up to the last column
// with a target. That is
//   exact for a model in which no position sees later ones.
// Lengths are rounded up to `multiple` where there is room. Fields on a device are not looked at.
std::map<std::string, std::int64_t> needed_columns(const Fields& fields, std::int64_t multiple = 1);

// A multiple of `least` that leaves rows of up to `longest` columns eight lengths: for devices on which each length
// costs a recording of its own.
std::int64_t step_of_few_lengths(std::int64_t longest, std::int64_t least);

// Cuts them: views.
void trim_padding(Fields& fields, std::int64_t multiple = 1);

}  // namespace orthant
