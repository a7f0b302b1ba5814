#include "orthant/launch/local_ranks.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "orthant/base/error.h"
#include "orthant/launch/activity_board.h"
#include "orthant/launch/device_variables.h"
#include "orthant/launch/file_limit.h"
#include "orthant/launch/passed_fds.h"
#include "orthant/launch/rank_process.h"
#include "orthant/launch/shared_devices.h"
#include "orthant/launch/sockets.h"
#include "orthant/launch/store_join.h"
#include "orthant/launch/store_server.h"
#include "orthant/launch/supervisor.h"

namespace orthant::launch {
namespace {

void check(const LocalOptions& options) {
  if (options.num_ranks < 1) {
    throw ConfigError(fmt::format("{} ranks asked for", options.num_ranks), {.remedy = "ask for at least one rank"});
  }
}

// While it lives, new descriptors cannot take the places of a closed stdin, stdout or stderr.
std::vector<Fd> reserve_standard_descriptors() {
  std::vector<Fd> reserved;
  for (;;) {
    Fd fd(open("/dev/null", O_RDWR | O_CLOEXEC));
    if (!fd || fd.get() > 2) return reserved;
    reserved.push_back(std::move(fd));
  }
}

// A link at the name of a log would have its target written to.
[[noreturn]] void refuse_log(const std::filesystem::path& path, int error_number) {
  const bool link = error_number == ELOOP;
  const bool pipe = error_number == ENXIO;
  throw ConfigError(
      fmt::format("cannot write the log {}: {}", path.string(),
                  link   ? "it is a symbolic link"
                  : pipe ? "it is no regular file"
                         : std::strerror(error_number)),
      {.remedy = link || pipe ? "remove it, or name another folder" : "name a folder that can be written"});
}

std::vector<Fd> open_logs(const LocalOptions& options, int rank_offset) {
  std::vector<Fd> logs(options.num_ranks);
  if (options.log_dir.empty()) return logs;
  std::error_code error;
  std::filesystem::create_directories(options.log_dir, error);
  for (int i = 0; i < options.num_ranks; ++i) {
    const auto path = options.log_dir / fmt::format("rank-{}.log", rank_offset + i);
    logs[i].reset(
        open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0644));
    if (!logs[i]) refuse_log(path, errno);
  }
  return logs;
}

// What both ways of starting ranks share: signals, logs, output, last actions, the supervisor and the ranks' store, in
// the order they must be made.
struct Session {
  Session(const LocalOptions& options, const ProgramJob& job, ActivityBoard::For users, ExternalEvents* events)
      : rank_offset(job.rank_offset),
        stderr_fd(options.stderr_fd),
        rank_file_limit(options.rank_file_limit != nullptr ? options.rank_file_limit : &file_limit.before()),
        logs(open_logs(options, job.rank_offset)),
        take_signals(options.take_signals),
        own_signals(options.signals == nullptr ? std::make_unique<SignalWatch>() : nullptr),
        signals(options.signals == nullptr ? *own_signals : *options.signals),
        pump(options.output, options.stdout_fd, options.stderr_fd),
        board(options.num_ranks, users),
        supervisor({options.grace_seconds, job.node_rank, options.timeouts, options.killed_seconds,
                    options.unreported_seconds},
                   signals, pump, board, events) {
    if (options.bind_cores) cores = deal_cores(options.num_ranks);
    launcher_fds.push_back(signals.fd());
    for (const auto& log : logs) {
      if (log) launcher_fds.push_back(log.get());
    }
  }

  // The rank's end of a new connection to the store. It is closed here once the rank was started.
  Fd connect_next() {
    auto [server_end, rank_end] = stream_pair();
    launcher_fds.push_back(server_end.get());
    to_ranks.emplace_back(std::move(server_end), 0);
    return std::move(rank_end);
  }

  SpawnOptions spawn_options(int local_rank, std::vector<int> keep_in_child = {}) const {
    return {rank_offset + local_rank,
            cores.empty() ? std::vector<int>{} : cores[local_rank],
            launcher_fds,
            std::move(keep_in_child),
            rank_file_limit,
            take_signals};
  }

  void add(RankProcess process, int local_rank) {
    launcher_fds.push_back(process.output.get());
    launcher_fds.push_back(process.errors.get());
    supervisor.add(std::move(process), std::move(logs[local_rank]));
  }

  // Blocks until all ranks have ended.
  Outcome run() {
    auto outcome = supervisor.run();
    outcome.run_folder = board.run_folder();
    return outcome;
  }

  // After the last rank was started: from here on this process has a second thread, until the session ends.
  void serve_store(std::vector<Fd> other_hosts = {}) {
    store.emplace([fd = stderr_fd](const std::string& text) {
      const auto line = fmt::format("orthant: {}\n", text);
      pollfd ready{fd, POLLOUT, 0};
      if (poll(&ready, 1, 0) > 0) [[maybe_unused]]
        const auto written = write(fd, line.data(), line.size());
    });
    for (auto& [connection, pid] : to_ranks) store->add(std::move(connection), pid);
    for (auto& connection : other_hosts) store->add(std::move(connection));
    store->start();
  }

  int rank_offset;
  int stderr_fd;
  RaisedFileLimit file_limit;
  const rlimit* rank_file_limit;  // what the user set
  std::vector<Fd> reserved = reserve_standard_descriptors();
  std::vector<Fd> logs;
  std::function<void()> take_signals;
  std::unique_ptr<SignalWatch> own_signals;
  SignalWatch& signals;
  OutputPump pump;
  ActivityBoard board;
  Supervisor supervisor;
  std::vector<std::vector<int>> cores;
  std::vector<int> launcher_fds;  // a forked rank closes these
  std::vector<std::pair<Fd, pid_t>> to_ranks;
  std::optional<StoreServer> store;
};

std::vector<std::string> as_assignments(const Environment& environment) {
  std::vector<std::string> assignments;
  for (const auto& [name, value] : environment) assignments.push_back(fmt::format("{}={}", name, value));
  return assignments;
}

}  // namespace

Outcome run_forked(const LocalOptions& options, const std::function<int(const Job&)>& body) {
  check(options);
  Session session(options, {}, ActivityBoard::For::kForkedRanks, nullptr);
  Job job;
  job.world_size = job.local_world_size = options.num_ranks;
  job.restart_count = options.restart_count;
  job.rendezvous.served_by_launcher = true;
  if (!options.bind_address.empty()) job.rendezvous.bind_address = options.bind_address;
  for (int rank = 0; rank < options.num_ranks; ++rank) {
    const Fd to_store = session.connect_next();
    job.rank = job.local_rank = rank;
    job.rendezvous.store_fd = to_store.get();
    const auto speaking_body = [&] {
      session.board.take_slot(rank);
      return body(job);
    };
    auto process = fork_rank(session.spawn_options(rank), speaking_body);
    session.to_ranks.back().second = process.pid;
    session.add(std::move(process), rank);
  }
  session.serve_store();
  return session.run();
}

Environment rank_environment(const Environment& base_environment, const ProgramJob& job, int num_ranks,
                             int local_rank) {
  Environment environment = base_environment;
  const auto rank = std::to_string(job.rank_offset + local_rank);
  const auto world_size = std::to_string(job.world_size > 0 ? job.world_size : num_ranks);
  environment["RANK"] = environment["ROLE_RANK"] = rank;
  environment["WORLD_SIZE"] = environment["ROLE_WORLD_SIZE"] = world_size;
  environment["ROLE_NAME"] = "default";
  environment["LOCAL_RANK"] = std::to_string(local_rank);
  environment["LOCAL_WORLD_SIZE"] = std::to_string(num_ranks);
  environment["GROUP_RANK"] = std::to_string(job.node_index < 0 ? job.node_rank : job.node_index);
  environment["GROUP_WORLD_SIZE"] = std::to_string(job.num_nodes);
  environment["MASTER_ADDR"] = job.master_address;
  environment["MASTER_PORT"] = std::to_string(job.master_port);
  environment["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  environment["TORCHELASTIC_RESTART_COUNT"] = std::to_string(job.restart_count);
  environment["TORCHELASTIC_MAX_RESTARTS"] = std::to_string(job.max_restarts);
  environment["TORCHELASTIC_RUN_ID"] = job.run_id;
  environment.erase(kJobVariable);
  if (!job.job_name.empty()) environment[kJobVariable] = job.job_name;
  environment.try_emplace("OMP_NUM_THREADS", "1");
  environment.try_emplace(kQueuesVariable, kMostQueues);
  share_devices(environment, job.rank_offset + local_rank, job.num_nodes, job.ranks_per_device);
  return environment;
}

bool is_this_program(const std::string& name) {
  struct stat own{}, found{};
  if (stat("/proc/self/exe", &own) != 0) return false;
  const auto is_own = [&](const std::string& path) {
    return stat(path.c_str(), &found) == 0 && found.st_dev == own.st_dev && found.st_ino == own.st_ino;
  };
  if (name.find('/') != std::string::npos) return is_own(name);
  const char* path = std::getenv("PATH");  // execvpe looks here, not in the program's variables
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    const auto candidate = (folder.empty() ? "." : folder) + "/" + name;
    if (access(candidate.c_str(), X_OK) == 0) return is_own(candidate);
  }
  return false;
}

Outcome run_program(const LocalOptions& options, const std::vector<std::string>& argv,
                    const Environment& base_environment, const ProgramJob& job, const ProgramHooks& hooks) {
  Fd store(job.listen_fd);
  std::vector<Fd> across;
  for (const int fd : job.store_connections) across.emplace_back(fd);
  check(options);
  if (argv.empty()) throw ConfigError("no program to run", {.remedy = "write it after --, for example -- ./program"});
  Session session(options, job, ActivityBoard::For::kPrograms, hooks.events);
  ProgramJob resolved = job;
  const bool needs_c10d_store = job.num_nodes > 1 ? job.master_port != 0 : !is_this_program(argv[0]);
  if (!store && needs_c10d_store && job.num_nodes == 1) {
    store = bind_tcp({job.master_address, job.master_port});
    start_listening(store.get());
    resolved.master_port = bound_endpoint(store.get()).port;
  }
  for (int local_rank = 0; local_rank < options.num_ranks; ++local_rank) {
    Fd to_store;  // of node 0's launcher
    if (job.node_rank == 0) {
      to_store = session.connect_next();
    } else if (!across.empty()) {
      to_store = std::move(across.at(local_rank));
    }
    auto environment = rank_environment(base_environment, resolved, options.num_ranks, local_rank);
    environment[kActivityVariable] = session.board.variable(local_rank);
    environment.erase(kStoreVariable);
    if (to_store) {
      environment[kStoreVariable] =
          store_variable(to_store.get(), environment.at("RANK"), environment.at("WORLD_SIZE"));
    }
    if (!needs_c10d_store) {
      for (const char* name : {"MASTER_PORT", "TORCHELASTIC_USE_AGENT_STORE"}) environment.erase(name);
      if (job.num_nodes == 1) environment.erase("MASTER_ADDR");  // else it tells which address leads to the others
    }
    const auto spawn = session.spawn_options(local_rank, {to_store.get()});
    session.add(execute_rank(spawn, argv, as_assignments(environment)), local_rank);
  }
  if (job.node_rank == 0) session.serve_store(std::move(across));
  std::shared_ptr<void> keep_alive;
  if (store && hooks.after_spawn) {
    keep_alive = hooks.after_spawn(store.release(), resolved.master_address, resolved.master_port);
  }
  return session.run();
}

}  // namespace orthant::launch
