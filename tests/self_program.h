// A program that a test executes and that lies in the test's own file: /proc/self/exe with its name as the first word.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace orthant::test {

using SelfProgram = std::function<int(const std::vector<std::string>& words)>;  // returns the exit code

inline std::map<std::string, SelfProgram>& self_programs() {
  static std::map<std::string, SelfProgram> programs;
  return programs;
}

// For a constant at namespace scope: const bool kKnown = add_self_program("speak", speak);
inline bool add_self_program(const std::string& name, SelfProgram program) {
  return self_programs().emplace(name, std::move(program)).second;
}

}  // namespace orthant::test
