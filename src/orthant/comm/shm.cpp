#include "orthant/comm/shm.h"

#include <ATen/ops/from_blob.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <span>

#include "orthant/base/error.h"
#include "orthant/shm/channel.h"

namespace orthant::comm {

struct ShmDevice::Impl {
  Impl(int rank, size_t arena_bytes, int num_local_ranks) : endpoint(rank, arena_bytes, num_local_ranks) {}
  shm::Endpoint endpoint;
  std::set<int> reached;
};

namespace {

constexpr size_t kMostMemoriesAtOnce = 64;  // descriptors that are open until their memory is mapped

// Room for all buffers of a rank; only touched pages exist.
size_t arena_bytes() {
  return static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

shm::Dtype dtype_of(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return shm::Dtype::f32;
    case at::kDouble:
      return shm::Dtype::f64;
    case at::kBFloat16:
      return shm::Dtype::bf16;
    case at::kHalf:
      return shm::Dtype::f16;
    case at::kLong:
      return shm::Dtype::i64;
    case at::kInt:
      return shm::Dtype::i32;
    case at::kByte:
      return shm::Dtype::u8;
    default:
      throw InternalError("a dtype that validate() lets through has no shared-memory kernel");
  }
}

std::byte* bytes_of(const at::Tensor& tensor) {
  return static_cast<std::byte*>(tensor.data_ptr());
}

std::vector<int64_t> counts_or_equal(const std::vector<int64_t>& counts, const at::Tensor& whole, size_t size) {
  if (!counts.empty()) return counts;
  return std::vector<int64_t>(size, whole.numel() / static_cast<int64_t>(size));
}

class ShmPending : public Pending {
 public:
  explicit ShmPending(const Call& call) : inputs_(call.inputs), outputs_(call.outputs) {}
  void add(shm::Ticket ticket) { tickets_.push_back(std::move(ticket)); }

  void wait() override {
    try {
      for (auto& ticket : tickets_) ticket.wait();
    } catch (const shm::PeerFailure& failure) {
      throw PeerFailure({failure.rank()}, failure.what());
    }
    tickets_.clear();
  }

  bool done() override {
    return std::ranges::all_of(tickets_, [](const shm::Ticket& ticket) { return ticket.is_done(); });
  }

 private:
  std::vector<at::Tensor> inputs_;  // kept until the call is done
  std::vector<at::Tensor> outputs_;
  std::vector<shm::Ticket> tickets_;
};

class ShmTransport : public Transport {
 public:
  ShmTransport(std::shared_ptr<ShmDevice> device, const std::string& channel, const std::vector<int>& ranks, int index,
               double timeout_seconds)
      : device_(std::move(device)),
        size_(ranks.size()),
        channel_(device_->impl().endpoint, channel, ranks, index, timeout_seconds) {}

  std::unique_ptr<Pending> start(const Call& call) override {
    auto pending = std::make_unique<ShmPending>(call);
    if (call.op == Op::send) {
      const auto& tensor = call.inputs.front();
      pending->add(channel_.send(bytes_of(tensor), tensor.nbytes(), call.peer, call.tag));
    } else if (call.op == Op::receive) {
      const auto& tensor = call.outputs.front();
      pending->add(channel_.receive(bytes_of(tensor), tensor.nbytes(), call.peer, call.tag));
    } else if (call.op == Op::barrier) {
      pending->add(channel_.collective({}));
    } else {
      for (size_t i = 0; i < call.outputs.size(); ++i) pending->add(channel_.collective(request_of(call, i)));
    }
    return pending;
  }

  void set_timeout(double timeout_seconds) override { channel_.set_timeout(timeout_seconds); }

 private:
  using Kind = shm::CollectiveRequest::Kind;

  shm::CollectiveRequest request_of(const Call& call, size_t i) const {
    shm::CollectiveRequest request;
    const auto& output = call.outputs[i];
    request.dtype = dtype_of(output);
    request.reduce = call.reduction == Reduction::sum ? shm::Reduce::sum : shm::Reduce::max;
    request.output = bytes_of(output);
    if (call.op == Op::all_reduce || call.op == Op::broadcast) {
      request.kind = call.op == Op::all_reduce ? Kind::all_reduce : Kind::broadcast;
      request.count = output.numel();
      request.root = call.op == Op::broadcast ? call.peer : 0;
      return request;
    }
    const auto& input = call.inputs[i];
    request.input = bytes_of(input);
    if (call.op == Op::all_gather) {
      request.kind = Kind::all_gather;
      request.output_counts = counts_or_equal(call.output_counts, output, size_);
    } else if (call.op == Op::reduce_scatter) {
      request.kind = Kind::reduce_scatter;
      request.input_counts = counts_or_equal(call.input_counts, input, size_);
    } else {
      request.kind = Kind::all_to_all;
      request.input_counts = counts_or_equal(call.input_counts, input, size_);
      request.output_counts = counts_or_equal(call.output_counts, output, size_);
    }
    return request;
  }

  std::shared_ptr<ShmDevice> device_;
  size_t size_;
  shm::Channel channel_;
};

}  // namespace

ShmDevice::ShmDevice(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ShmDevice::~ShmDevice() = default;

std::shared_ptr<ShmDevice> ShmDevice::create(int rank, int num_local_ranks) {
  return std::shared_ptr<ShmDevice>(new ShmDevice(std::make_unique<Impl>(rank, arena_bytes(), num_local_ranks)));
}

std::string ShmDevice::host() {
  return shm::host_identity();
}

void ShmDevice::connect(const std::vector<int>& ranks, launch::FdExchange& descriptors, double timeout_seconds) {
  const auto key = [](int rank) { return fmt::format("memory/{}", rank); };
  auto& endpoint = impl_->endpoint;
  descriptors.put_fd(key(endpoint.rank()), endpoint.arena().mapping().fd(), static_cast<int>(ranks.size()) - 1);
  impl_->reached.insert(ranks.begin(), ranks.end());
  std::vector<int> peers = ranks;
  std::erase(peers, endpoint.rank());
  const auto deadline = launch::Clock::now() + launch::seconds(timeout_seconds);
  for (size_t first = 0; first < peers.size(); first += kMostMemoriesAtOnce) {
    const std::span some(peers.data() + first, std::min(kMostMemoriesAtOnce, peers.size() - first));
    std::vector<std::string> keys;
    for (const int rank : some) keys.push_back(key(rank));
    auto memories = descriptors.get_fds(keys, launch::left_until(deadline));
    for (size_t i = 0; i < some.size(); ++i) {
      auto& memory = memories[i];
      if (!memory) {
        throw CommError(
            fmt::format("rank {} did not hand over its shared memory within {:.6g} s", some[i], timeout_seconds),
            {.remedy = "see the log of that rank; raise --timeout when it is only slow", .rank = endpoint.rank()});
      }
      endpoint.connect(some[i], memory->fd.get(), memory->pidfd.release());
    }
  }
}

bool ShmDevice::reaches(const std::vector<int>& ranks) const {
  for (const int rank : ranks) {
    if (!impl_->reached.contains(rank)) return false;
  }
  return true;
}

bool ShmDevice::is_gone(int rank) const {
  return impl_->reached.contains(rank) && impl_->endpoint.is_gone(rank);
}

std::unique_ptr<Transport> make_shm_transport(std::shared_ptr<ShmDevice> device, const std::string& channel,
                                              const std::vector<int>& ranks, int index, double timeout_seconds) {
  return std::make_unique<ShmTransport>(std::move(device), channel, ranks, index, timeout_seconds);
}

at::Tensor allocate_shared(std::shared_ptr<ShmDevice> device, int64_t num_elements, at::ScalarType dtype) {
  const auto bytes = static_cast<size_t>(num_elements) * c10::elementSize(dtype);
  auto* block = device->impl().endpoint.arena().allocate(bytes);
  return at::from_blob(
      block, {num_elements}, [device, block](void*) { device->impl().endpoint.arena().release(block); },
      at::TensorOptions().dtype(dtype));
}

}  // namespace orthant::comm
