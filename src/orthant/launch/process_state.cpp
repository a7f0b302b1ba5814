#include "orthant/launch/process_state.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <charconv>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

namespace orthant::launch {
namespace {

// Of the words in /proc/PID/stat after the name, which are the third and all further fields.
constexpr size_t kState = 0;
constexpr size_t kFlags = 6;
constexpr size_t kExitCode = 49;

// Empty when there is no such process or thread.
std::vector<std::string> words_of(const std::string& process) {
  std::ifstream file(fmt::format("/proc/{}/stat", process));
  const std::string line((std::istreambuf_iterator<char>(file)), {});
  const auto name_end = line.rfind(')');  // the name may hold anything, also spaces and parentheses
  if (name_end == std::string::npos) return {};
  std::istringstream words(line.substr(name_end + 1));
  return {std::istream_iterator<std::string>(words), {}};
}

std::uint64_t number_in(const std::vector<std::string>& words, size_t field) {
  std::uint64_t number = 0;
  if (field < words.size()) std::from_chars(words[field].data(), words[field].data() + words[field].size(), number);
  return number;
}

// Sent to the whole process (ShdPnd) or, with `own_too`, to the thread alone (SigPnd), as exit() does to all others.
bool awaits_sigkill(const std::string& process, bool own_too) {
  std::ifstream file(fmt::format("/proc/{}/status", process));
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("ShdPnd:\t") && !(own_too && line.starts_with("SigPnd:\t"))) continue;
    std::uint64_t signals = 0;
    std::from_chars(line.data() + 8, line.data() + line.size(), signals, 16);
    if ((signals >> (SIGKILL - 1) & 1) != 0) return true;
  }
  return false;
}

// False when that cannot be read, as where this process may open no more files.
bool runs_no_more(const std::string& thread) {
  constexpr std::uint64_t kExiting = 0x4;  // PF_EXITING
  const auto words = words_of(thread);
  if (words.empty()) return false;
  if (words[kState] == "Z" || words[kState] == "X") return true;
  return (number_in(words, kFlags) & kExiting) != 0 || awaits_sigkill(thread, /*own_too=*/true);
}

// What waitid() reports, which stays to be reported: si_pid is 0 as long as that is nothing. Nothing when this process
// has no such child.
std::optional<siginfo_t> look_at(pid_t child) {
  siginfo_t info{};
  if (waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT) != 0) return std::nullopt;
  return info;
}

}  // namespace

char process_state(pid_t pid) {
  const auto words = words_of(std::to_string(pid));
  return words.empty() ? 'X' : words[kState][0];
}

std::optional<int> reported_end(pid_t child) {
  const auto info = look_at(child);
  if (!info || info->si_pid != child) return std::nullopt;
  if (info->si_code == CLD_EXITED) return W_EXITCODE(info->si_status, 0);
  return info->si_status | (info->si_code == CLD_DUMPED ? WCOREFLAG : 0);
}

std::optional<int> unreported_end(pid_t child) {
  namespace fs = std::filesystem;
  const auto info = look_at(child);
  if (!info || info->si_pid == child) return std::nullopt;
  const auto process = std::to_string(child);
  const auto task = process + "/task/";
  if (!runs_no_more(task + process)) return std::nullopt;  // so it mostly is, and no list of threads is made
  std::error_code error;
  for (fs::directory_iterator threads("/proc/" + task, error), end; !error && threads != end;
       threads.increment(error)) {
    if (!runs_no_more(task + threads->path().filename().string())) return std::nullopt;
  }
  const auto words = words_of(process);
  if (error || words.empty()) return std::nullopt;
  const auto status = static_cast<int>(number_in(words, kExitCode));
  // 0 is also what those see who may not read it.
  const bool killed = words.size() <= kExitCode || (status == 0 && awaits_sigkill(process, /*own_too=*/false));
  return killed ? SIGKILL : status;
}

}  // namespace orthant::launch
