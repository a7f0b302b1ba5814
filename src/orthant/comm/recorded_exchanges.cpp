#include "orthant/comm/recorded_exchanges.h"

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <utility>
#include <vector>

#include "orthant/base/error.h"

namespace orthant::comm {
namespace {

c10::Stream current_stream(at::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

// The event of what was put on the stream so far.
std::shared_ptr<c10::Event> so_far(const c10::Stream& stream) {
  auto event = std::make_shared<c10::Event>(stream.device_type());
  event->record(stream);
  return event;
}

// Over when its place in the line is. It keeps the tensors, whose memory other streams may use after wait().
class InLine : public Pending {
 public:
  InLine(const Call& call, at::Device device, std::shared_ptr<c10::Event> over)
      : inputs_(call.inputs), outputs_(call.outputs), device_(device), over_(std::move(over)) {}

  bool done() override { return true; }  // wait() never holds the host up

  void wait() override {
    if (over_) over_->block(current_stream(device_));
    inputs_.clear();
    outputs_.clear();
  }

 private:
  std::vector<at::Tensor> inputs_;
  std::vector<at::Tensor> outputs_;
  at::Device device_;
  std::shared_ptr<c10::Event> over_;
};

void check_recordable(const Call& call, at::Device device) {
  const auto refuse = [&](const char* why) {
    throw ConfigError(fmt::format("{} while a step is recorded as a CUDA graph: {}", describe(call), why),
                      {.remedy = "use train.cuda_graph=off"}, call.site);
  };
  if (call.is_point_to_point()) refuse("messages between two ranks stand in no common order");
  for (const auto* tensors : {&call.inputs, &call.outputs}) {
    for (const auto& tensor : *tensors) {
      if (tensor.device() != device) refuse("its tensors lie on the host");
    }
  }
}

class RecordableTransport : public Transport {
 public:
  RecordableTransport(std::unique_ptr<Transport> inner, std::shared_ptr<RecordedExchanges> exchanges)
      : inner_(std::move(inner)), exchanges_(std::move(exchanges)) {}

  std::unique_ptr<Pending> start(const Call& call) override {
    return exchanges_->on() ? exchanges_->start(*inner_, call) : inner_->start(call);
  }

  void connect(const std::vector<MessagePair>& pairs) override { inner_->connect(pairs); }
  void set_timeout(double timeout_seconds) override { inner_->set_timeout(timeout_seconds); }

 private:
  std::unique_ptr<Transport> inner_;
  std::shared_ptr<RecordedExchanges> exchanges_;
};

}  // namespace

void RecordedExchanges::begin() {
  if (on_) throw InternalError("a step is recorded within another");
  if (!device_.is_cpu() && !line_) {
    line_ = c10::impl::VirtualGuardImpl(device_.type()).getStreamFromGlobalPool(device_, /*isHighPriority=*/true);
  }
  if (line_) so_far(current_stream(device_))->block(*line_);
  on_ = true;
}

void RecordedExchanges::end(bool whole) {
  on_ = false;
  if (whole && line_) so_far(*line_)->block(current_stream(device_));
}

std::unique_ptr<Pending> RecordedExchanges::start(Transport& inner, const Call& call) {
  check_recordable(call, device_);
  if (!line_) {
    inner.start(call)->wait();
    return std::make_unique<InLine>(call, device_, nullptr);
  }
  so_far(current_stream(device_))->block(*line_);
  const c10::StreamGuard on_line(*line_);
  inner.start(call)->wait();
  return std::make_unique<InLine>(call, device_, so_far(*line_));
}

std::unique_ptr<Transport> make_recordable_transport(std::unique_ptr<Transport> inner,
                                                     std::shared_ptr<RecordedExchanges> exchanges) {
  return std::make_unique<RecordableTransport>(std::move(inner), std::move(exchanges));
}

}  // namespace orthant::comm
