// The text of the error a call throws.
#pragma once

#include <gtest/gtest.h>

#include <string>

namespace orthant::launch {

template <typename Kind, typename Call>
std::string message_of(const Call& call) {
  try {
    call();
  } catch (const Kind& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

}  // namespace orthant::launch
