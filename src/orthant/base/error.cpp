#include "orthant/base/error.h"

#include <string_view>
#include <utility>

namespace orthant {
namespace {

std::string full_text(const std::string& message, const ErrorDetails& details) {
  std::string text;
  if (details.rank >= 0) text += "rank " + std::to_string(details.rank) + ": ";
  text += message;
  if (!details.remedy.empty()) text += "\n  fix: " + details.remedy;
  return text;
}

}  // namespace

Error::Error(std::string message, ErrorDetails details, int exit_code, std::source_location where)
    : std::runtime_error(full_text(message, details)),
      message_(std::move(message)),
      details_(std::move(details)),
      exit_code_(exit_code),
      where_(where) {}

std::string short_location(const std::source_location& where) {
  std::string_view file = where.file_name();
  const auto last = file.rfind('/');
  if (last != std::string_view::npos) {
    const auto previous = file.rfind('/', last - 1);
    if (previous != std::string_view::npos) file.remove_prefix(previous + 1);
  }
  return std::string(file) + ":" + std::to_string(where.line());
}

}  // namespace orthant
