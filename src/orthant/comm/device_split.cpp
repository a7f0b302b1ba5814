#include "orthant/comm/device_split.h"

namespace orthant::comm {
namespace {

class DeviceSplitTransport : public Transport {
 public:
  DeviceSplitTransport(std::unique_ptr<Transport> host, std::unique_ptr<Transport> device)
      : host_(std::move(host)), device_(std::move(device)) {}

  std::unique_ptr<Pending> start(const Call& call) override {
    const auto& any = call.outputs.empty() ? call.inputs : call.outputs;
    return any.empty() || any.front().device().is_cpu() ? host_->start(call) : device_->start(call);
  }

  void connect(const std::vector<MessagePair>& pairs) override {
    host_->connect(pairs);
    device_->connect(pairs);
  }

  void set_timeout(double timeout_seconds) override {
    host_->set_timeout(timeout_seconds);
    device_->set_timeout(timeout_seconds);
  }

 private:
  std::unique_ptr<Transport> host_;
  std::unique_ptr<Transport> device_;
};

}  // namespace

std::unique_ptr<Transport> make_device_split_transport(std::unique_ptr<Transport> host,
                                                       std::unique_ptr<Transport> device) {
  return std::make_unique<DeviceSplitTransport>(std::move(host), std::move(device));
}

}  // namespace orthant::comm
