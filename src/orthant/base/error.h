// The four kinds of error, and three special cases of the third. Each carries what was asked and found (the message),
// what to set instead (the remedy), the rank it happened on when that is known, and the place in the source. Only the
// command line turns them into text and exit codes.
#pragma once

#include <source_location>
#include <stdexcept>
#include <string>
#include <utility>

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

// The system refused an operation on a file or folder. Nothing is known of what it holds: only a DataError that is no
// IoError says that contents are wrong.
class IoError : public DataError {
 public:
  IoError(std::string message, int error_number, ErrorDetails details = {},
          std::source_location where = std::source_location::current())
      : DataError(std::move(message), std::move(details), where), error_number_(error_number) {}

  int error_number() const { return error_number_; }  // as errno has it

 private:
  int error_number_;
};

// Contents that are whole, but not proved to come from who holds the key.
class AuthenticityError : public DataError {
 public:
  explicit AuthenticityError(std::string message, ErrorDetails details = {},
                             std::source_location where = std::source_location::current())
      : DataError(std::move(message), std::move(details), where) {}
};

// Contents of another version of the format: nothing is known of whether they are whole.
class VersionError : public DataError {
 public:
  explicit VersionError(std::string message, ErrorDetails details = {},
                        std::source_location where = std::source_location::current())
      : DataError(std::move(message), std::move(details), where) {}
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
