#include "orthant/serve/api/api_error.h"

#include <nlohmann/json.hpp>

#include "orthant/base/json_text.h"

namespace orthant {
namespace {

const char* type_of(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 429:
      return "rate_limit_error";
    default:
      return status >= 500 ? "server_error" : "invalid_request_error";
  }
}

}  // namespace

std::string error_document(const ApiError& error) {
  using Json = nlohmann::ordered_json;
  const auto or_null = [](const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); };
  return json_text(Json{{"error",
                         {{"message", error.what()},
                          {"type", type_of(error.status)},
                          {"param", or_null(error.parameter)},
                          {"code", or_null(error.code)}}}});
}

http::Answer error_answer(const ApiError& error) {
  http::Answer answer{error.status, {{"Content-Type", "application/json"}}, error_document(error)};
  if (error.status == 401) answer.headers.emplace_back("WWW-Authenticate", "Bearer");
  if (error.status == 429 || error.status == 503) answer.headers.emplace_back("Retry-After", "1");
  return answer;
}

}  // namespace orthant
