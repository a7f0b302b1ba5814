// orthant launch: starts any program on many ranks with torchrun's variables, on one host or several, or writes the job
// script that does so on a cluster.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iostream>
#include <optional>
#include <string_view>

#include "orthant/base/error.h"
#include "orthant/cli/command.h"
#include "orthant/cli/held_output.h"
#include "orthant/cli/option_parser.h"
#include "orthant/cli/rank_command.h"
#include "orthant/comm/store.h"
#include "orthant/launch/file_limit.h"
#include "orthant/launch/local_ranks.h"
#include "orthant/launch/nodes.h"
#include "orthant/launch/restarts.h"
#include "orthant/launch/scripts.h"
#include "orthant/launch/shared_devices.h"
#include "orthant/launch/token.h"
#include "orthant/launch/unix_sockets.h"

namespace orthant::cli {
namespace {

struct LaunchFlags {
  int nproc = 1;
  int nnodes = 1;     // the most
  int min_nodes = 1;  // the fewest
  std::string nnodes_text = "1";
  double regroup_seconds = 30;
  int node_rank = 0;
  std::string rendezvous;
  std::string bind;
  std::string run_id = "none";
  launch::TokenSource tokens;
  std::string make_token;
  double timeout_seconds = 300;
  std::string log_dir;
  bool bind_cores = false;
  int max_restarts = 0;
  int ranks_per_device = 1;
  std::string script;
  launch::ScriptOptions job;
};

// "4", or "2:4".
void parse_hosts(const std::string& text, LaunchFlags& flags) {
  constexpr int kMostHosts = 100000;
  const auto number = [&](std::string_view word) {
    int value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    const bool whole = error == std::errc{} && end == word.data() + word.size();
    if (whole && value >= 1 && value <= kMostHosts) return value;
    throw ConfigError(
        fmt::format("--nnodes {}: is neither a number of hosts from 1 to {} nor MIN:MAX", text, kMostHosts),
        {.remedy = "use for example --nnodes 4, or --nnodes 2:4"});
  };
  const std::string_view words = text;
  const auto colon = words.find(':');
  flags.nnodes = number(colon == std::string_view::npos ? words : words.substr(colon + 1));
  flags.min_nodes = colon == std::string_view::npos ? flags.nnodes : number(words.substr(0, colon));
  if (flags.min_nodes <= flags.nnodes) return;
  throw ConfigError(fmt::format("--nnodes {}: {} is more than {}", text, flags.min_nodes, flags.nnodes),
                    {.remedy = "write the smaller number first"});
}

void add_options(OptionParser& app, LaunchFlags& flags) {
  app.add_option("--nproc,--nproc-per-node", flags.nproc, "ranks on this host (default 1)").check(NumberRange(1, 4096));
  app.add_option("--nnodes", flags.nnodes_text, "hosts, or MIN:MAX of them (default 1)")
      .check([&flags](const std::string& text) {
        parse_hosts(text, flags);
        return std::string();
      });
  app.add_option("--regroup-seconds", flags.regroup_seconds,
                 "with --nnodes MIN:MAX: wait so long for more than MIN hosts (default 30)")
      .check(NumberRange(0.0, 86400.0));
  app.add_option("--node-rank", flags.node_rank, "number of this host, from 0 (default 0)")
      .check(NumberRange(0, 99999));
  app.add_option("--rendezvous", flags.rendezvous,
                 "HOST:PORT of host 0, where the launchers meet; needed for several hosts");
  app.add_option("--bind", flags.bind, "host 0: address to listen on instead of the rendezvous host's");
  app.add_option("--run-id", flags.run_id, "must be the same on all hosts (default none)");
  app.add_option("--token-file", flags.tokens.file,
                 "file of mode 0600 with the job token, the same on all hosts (default: ORTHANT_TOKEN)");
  app.add_flag("--no-token", flags.tokens.none, "several hosts: believe whoever connects");
  app.add_option("--make-token", flags.make_token, "write a new job token into this new file, and end");
  app.add_option("--timeout", flags.timeout_seconds,
                 "seconds to wait for the other hosts, and that one may be silent (default 300)")
      .check([](const std::string& word) {
        if (word.find('=') == std::string::npos) return std::string();
        throw ConfigError(fmt::format("orthant launch: --timeout {}: a launcher waits in one phase only", word),
                          {.remedy = "give it one number, e.g. --timeout 300; phases are for the program after --"});
      });
  app.add_option("--log-dir", flags.log_dir, "folder for rank-R.log");
  app.add_option("--max-restarts", flags.max_restarts,
                 "start the ranks of all hosts again after a failure, so often (default 0)")
      .check(NumberRange(0, 1000000));
  app.add_option("--ranks-per-device", flags.ranks_per_device,
                 "ranks that share a GPU over NCCL: each gets a host identity of its own (default 1)")
      .check(NumberRange(1, 64));
  app.add_flag("--bind-cores", flags.bind_cores, "pin ranks to cores in turn");
  app.add_option("--script", flags.script, "write a job script to stdout instead of starting: slurm, pbs or k8s");
  const auto* group = "Job script";
  app.add_option("--job-name", flags.job.job_name, "name of the job").group(group);
  app.add_option("--walltime", flags.job.walltime, "longest run, HH:MM:SS").group(group);
  app.add_option("--account", flags.job.account, "account or project to charge").group(group);
  app.add_option("--queue", flags.job.queue, "queue or partition").group(group);
  app.add_option("--gpus-per-node", flags.job.gpus_per_node, "GPUs of one host").group(group);
  app.add_option("--gpu-type", flags.job.gpu_type, "kind of GPU, e.g. a100").group(group);
  app.add_option("--cores-per-node", flags.job.cores_per_node, "cores of one host").group(group);
  app.add_option("--image", flags.job.image, "container image (k8s)").group(group);
  app.add_option("--port", flags.job.port, "port where the launchers meet (default 29400)")
      .group(group)
      .check(NumberRange(1, 65535));
}

launch::Membership membership_of(const LaunchFlags& flags, const Context& context) {
  auto tokens = flags.tokens;
  tokens.variable = context.token_variable;
  return launch::find_membership(tokens, fmt::format("{} hosts", flags.nnodes));
}

launch::NodeOptions node_options(const LaunchFlags& flags, const Context& context, bool is_ours) {
  launch::NodeOptions nodes;
  nodes.num_nodes = flags.nnodes;
  nodes.node_rank = flags.node_rank;
  nodes.num_ranks = flags.nproc;
  nodes.rendezvous = launch::parse_endpoint(flags.rendezvous, "--rendezvous");
  nodes.bind = flags.bind;
  nodes.timeout_seconds = flags.timeout_seconds;
  nodes.run_id = flags.run_id;
  nodes.max_restarts = flags.max_restarts;
  nodes.min_nodes = flags.min_nodes;
  nodes.regroup_seconds = flags.regroup_seconds;
  nodes.membership = membership_of(flags, context);
  if (nodes.membership.open) say(launch::open_job_text(flags.rendezvous));
  nodes.say = say;
  nodes.needs_c10d_store = !is_ours;
  return nodes;
}

int start(const LaunchFlags& flags, const Arguments& program, const Context& context) {
  const launch::RaisedFileLimit file_limit;  // node 0 holds connections of all hosts before it starts its ranks
  launch::LocalOptions local;
  local.rank_file_limit = &file_limit.before();
  local.num_ranks = flags.nproc;
  local.log_dir = flags.log_dir;
  local.bind_cores = flags.bind_cores;
  const bool is_ours = launch::is_this_program(program.front());
  // Only rank 0 of our commands prints a result: as a whole, for programs to read.
  local.output = is_ours ? launch::OutputMode::kRankZero : launch::OutputMode::kPrefixedByStream;
  launch::ProgramHooks hooks;
  hooks.after_spawn = comm::serve_store;
  std::unique_ptr<launch::NodeLink> link;
  if (flags.nnodes > 1) {
    link = launch::join_nodes(node_options(flags, context, is_ours));
    hooks.events = link.get();
  }
  say(launch::shared_devices_text(flags.ranks_per_device));
  const auto name = launch::random_name();
  std::optional<HeldOutput> held;
  if (is_ours && flags.max_restarts > 0) local.stdout_fd = held.emplace().fd();
  launch::SignalWatch signals;
  local.signals = &signals;
  const launch::RestartOptions restarts{.max_restarts = flags.max_restarts,
                                        .decided_elsewhere = flags.node_rank > 0 && flags.max_restarts > 0,
                                        .say = say};
  const auto outcome = launch::run_attempts(restarts, signals, [&](int attempt) {
    launch::ProgramJob job;
    job.run_id = flags.run_id;
    job.job_name = name;
    job.restart_count = attempt;
    if (link) {
      if (auto over = link->meet(signals)) return *over;
      job = link->take_job();
    }
    job.max_restarts = flags.max_restarts;
    job.ranks_per_device = flags.ranks_per_device;
    if (held) held->drop();
    const FolderWriter writer{job.job_name, job.restart_count};
    auto ended = launch::run_program(local, program, context.environment, job, hooks);
    keep_verdict(ended, writer);
    return ended;
  });
  if (link) link->leave(outcome);
  if (held) held->tell();
  return report(outcome);
}

// What a job script passes on to the launchers it starts.
Arguments flags_for_script(const LaunchFlags& flags) {
  Arguments words;
  const LaunchFlags defaults;
  if (flags.run_id != defaults.run_id) words.insert(words.end(), {"--run-id", flags.run_id});
  if (flags.timeout_seconds != defaults.timeout_seconds) {
    words.insert(words.end(), {"--timeout", fmt::format("{}", flags.timeout_seconds)});
  }
  if (!flags.log_dir.empty()) words.insert(words.end(), {"--log-dir", flags.log_dir});
  if (flags.bind_cores) words.emplace_back("--bind-cores");
  if (flags.max_restarts > 0) words.insert(words.end(), {"--max-restarts", fmt::format("{}", flags.max_restarts)});
  if (flags.ranks_per_device != defaults.ranks_per_device) {
    words.insert(words.end(), {"--ranks-per-device", fmt::format("{}", flags.ranks_per_device)});
  }
  if (!flags.tokens.file.empty()) words.insert(words.end(), {"--token-file", flags.tokens.file});
  if (flags.tokens.none) words.emplace_back("--no-token");
  return words;
}

void check_flags(const LaunchFlags& flags, const Arguments& program) {
  if (program.empty()) {
    throw ConfigError("orthant launch: no program given",
                      {.remedy = "write it after a lone --: orthant launch --nproc 4 -- ./program"});
  }
  if (!flags.script.empty() && !flags.rendezvous.empty()) {
    throw ConfigError("--rendezvous with --script: the job's first host is known only when it runs",
                      {.remedy = "use --port to choose the port"});
  }
  if (flags.node_rank >= flags.nnodes) {
    throw ConfigError(fmt::format("--node-rank {} with --nnodes {}", flags.node_rank, flags.nnodes),
                      {.remedy = flags.nnodes == 1 ? "add --nnodes with the number of hosts, or leave --node-rank out"
                                                   : fmt::format("use 0 to {}, or raise --nnodes", flags.nnodes - 1)});
  }
  if (flags.nnodes > 1 && flags.rendezvous.empty() && flags.script.empty()) {
    throw ConfigError(fmt::format("--nnodes {} needs a place to meet", flags.nnodes),
                      {.remedy = "add --rendezvous HOST:PORT with the address of host 0, the same on all hosts"});
  }
  if (flags.min_nodes < flags.nnodes && flags.max_restarts == 0) {
    throw ConfigError(fmt::format("--nnodes {} without --max-restarts: a job that goes on with fewer hosts is started "
                                  "again on them",
                                  flags.nnodes_text),
                      {.remedy = "add --max-restarts with how often that may happen"});
  }
  if (flags.min_nodes < flags.nnodes && flags.regroup_seconds >= flags.timeout_seconds) {
    throw ConfigError(fmt::format("--regroup-seconds {:.6g} with --timeout {:.6g}: nobody would wait so long",
                                  flags.regroup_seconds, flags.timeout_seconds),
                      {.remedy = "raise --timeout, or lower --regroup-seconds"});
  }
  if (flags.min_nodes < flags.nnodes && !flags.script.empty()) {
    throw ConfigError(
        fmt::format("--nnodes {} with --script: a job script asks for a fixed number of hosts", flags.nnodes_text),
        {.remedy = fmt::format("use --nnodes {}", flags.nnodes)});
  }
  if (flags.rendezvous.find(',') != std::string::npos) {
    throw ConfigError(
        fmt::format("--rendezvous {} names several places: the launchers meet on the host of node 0 alone, "
                    "and the job does not outlive that host",
                    flags.rendezvous),
        {.remedy = "name one HOST:PORT, of the host that you trust most"});
  }
  check_timeout(flags.timeout_seconds);
  launch::check_token_source(flags.tokens);
}

}  // namespace

int run_launch(const Arguments& arguments, Context& context) {
  OptionParser app(
      "Starts PROGRAM on many ranks with torchrun's variables, on one host or several. The program comes after a lone "
      "--.",
      "orthant launch");
  LaunchFlags flags;
  add_options(app, flags);
  const auto dashes = std::find(arguments.begin(), arguments.end(), "--");
  const Arguments program(dashes == arguments.end() ? dashes : dashes + 1, arguments.end());
  if (!parse(app, {arguments.begin(), dashes}, context,
             "orthant launch --nproc 4 -- build/bin/orthant bench comm --json\n"
             "  orthant launch --make-token job.token\n"
             "  orthant launch --nproc 4 --nnodes 2 --script pbs --queue main -- ./train --config run.json")) {
    return 0;
  }
  refuse_empty(app, {"--make-token"});
  if (!flags.make_token.empty()) {
    if (dashes != arguments.end()) {
      throw ConfigError("--make-token with a program: it writes a token and starts nothing",
                        {.remedy = "make the token first, then start the program with --token-file"});
    }
    launch::Token::random().write(flags.make_token);
    return 0;
  }
  check_flags(flags, program);
  if (flags.script.empty()) return start(flags, program, context);
  flags.job.num_nodes = flags.nnodes;
  flags.job.ranks_per_node = flags.nproc;
  flags.job.command = program;
  if (flags.script != "k8s") flags.job.orthant = context.program;  // a container has a path of its own
  flags.job.launch_flags = flags_for_script(flags);
  flags.job.makes_token = flags.nnodes > 1 && !flags.tokens.none && flags.tokens.file.empty();
  std::cout << launch::job_script(flags.script, flags.job);
  return 0;
}

}  // namespace orthant::cli
