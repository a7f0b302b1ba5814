#include "orthant/launch/output_pump.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>

namespace orthant::launch {
namespace {

constexpr std::size_t kTailLines = 15;
constexpr std::size_t kLongestTailLine = 500;
constexpr std::size_t kTurnBytes = 64 * 1024;  // per source and turn, so that one chatty rank does not delay the others

void write_log(int fd, std::string_view text) {
  while (!text.empty()) {
    const auto written = write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;  // a full disk must not end the job; the terminal still shows the line
    text.remove_prefix(written);
  }
}

}  // namespace

OutputPump::OutputPump(OutputMode mode, int stdout_fd, int stderr_fd) : mode_(mode) {
  out_.fd = stdout_fd;
  err_.fd = stderr_fd;
}

void OutputPump::add_rank(int rank, Fd output, Fd errors, Fd log, bool pass_stdout_through) {
  RankOutput& owner = ranks_.emplace_back();
  owner.rank = rank;
  owner.log = std::move(log);
  const bool raw = mode_ == OutputMode::kRankZero && pass_stdout_through;
  add_source(owner, std::move(output), raw || mode_ == OutputMode::kPrefixedByStream ? out_ : err_, !raw);
  add_source(owner, std::move(errors), err_, true);
}

void OutputPump::add_source(RankOutput& owner, Fd fd, Sink& sink, bool prefixed) {
  Source& source = sources_.emplace_back();
  source.owner = &owner;
  source.sink = &sink;
  source.fd = std::move(fd);
  source.prefixed = prefixed;
}

void OutputPump::add_poll_fds(std::vector<pollfd>& fds) const {
  for (const auto& source : sources_) {
    if (source.fd && !source.sink->full()) fds.push_back({source.fd.get(), POLLIN, 0});
  }
  for (const Sink* sink : {&out_, &err_}) {
    if (!sink->waiting.empty()) fds.push_back({sink->fd, POLLOUT, 0});
  }
}

void OutputPump::pump() {
  for (auto& source : sources_) {
    if (source.fd && !source.sink->full()) read_some(source, kTurnBytes);
  }
  out_.write_some();
  err_.write_some();
}

bool OutputPump::sources_ended() const {
  return std::none_of(sources_.begin(), sources_.end(), [](const Source& source) { return bool(source.fd); });
}

void OutputPump::close_sources() {
  for (auto& source : sources_) {
    if (!source.fd) continue;
    read_some(source, 16 * kTurnBytes);
    if (source.fd) end(source);
  }
}

bool OutputPump::drained() const {
  return out_.waiting.empty() && err_.waiting.empty();
}

std::vector<std::string> OutputPump::last_lines(int rank) const {
  for (const auto& owner : ranks_) {
    if (owner.rank == rank) return {owner.tail.begin(), owner.tail.end()};
  }
  return {};
}

void OutputPump::read_some(Source& source, std::size_t at_most) {
  char buffer[16 * 1024];
  for (std::size_t total = 0; total < at_most;) {
    const auto got = read(source.fd.get(), buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) return end(source);
    total += got;
    const std::string_view bytes(buffer, got);
    if (!source.prefixed && !source.sink->broken) source.sink->waiting.append(bytes);
    source.lines.feed(bytes, [&](std::string_view text, bool ended) { take_line(source, text, ended); });
  }
}

void OutputPump::take_line(Source& source, std::string_view text, bool ended) {
  RankOutput& owner = *source.owner;
  if (source.prefixed && !source.sink->broken) {
    source.sink->waiting += fmt::format("[rank {}] {}\n", owner.rank, text);
  }
  if (owner.log) write_log(owner.log.get(), ended ? fmt::format("{}\n", text) : std::string(text));
  owner.tail.emplace_back(text.substr(0, kLongestTailLine));
  if (owner.tail.size() > kTailLines) owner.tail.pop_front();
}

void OutputPump::end(Source& source) {
  source.fd.reset();
  source.lines.finish([&](std::string_view text, bool ended) { take_line(source, text, ended); });
}

void OutputPump::Sink::write_some() {
  // A descriptor that polls as writable takes PIPE_BUF bytes without blocking. It may be shared with other processes,
  // so its non-blocking flag is not ours to set.
  std::size_t done = 0;
  while (done < waiting.size()) {
    pollfd ready{fd, POLLOUT, 0};
    if (poll(&ready, 1, 0) <= 0) break;
    const auto written = write(fd, waiting.data() + done, std::min<std::size_t>(PIPE_BUF, waiting.size() - done));
    if (written < 0 && (errno == EINTR || errno == EAGAIN)) break;
    if (written < 0) {
      broken = true;
      done = waiting.size();
      break;
    }
    done += written;
  }
  waiting.erase(0, done);
}

}  // namespace orthant::launch
