#include "orthant/base/log.h"

#include <fmt/format.h>
#include <spdlog/formatter.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <array>
#include <vector>

#include "orthant/base/error.h"
#include "orthant/base/printable.h"

namespace orthant {
namespace {

constexpr std::string_view kYellow = "\033[33m";
constexpr std::string_view kRed = "\033[31m";
constexpr std::string_view kPlain = "\033[0m";

spdlog::level::level_enum spdlog_level(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
    case LogLevel::kOff:
      return spdlog::level::off;
  }
  throw InternalError(fmt::format("log level {} is not one of LogLevel", static_cast<int>(level)));
}

std::string_view level_mark(spdlog::level::level_enum level) {
  if (level == spdlog::level::debug) return "debug: ";
  if (level == spdlog::level::warn) return "warning: ";
  if (level == spdlog::level::err) return "error: ";
  return "";
}

// Marks and colours are part of the text that the sink writes in one call, so that lines of several processes on one
// terminal do not mix.
class LineFormatter : public spdlog::formatter {
 public:
  LineFormatter(int rank, bool color) : rank_(rank), color_(color) {}

  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& out) override {
    const std::string prefix = rank_ < 0 ? std::string("orthant: ") : fmt::format("[rank {}] ", rank_);
    const bool colored = color_ && message.level >= spdlog::level::warn;
    std::string text;
    std::string_view rest(message.payload.data(), message.payload.size());
    std::string_view mark = level_mark(message.level);
    for (bool more = true; more;) {
      const auto end = rest.find('\n');
      more = end != std::string_view::npos;
      text += prefix;
      if (colored) text += message.level == spdlog::level::warn ? kYellow : kRed;
      text += mark;
      text += printable(rest.substr(0, end));
      if (colored) text += kPlain;
      text += '\n';
      mark = {};
      if (more) rest.remove_prefix(end + 1);
    }
    out.append(text.data(), text.data() + text.size());
  }

  std::unique_ptr<spdlog::formatter> clone() const override { return std::make_unique<LineFormatter>(rank_, color_); }

 private:
  int rank_;
  bool color_;
};

std::shared_ptr<spdlog::sinks::sink> open_file(const LogOptions& options) {
  try {
    auto sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(options.file);
    sink->set_formatter(std::make_unique<LineFormatter>(options.rank, false));
    return sink;
  } catch (const spdlog::spdlog_ex& error) {
    throw ConfigError(fmt::format("cannot open the log file {}: {}", options.file, error.what()),
                      {.remedy = "name a file in a folder that can be written to"});
  }
}

}  // namespace

struct Log::Sinks {
  mutable spdlog::logger logger;  // spdlog's logger locks inside its sinks
};

Log::Log(const LogOptions& options) {
  auto terminal = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  terminal->set_formatter(std::make_unique<LineFormatter>(options.rank, options.color));
  std::vector<spdlog::sink_ptr> sinks = {terminal};
  if (!options.file.empty()) sinks.push_back(open_file(options));
  auto opened = std::make_shared<Sinks>(Sinks{spdlog::logger("orthant", sinks.begin(), sinks.end())});
  opened->logger.set_level(spdlog_level(options.level));
  // Nothing may be lost when the process is killed: each line reaches the file at once.
  opened->logger.flush_on(spdlog::level::debug);
  sinks_ = std::move(opened);
}

void Log::debug(std::string_view message) const {
  sinks_->logger.log(spdlog::level::debug, message);
}
void Log::info(std::string_view message) const {
  sinks_->logger.log(spdlog::level::info, message);
}
void Log::warn(std::string_view message) const {
  sinks_->logger.log(spdlog::level::warn, message);
}
void Log::error(std::string_view message) const {
  sinks_->logger.log(spdlog::level::err, message);
}

}  // namespace orthant
