// The four kinds of error. Each carries what was asked and found (the message), what to set instead (the remedy), the
// rank it happened on when that is known, and the place in the source. Only the command line turns them into text and
// exit codes.
#pragma once

#include <source_location>
#include <stdexcept>
#include <string>

namespace orthant {

// What a thrower may add to the message.
struct ErrorDetails {
  std::string remedy = {};  // what to set or do; shown on a line of its own
  int rank = -1;            // global rank; -1 when the error belongs to no rank
};

class Error : public std::runtime_error {
 public:
  Error(std::string message, ErrorDetails details, int exit_code, std::source_location where);

  const std::string& message() const { return message_; }
  const std::string& remedy() const { return details_.remedy; }
  int rank() const { return details_.rank; }
  int exit_code() const { return exit_code_; }
  const std::source_location& where() const { return where_; }

 private:
  std::string message_;
  ErrorDetails details_;
  int exit_code_;
  std::source_location where_;
};

// Wrong use or configuration: the user can fix it by another flag or value.
class ConfigError : public Error {
 public:
  explicit ConfigError(std::string message, ErrorDetails details = {},
                       std::source_location where = std::source_location::current())
      : Error(std::move(message), std::move(details), 2, where) {}
};

// A peer died, timed out, or disagrees about what to communicate.
class CommError : public Error {
 public:
  explicit CommError(std::string message, ErrorDetails details = {},
                     std::source_location where = std::source_location::current())
      : Error(std::move(message), std::move(details), 3, where) {}
};

// A file, data set or checkpoint that cannot be used.
class DataError : public Error {
 public:
  explicit DataError(std::string message, ErrorDetails details = {},
                     std::source_location where = std::source_location::current())
      : Error(std::move(message), std::move(details), 4, where) {}
};

// A defect of ours: a broken assumption inside the program.
class InternalError : public Error {
 public:
  explicit InternalError(std::string message, ErrorDetails details = {},
                         std::source_location where = std::source_location::current())
      : Error(std::move(message), std::move(details), 70, where) {}
};

// The last two folders of a source path and the line, as errors show it: "comm/group.cpp:42".
std::string short_location(const std::source_location& where);

}  // namespace orthant
