// The text of the error that an action throws, for tests on what users read.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "orthant/base/error.h"

namespace orthant {

// The full text, remedy included; a failure when nothing or another kind of error is thrown.
template <typename Kind, typename Action>
std::string error_text(const Action& action) {
  try {
    action();
  } catch (const Kind& error) {
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another kind of error: " << error.what();
    return "";
  }
  ADD_FAILURE() << "no error";
  return "";
}

}  // namespace orthant
