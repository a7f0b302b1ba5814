// What an expression throws, for tests on the texts of errors.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "orthant/base/error.h"

namespace orthant::test {

// Runs `action`, which must throw a `Kind`, and gives its message and remedy on two lines.
template <class Kind = ConfigError, class Action>
std::string thrown_text(const Action& action) {
  try {
    action();
  } catch (const Kind& error) {
    return error.message() + "\n" + error.remedy();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another kind of error was thrown: " << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

}  // namespace orthant::test
