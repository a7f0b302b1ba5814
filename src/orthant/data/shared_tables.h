// Tables that one rank of a host has read, laid out in one piece of memory, so that its other ranks need neither read
// the file nor hold its rows again. Who makes the memory and hands it over is the caller's business.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "orthant/data/classifier_table.h"

namespace orthant {

// What share_tables() will fill.
std::size_t shared_size(const ClassifierTables& tables);

// Copies rows and parts into `memory`, of shared_size(); gives the text that opens them. The memory must be aligned to
// 64 bytes.
std::string share_tables(const ClassifierTables& tables, std::span<std::byte> memory);

// The same tables, their rows in `memory`, which `owner` keeps alive. InternalError for a text that does not fit.
ClassifierTables open_shared_tables(const std::string& text, std::span<const std::byte> memory,
                                    std::shared_ptr<const void> owner);

}  // namespace orthant
