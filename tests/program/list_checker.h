// Walks the lists of a program as the runtime would, with values that are there, on their way or gone, and says what is
// wrong with them.
#pragma once

#include <string>
#include <vector>

#include "orthant/program/program.h"

namespace orthant::test {

// Empty for a program that can run: every value is made before it is read, read before it is freed, freed once; nothing
// is read while it travels or after it was overwritten; at a list's end there is what the program declares; every
// trainable parameter gets its gradient once; W reads no parameter.
std::vector<std::string> problems(const Program& program);

}  // namespace orthant::test
