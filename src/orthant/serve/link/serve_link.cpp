// The engine's side of the link.
#include <fmt/format.h>

#include "orthant/base/error.h"
#include "orthant/launch/unix_sockets.h"
#include "orthant/serve/link/remote_generator.h"

namespace orthant {
namespace {

// Tokens of one answer on their way to the process that serves.
class LinkSink : public TokenSink {
 public:
  LinkSink(std::shared_ptr<FrameSocket> socket, std::uint64_t id) : socket_(std::move(socket)), id_(id) {}

  bool token(const GeneratedToken& token) override {
    socket_->queue(token_frame(id_, token));
    return true;
  }
  void finished(FinishReason reason, const std::string& error) override {
    socket_->queue(finished_frame(id_, {reason, error}));
  }

 private:
  std::shared_ptr<FrameSocket> socket_;
  std::uint64_t id_;
};

}  // namespace

void serve_link(Generator& generator, const std::string& name, std::int64_t vocabulary,
                const std::function<bool()>& works) {
  auto fd = launch::connect_unix_until(name, launch::Clock::now() + launch::seconds(10));
  if (!fd || !launch::is_own_user(launch::peer_of(fd.get()))) {
    throw CommError("the process that serves is gone", {.remedy = "start the server again"});
  }
  const auto socket = std::make_shared<FrameSocket>(std::move(fd));
  socket->queue(hello_frame({generator.most_tokens(), vocabulary}));
  const auto take = [&](const LinkFrame& frame) {
    if (frame.kind == FrameKind::stop) return false;
    if (frame.kind == FrameKind::cancel) generator.cancel(frame.id);
    if (frame.kind != FrameKind::submit) return true;
    try {
      generator.submit(read_submit(frame), std::make_shared<LinkSink>(socket, frame.id));
    } catch (const Error& error) {
      socket->queue(finished_frame(frame.id, {FinishReason::failed, error.message()}));
    }
    return true;
  };
  socket->read(take, [&] {
    socket->queue(load_frame(generator.load()));
    return works();
  });
}

}  // namespace orthant
