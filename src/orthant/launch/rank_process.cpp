#include "orthant/launch/rank_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <iostream>

#include "orthant/base/error.h"
#include "orthant/base/error_report.h"
#include "orthant/launch/signal_watch.h"

namespace orthant::launch {
namespace {

struct Pipe {
  Fd read_end;
  Fd write_end;
};

Pipe make_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    throw ConfigError(fmt::format("cannot make a pipe for a rank's output: {}", std::strerror(errno)),
                      {.remedy = "raise ulimit -n, or start fewer ranks"});
  }
  return {Fd(ends[0]), Fd(ends[1])};
}

void flush_everything() {
  std::cout.flush();
  std::clog.flush();
  std::fflush(nullptr);
}

void bind_to_cores(const std::vector<int>& cores) {
  if (cores.empty()) return;
  cpu_set_t* set = CPU_ALLOC(cores.back() + 1);
  const auto size = CPU_ALLOC_SIZE(cores.back() + 1);
  CPU_ZERO_S(size, set);
  for (const int core : cores) CPU_SET_S(core, size, set);
  sched_setaffinity(0, size, set);  // a refusal costs speed only
  CPU_FREE(set);
}

// Everything between fork and the rank's own work.
void become_rank(const SpawnOptions& options, pid_t launcher, const Pipe& output, const Pipe& errors) {
  setpgid(0, 0);
  SignalWatch::reset_in_child();
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != launcher) _exit(3);  // the launcher died before the line above
  const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  dup2(nothing, STDIN_FILENO);
  if (nothing > STDERR_FILENO) close(nothing);
  dup2(output.write_end.get(), STDOUT_FILENO);
  dup2(errors.write_end.get(), STDERR_FILENO);
  for (const int fd : options.close_in_child) close(fd);
  if (options.file_limit != nullptr) setrlimit(RLIMIT_NOFILE, options.file_limit);
  bind_to_cores(options.cores);
}

int run_guarded(const std::function<int()>& body) {
  try {
    return body();
  } catch (const std::exception& error) {
    const auto code = report_of(error).exit_code;
    const bool defect = code == 70 && dynamic_cast<const Error*>(&error) == nullptr;
    std::cerr << report_text(error, defect ? "error: unexpected exception: " : "error: ") << std::flush;
    return code;
  } catch (...) {
    std::cerr << "error: unexpected exception of an unknown type" << std::endl;
  }
  return 70;
}

// In the child `work` runs after the set-up and must not return.
RankProcess spawn(const SpawnOptions& options, const std::function<void()>& work) {
  Pipe output = make_pipe();
  Pipe errors = make_pipe();
  flush_everything();  // what is still buffered must not be written once more by every child
  const pid_t launcher = getpid();
  const pid_t pid = fork();
  if (pid < 0) {
    throw ConfigError(fmt::format("cannot start rank {}: {}", options.rank, std::strerror(errno)),
                      {.remedy = "raise ulimit -u, free memory, or start fewer ranks"});
  }
  if (pid == 0) {
    become_rank(options, launcher, output, errors);
    output = {};
    errors = {};
    work();
    _exit(70);
  }
  setpgid(pid, pid);  // as the child does: whoever comes first
  for (const Pipe* pipe : {&output, &errors}) fcntl(pipe->read_end.get(), F_SETFL, O_NONBLOCK);
  return {options.rank, pid, std::move(output.read_end), std::move(errors.read_end)};
}

std::vector<char*> as_pointers(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (const auto& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

RankProcess fork_rank(const SpawnOptions& options, const std::function<int()>& body) {
  return spawn(options, [&] {
    if (options.take_signals) options.take_signals();
    std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is an error of its writer
    SignalWatch::open_in_child(SignalWatch::Stops::kOpen);
    const int code = run_guarded(body);
    flush_everything();
    _exit(code == (code & 0xff) ? code : 70);  // the system keeps eight bits: 256 would read as success
  });
}

RankProcess execute_rank(const SpawnOptions& options, const std::vector<std::string>& argv,
                         const std::vector<std::string>& variables) {
  auto arguments = as_pointers(argv);
  auto environment = as_pointers(variables);
  Pipe failure = make_pipe();  // closed by a successful exec, else carries errno
  RankProcess process = spawn(options, [&] {
    SignalWatch::open_in_child(options.take_signals ? SignalWatch::Stops::kBlocked : SignalWatch::Stops::kOpen);
    for (const int fd : options.keep_in_child) fcntl(fd, F_SETFD, 0);
    execvpe(arguments[0], arguments.data(), environment.data());
    const int error = errno;
    [[maybe_unused]] const auto written = write(failure.write_end.get(), &error, sizeof error);
    _exit(127);
  });
  failure.write_end.reset();
  int error = 0;
  ssize_t got = 0;
  do {
    got = read(failure.read_end.get(), &error, sizeof error);
  } while (got < 0 && errno == EINTR);
  if (got == static_cast<ssize_t>(sizeof error)) {
    waitpid(process.pid, nullptr, 0);
    throw ConfigError(fmt::format("cannot run '{}': {}", argv[0], std::strerror(error)),
                      {.remedy = "give a program that exists and is executable, by path or found in PATH"});
  }
  return process;
}

std::vector<std::vector<int>> deal_cores(int num_ranks) {
  constexpr int kMostCores = 16384;
  cpu_set_t* set = CPU_ALLOC(kMostCores);
  const auto size = CPU_ALLOC_SIZE(kMostCores);
  CPU_ZERO_S(size, set);
  std::vector<int> allowed;
  if (sched_getaffinity(0, size, set) == 0) {
    for (int core = 0; core < kMostCores; ++core) {
      if (CPU_ISSET_S(core, size, set)) allowed.push_back(core);
    }
  }
  CPU_FREE(set);
  std::vector<std::vector<int>> dealt(num_ranks);
  if (allowed.empty()) return dealt;
  const int num_cores = static_cast<int>(allowed.size());
  const int block = num_cores / num_ranks;
  for (int rank = 0; rank < num_ranks; ++rank) {
    if (block == 0) {
      dealt[rank] = {allowed[rank % num_cores]};
    } else {
      dealt[rank].assign(allowed.begin() + rank * block, allowed.begin() + (rank + 1) * block);
    }
  }
  return dealt;
}

}  // namespace orthant::launch
