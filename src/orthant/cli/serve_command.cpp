// orthant serve: a stored model behind OpenAI's API.
//
// Note [Processes of a server]: the process that the user starts serves HTTP and holds tokenizer and chat template; it
// never computes. A fork of it, made before it has threads, is the launcher of the ranks and starts them again when
// they are lost. Rank 0 connects to the server over a Unix-domain socket (serve/link) and passes requests to the
// engine.
#include <fmt/ranges.h>
#include <unistd.h>

#include <csignal>
#include <ctime>
#include <iostream>
#include <optional>

#include "orthant/base/error.h"
#include "orthant/base/log.h"
#include "orthant/base/log_level.h"
#include "orthant/base/printable.h"
#include "orthant/cli/command.h"
#include "orthant/cli/generation_setup.h"
#include "orthant/cli/model_texts.h"
#include "orthant/cli/option_parser.h"
#include "orthant/cli/rank_command.h"
#include "orthant/cli/serving_ranks.h"
#include "orthant/generate/engine.h"
#include "orthant/generate/llm.h"
#include "orthant/launch/signal_watch.h"
#include "orthant/launch/unix_sockets.h"
#include "orthant/models/model_config.h"
#include "orthant/serve/api/service.h"
#include "orthant/serve/carried_files.h"
#include "orthant/serve/link/remote_generator.h"

namespace orthant::cli {
namespace {

constexpr int kRestarts = 8;  // in a row that ended soon

struct ServeGiven {
  GenerationSetup setup;
  std::string host = "127.0.0.1";
  int port = 8000;
  std::string key_file;
  std::int64_t most_waiting = 256;
  std::string served_name;
  std::string chat_template;
  double drain_seconds = 30;
  std::string log_level = "info";
  std::string link;  // of executed ranks: where the server is
};

// What a rank does: it computes until the server wants no more.
int serve_on_rank(const ServeGiven& given, RankContext& rank) {
  GenerationRank here(given.setup, rank);
  Engine engine(here.model(), here.options());
  if (rank.is_first()) {
    Generator& generator = engine.generator();
    for (const auto& note : engine.notes()) rank.log.info(note);
    serve_link(generator, given.link, vocab_size(here.model().config), [&] { return !engine.failure(); });
    if (const auto failure = engine.failure()) std::rethrow_exception(failure);
    engine.rest();
  } else {
    engine.follow();
  }
  here.close();
  return 0;
}

// That of its folder; of a checkpoint that of the run.
std::string name_of_model(const ServeGiven& given, const StoredModel& stored) {
  if (!given.served_name.empty()) return given.served_name;
  auto path = std::filesystem::absolute(stored.companions).lexically_normal();
  if (path.filename().empty()) path = path.parent_path();
  return printable(path.filename().string());
}

ServedModel load_served(const ServeGiven& given) {
  const auto stored = find_stored_model(given.setup.model, given.setup.config);
  ServedModel model{name_of_model(given, stored), tokenizer_of(stored),
                    load_chat_template(tokenizer_folder(stored.companions, ""), given.chat_template)};
  return model;
}

// The server while it runs: what signals and lost ranks do to it.
class Serving {
 public:
  Serving(const ServeGiven& given, const http::AccessRules& access, ServedModel model, launch::Fd listener,
          const std::string& address, ServingRanks& ranks)
      : given_(given),
        model_(std::move(model)),
        address_(address),
        ranks_(ranks),
        log_({.level = parse_log_level(given.log_level, "--log-level")}),
        generator_(given.link),
        service_([this]() -> const ServedModel& { return known_model(); }, generator_, options_of(access), log_),
        server_(
            std::move(listener), {},
            [this](http::Request request, std::shared_ptr<http::Exchange> exchange) {
              service_.handle(std::move(request), exchange);
            },
            [this](const http::Refusal& refusal) { return service_.refuse(refusal); }) {
    service_.attach(server_);
  }

  // Blocks until a signal or the end of the ranks. The exit code.
  int run() {
    ranks_.go();
    server_.run([this] { look(); });
    generator_.stop_engine();
    const int code = ranks_.wait(kRankSeconds);
    if (lost_code_) return *lost_code_;
    if (code != 0) log_.warn(fmt::format("the ranks ended with exit code {}", code));
    return cut_ ? launch::kStoppedExitCode : 0;
  }

 private:
  static constexpr double kRankSeconds = 10;
  static constexpr double kSendSeconds = 2;

  ServiceOptions options_of(const http::AccessRules& access) {
    return {.access = access,
            .most_waiting = given_.most_waiting,
            .created = static_cast<std::int64_t>(std::time(nullptr)),
            .unavailable = [this] { return generator_.is_up() ? std::string() : "the ranks are being started"; },
            .rank_starts = [this] { return generator_.num_starts(); }};
  }

  const ServedModel& known_model() {
    model_.most_tokens = generator_.most_tokens();
    model_.vocabulary = generator_.vocabulary();
    return model_;
  }

  // About every 100 ms.
  void look() {
    for (const int signal : signals_.take()) {
      if (launch::asks_to_stop(signal)) stop();
    }
    const bool up = generator_.is_up();
    if (up && !said_) {
      said_ = true;
      std::cout << fmt::format("Serving {} at {} (Ctrl-C stops)", model_.name, address_) << std::endl;
    }
    if (up != was_up_ && (up ? generator_.num_starts() > 1 : !draining_)) {
      log_.warn(up ? "the ranks are back" : "the ranks are lost: running answers end with an error");
    }
    was_up_ = up;
    if (!stopping_ && !lost_code_) {
      if (const auto code = ranks_.exit_code()) {
        lost_code_ = draining_ && *code == 0 ? 0 : *code == 0 ? 3 : *code;
        service_.end_all("the ranks ended");
        service_.drain();
        stopping_ = true;
        server_.stop(kSendSeconds);
      }
    }
    if (draining_ && !stopping_ && (service_.running() == 0 || launch::Clock::now() >= drained_by_)) {
      cut_ = service_.running() > 0;
      service_.end_all("the server is stopping");
      stopping_ = true;
      server_.stop(kSendSeconds);
    }
  }

  // The first signal lets answers come to their end, the second does not.
  void stop() {
    if (draining_) {
      drained_by_ = launch::Clock::now();
      return;
    }
    draining_ = true;
    drained_by_ = launch::Clock::now() + launch::seconds(given_.drain_seconds);
    service_.drain();
    server_.drain();
    if (service_.running() > 0) {
      log_.info(fmt::format("stopping: {} requests are answered first, for {} s at most", service_.running(),
                            given_.drain_seconds));
    }
  }

  const ServeGiven& given_;
  ServedModel model_;
  std::string address_;
  ServingRanks& ranks_;
  Log log_;
  launch::SignalWatch signals_;  // before the first thread
  RemoteGenerator generator_;
  Service service_;
  http::Server server_;
  std::optional<int> lost_code_;
  launch::Clock::time_point drained_by_{};
  bool said_ = false;
  bool was_up_ = false;
  bool draining_ = false;
  bool stopping_ = false;
  bool cut_ = false;  // answers were
};

void add_serve_options(OptionParser& app, ServeGiven& given) {
  add_generation_options(app, given.setup);
  app.add_option("--host", given.host, "address to listen on (default 127.0.0.1: this machine alone)");
  app.add_option("--port", given.port, "port to listen on; 0: any free one (default 8000)")
      .check(NumberRange(0, 65535));
  app.add_option("--api-key-file", given.key_file, "file of mode 0600 with keys, one a line, that clients must send");
  app.add_option("--max-queue", given.most_waiting,
                 "answers that wait for their first token; a request beyond gets 429 (default 256)")
      .check(NumberRange<std::int64_t>(1, 1000000));
  app.add_option("--served-name", given.served_name,
                 "the model's name in the API (default: that of its folder or run)");
  app.add_option(
      "--chat-template", given.chat_template,
      fmt::format("{} or a Jinja file, instead of the folder's own", fmt::join(chat_template_names(), ", ")));
  app.add_option("--drain-seconds", given.drain_seconds, "how long running answers have after SIGTERM (default 30)");
  app.add_option("--log-level", given.log_level, "debug, info (every answer), warning, error or off (default info)");
  app.add_option("--link", given.link, "of ranks that this command has started").group("");
}

int serve(const ServeGiven& given, RankOptions ranks, Context& context) {
  check_generation_setup(given.setup, ranks);
  const auto numeric = launch::resolve(given.host);
  const auto access = http::access_rules({.host = given.host, .key_file = given.key_file, .could = "use the model"});
  auto model = load_served(given);
  auto listener = launch::bind_tcp({numeric, given.port});
  launch::start_listening(listener.get());
  const auto bound = launch::bound_endpoint(listener.get());
  const auto address = "http://" + launch::endpoint_text({given.host, bound.port});
  const int most_in_vain = ranks.max_restarts;
  ranks.max_restarts = 0;
  ranks.watched = true;
  ranks.rank_words = {"--link", given.link};
  ServingRanks serving_ranks([&, server = getpid()] {
    listener.reset();
    const auto wanted = [server] { return getppid() == server; };
    return run_rank_attempts(most_in_vain, wanted, [&] {
      return run_on_ranks(ranks, context, 1, [&](RankContext& rank) { return serve_on_rank(given, rank); });
    });
  });
  Serving serving(given, access, std::move(model), std::move(listener), address, serving_ranks);
  return serving.run();
}

}  // namespace

int run_serve(const Arguments& arguments, Context& context) {
  OptionParser app(help::kServe, "orthant serve");
  ServeGiven given;
  RankOptions ranks;
  ranks.max_restarts = kRestarts;
  add_serve_options(app, given);
  add_rank_options(app, ranks);
  if (!parse(app, arguments, context, example::kServe)) return 0;
  refuse_empty(app, {"--host", "--api-key-file", "--served-name", "--chat-template"});
  parse_log_level(given.log_level, "--log-level");
  check_timeout(given.drain_seconds);
  const auto job = job_of_launcher(ranks, context.environment);
  if (!given.link.empty()) {
    if (!job) throw ConfigError("--link is for ranks that orthant serve has started", {.remedy = "leave it out"});
    return run_on_ranks(ranks, context, 1, [&](RankContext& rank) { return serve_on_rank(given, rank); });
  }
  if (job) {
    throw ConfigError("orthant serve starts its ranks itself, and a launcher has started this process",
                      {.remedy = "run it once, without the launcher"});
  }
  given.link = "orthant-serve-" + launch::random_name();
  return serve(given, ranks, context);
}

}  // namespace orthant::cli
