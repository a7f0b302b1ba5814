// A table that is read once on each host: the first rank there parses and tokenizes it, and the other ranks map its
// memory.
#pragma once

#include "orthant/train/file_data.h"

namespace orthant {

struct TableOfHost {
  ReadTable table;
  int reader = 0;  // the rank that read it
};

// What is wrong with the table is thrown by all ranks, with the rank that found it. A rank that may not open the
// reader's memory reads the table itself. Collective over the world.
TableOfHost read_table_once(const RunConfig& config, const Classifier& model, const ControlGroup& ranks);

}  // namespace orthant
