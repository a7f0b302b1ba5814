#include "orthant/base/error_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <new>
#include <string_view>
#include <system_error>

#include "orthant/base/error.h"
#include "orthant/base/printable.h"
#include "orthant/base/regular_file.h"

namespace orthant {
namespace {

constexpr int kDataExitCode = 4;
constexpr const char* kMoreMemory =
    "use a smaller model, batch or sequence, or give the process more memory (ulimit -v, the limit of its container)";

bool is_of_system(const std::error_code& code) {
  return code.category() == std::generic_category() || code.category() == std::system_category();
}

ErrorReport no_memory() {
  return {"out of memory", kMoreMemory, kDataExitCode, ENOMEM};
}

// libtorch's allocators say so in their text only.
bool tells_of_memory(std::string_view what) {
  constexpr std::string_view kTexts[] = {"can't allocate memory", "out of memory", "CUBLAS_STATUS_ALLOC_FAILED",
                                         "CUDNN_STATUS_ALLOC_FAILED"};
  return std::ranges::any_of(kTexts, [&](auto text) { return what.find(text) != std::string_view::npos; });
}

ErrorReport of_system(const std::system_error& error) {
  const int number = is_of_system(error.code()) ? error.code().value() : 0;
  auto remedy = remedy_for_errno({}, number);
  if (number == EAGAIN) remedy = "raise the limit on processes and threads (ulimit -u), or use fewer threads";
  return {error.what(), std::move(remedy), kDataExitCode, number};
}

}  // namespace

bool is_out_of_memory(const std::exception& error) {
  if (dynamic_cast<const Error*>(&error) != nullptr) return false;
  if (const auto* system = dynamic_cast<const std::system_error*>(&error)) {
    return is_of_system(system->code()) && system->code().value() == ENOMEM;
  }
  return dynamic_cast<const std::bad_alloc*>(&error) != nullptr || tells_of_memory(error.what());
}

ErrorReport report_of(const std::exception& error) {
  if (const auto* ours = dynamic_cast<const Error*>(&error)) {
    const auto* io = dynamic_cast<const IoError*>(ours);
    return {ours->message(), ours->remedy(), ours->exit_code(), io != nullptr ? io->error_number() : 0};
  }
  if (const auto* files = dynamic_cast<const std::filesystem::filesystem_error*>(&error)) {
    return {fmt::format("{}: {}", files->path1().string(), files->code().message()),
            remedy_for_errno(files->path1(), files->code().value()), kDataExitCode, files->code().value()};
  }
  if (is_out_of_memory(error)) return no_memory();
  if (const auto* system = dynamic_cast<const std::system_error*>(&error)) return of_system(*system);
  return {error.what(), "", 70};
}

std::string report_text(const std::exception& error, const std::string& prefix) {
  const auto report = report_of(error);
  const auto* ours = dynamic_cast<const Error*>(&error);
  auto text = ours != nullptr ? std::string(ours->what()) : report.message;
  if (ours == nullptr && !report.remedy.empty()) text += "\n  fix: " + report.remedy;
  if (ours != nullptr && ours->exit_code() == 70) text += "\n  at " + short_location(ours->where());
  return prefix + printable(text, /*keep_lines=*/true) + '\n';
}

}  // namespace orthant
