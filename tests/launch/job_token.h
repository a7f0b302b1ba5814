// The token that tests of several launchers share. It is made anew where it is needed: forked processes inherit none.
#pragma once

#include <memory>
#include <string>

#include "orthant/launch/token.h"

namespace orthant::launch {

inline const std::string kTestDigits = "00112233445566778899aabbccddeeff0123456789abcdefFEDCBA9876543210";

inline Membership with_token(const std::string& digits = kTestDigits) {
  return {std::make_shared<const Token>(Token::parse(digits, "test"))};
}

inline Membership without_token() {
  return {.token = nullptr, .open = true};
}

}  // namespace orthant::launch
