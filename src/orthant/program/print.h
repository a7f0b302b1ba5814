// A program as people read it: one line per operation, and what is kept with its bytes for a microbatch. Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "orthant/program/exchanged.h"

namespace orthant {

// Of a value: "[tokens/tp, 64]" has a rank's own tokens of 64 channels, "+tp" a summand over tp.
std::string to_string(const ValuePlace& place);

// One operation: "normed, statistics = rms_norm(hidden; norm1.weight)", "start gather tp: normed -> normed.all".
std::string to_string(const Program& program, const Operation& operation);

// Inputs, outputs, the lists with what each exchanges, kept and deferred values. `split`: backward of inputs and of
// weights, as a schedule runs them that makes them apart; otherwise both at once.
std::string to_string(const Program& program, const UnitSizes& sizes, bool split = false);

// The same for programs: see docs/programs.md.
nlohmann::ordered_json program_document(const Program& program, const UnitSizes& sizes);

}  // namespace orthant
