// What a client is told when a request is not answered: a status and OpenAI's JSON document.
#pragma once

#include <stdexcept>
#include <string>

#include "orthant/http/message.h"

namespace orthant {

struct ApiError : std::runtime_error {
  ApiError(int code_of_http, std::string text, std::string of_parameter = {}, std::string with_code = {})
      : std::runtime_error(text),
        status(code_of_http),
        parameter(std::move(of_parameter)),
        code(std::move(with_code)) {}

  int status;
  std::string parameter;  // of the request that is wrong; may be empty
  std::string code;       // a word for programs; may be empty
};

// {"error": {"message", "type", "param", "code"}}
std::string error_document(const ApiError& error);
http::Answer error_answer(const ApiError& error);

}  // namespace orthant
