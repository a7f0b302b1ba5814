// Any exception as the program tells of it at its end: text that is fit for a terminal, and the exit code. What the
// system refused (memory, descriptors, a path) is no defect of ours, whoever throws it.
#pragma once

#include <exception>
#include <string>

namespace orthant {

struct ErrorReport {
  std::string message;
  std::string remedy;
  int exit_code = 70;
  int error_number = 0;  // as errno has it, where the system refused something
};

// Whether the system, libtorch or a card had no memory left. Errors of ours say so themselves and are none.
bool is_out_of_memory(const std::exception& error);

ErrorReport report_of(const std::exception& error);

// "orthant: error: TEXT\n  fix: REMEDY\n" for the prefix "orthant: error: ". Text of files and peers is escaped; the
// place in the source follows for a defect of ours.
std::string report_text(const std::exception& error, const std::string& prefix);

}  // namespace orthant
