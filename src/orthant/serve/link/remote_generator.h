// A generator whose engine runs in other processes, which may be lost and started again while this one goes on: rank 0
// connects to a socket of this process, and requests and tokens travel over it.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "orthant/launch/sockets.h"
#include "orthant/serve/generator.h"
#include "orthant/serve/link/frame_socket.h"

namespace orthant {

class RemoteGenerator final : public Generator {
 public:
  // `name`: of a Unix-domain socket (see launch/unix_sockets.h) that is made here, at which serve_link() finds this
  // process. `on_change` is called when the engine has come or gone, on a thread of this object.
  explicit RemoteGenerator(const std::string& name, std::function<void()> on_change = {});
  ~RemoteGenerator() override;
  RemoteGenerator(const RemoteGenerator&) = delete;
  RemoteGenerator& operator=(const RemoteGenerator&) = delete;

  // As Generator; CommError while there is no engine.
  void submit(GenerationRequest request, std::shared_ptr<TokenSink> sink) override;
  void cancel(std::uint64_t id) override;
  GeneratorLoad load() const override;
  std::int64_t most_tokens() const override;
  std::int64_t vocabulary() const;

  bool is_up() const;
  std::int64_t num_starts() const { return starts_; }  // how many engines have come so far
  // Tells the engine to end.
  void stop_engine();

 private:
  void accept_engines();
  void serve_engine(launch::Fd fd);
  bool take(const LinkFrame& frame);
  void lose_engine();

  std::function<void()> on_change_;
  launch::Fd listener_;
  launch::Fd leave_;
  mutable std::mutex mutex_;
  std::shared_ptr<FrameSocket> socket_;  // null: no engine is connected
  Hello hello_;
  bool up_ = false;
  GeneratorLoad load_;
  std::map<std::uint64_t, std::shared_ptr<TokenSink>> sinks_;
  std::atomic<std::int64_t> starts_ = 0;
  std::atomic<bool> leaving_ = false;
  std::thread thread_;
};

inline constexpr const char* kEngineLost =
    "a rank was lost while this answer was made: ask again, ranks are being started";

// On the engine's side: connects to `name` and passes on requests until the other side tells to stop or is gone,
// or `works`, which is asked every now and then, says that there is no engine any more. CommError when nobody listens
// there. Blocks.
void serve_link(Generator& generator, const std::string& name, std::int64_t vocabulary,
                const std::function<bool()>& works);

}  // namespace orthant
