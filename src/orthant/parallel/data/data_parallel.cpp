#include "orthant/parallel/data/data_parallel.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/nn/module.h>

#include <exception>
#include <optional>
#include <set>

#include "orthant/base/error.h"
#include "orthant/layout/rows.h"
#include "orthant/parallel/data/gradient_buckets.h"
#include "orthant/parallel/data/module_replicas.h"

namespace orthant {
namespace {

// One line per option that decides what travels.
std::string description_of(const DataParallelOptions& options) {
  return fmt::format("bucket_bytes: {}\nallow_unused: {}\nbroadcast_buffers: {}\nhook: {}\n", options.bucket_bytes,
                     options.allow_unused, options.broadcast_buffers, options.hook ? "given" : "none");
}

comm::CommOptions comm_options_for(const torch::nn::Module& module, const launch::Job& job) {
  comm::CommOptions options;
  options.bind_address = job.rendezvous.bind_address;
  const auto parameters = module.parameters();
  if (!parameters.empty()) options.device = parameters.front().device();
  return options;
}

void check_mesh(const Mesh& mesh) {
  if (mesh.degree(Axis::fsdp) == 1) return;
  throw ConfigError(fmt::format("DataParallel keeps whole replicas, but mesh {} shards over fsdp", mesh.to_string()),
                    {.remedy = "give these ranks to dp, or train a graph with orthant::Trainer"});
}

}  // namespace

class DataParallel::Replica {
 public:
  Replica(torch::nn::Module& module, comm::Communicator& communicator, std::unique_ptr<comm::Communicator> owned,
          const DataParallelOptions& options)
      : owned_(std::move(owned)),
        communicator_(communicator),
        group_(communicator.group(Axis::dp, comm::Purpose::gradients)),
        call_bytes_(options.bucket_bytes) {
    if (call_bytes_ < 1) {
      throw ConfigError(fmt::format("DataParallel: bucket_bytes is {}", call_bytes_),
                        {.remedy = "set it to 1 or more; 26214400 without a reason for another"});
    }
    check_same(communicator_, group_, description_of(options) + description_of(module));
    std::set<const void*> known;
    std::vector<at::Tensor> values;
    std::vector<NamedParameter> trainable;
    for (const auto& item : module.named_parameters()) {
      if (!known.insert(item.value().unsafeGetTensorImpl()).second) continue;
      values.push_back(item.value());
      if (item.value().requires_grad()) trainable.push_back({item.key(), item.value()});
    }
    for (const auto& buffer : module.buffers()) {
      if (buffer.defined()) buffers_.push_back(buffer);
    }
    if (trainable.empty()) {
      throw ConfigError("DataParallel: the module has no trainable parameter",
                        {.remedy = "register parameters with requires_grad, or leave DataParallel out"});
    }
    if (group_.size() == 1) return;
    buckets_.emplace(communicator_, group_, std::move(trainable), options);
    broadcast_values(communicator_, group_, values, call_bytes_);
    if (options.broadcast_buffers) broadcast_buffers();
  }

  ~Replica() {
    buckets_.reset();
    if (!owned_ || std::uncaught_exceptions() > num_exceptions_) return;
    try {
      owned_->close();
    } catch (const std::exception&) {
      // Only a backward that failed leaves calls open, and its error has been thrown.
    }
  }

  Replica(const Replica&) = delete;
  Replica& operator=(const Replica&) = delete;

  comm::Communicator& communicator() const { return communicator_; }
  const comm::Group& group() const { return group_; }
  int num_buckets() const { return buckets_ ? buckets_->size() : 0; }
  int& paused() { return buckets_ ? buckets_->paused() : nothing_to_pause_; }

  void broadcast_buffers() {
    if (group_.size() > 1) broadcast_values(communicator_, group_, buffers_, call_bytes_);
  }

 private:
  std::unique_ptr<comm::Communicator> owned_;  // null when the user's is used
  comm::Communicator& communicator_;
  comm::Group group_;
  std::int64_t call_bytes_;
  std::vector<at::Tensor> buffers_;
  std::optional<GradientBuckets> buckets_;  // none with one rank
  int nothing_to_pause_ = 0;
  int num_exceptions_ = std::uncaught_exceptions();
};

DataParallel::DataParallel(torch::nn::Module& module, const launch::Job& job, DataParallelOptions options) {
  auto owned =
      comm::make_communicator(Mesh(Degrees{{Axis::dp, job.world_size}}), job, comm_options_for(module, job), groups());
  auto& communicator = *owned;
  replica_ = std::make_unique<Replica>(module, communicator, std::move(owned), options);
}

DataParallel::DataParallel(torch::nn::Module& module, comm::Communicator& communicator, DataParallelOptions options) {
  check_mesh(communicator.mesh());
  replica_ = std::make_unique<Replica>(module, communicator, nullptr, options);
}

DataParallel::~DataParallel() = default;

std::vector<comm::GroupRequest> DataParallel::groups() {
  return {{Axis::dp, comm::Purpose::gradients}};
}

int DataParallel::rank() const {
  return replica_->group().index();
}

int DataParallel::size() const {
  return replica_->group().size();
}

Range DataParallel::rows(std::int64_t count) const {
  if (count < size()) {
    throw ConfigError(fmt::format("DataParallel: {} rows for {} ranks, so that one has none", count, size()),
                      {.remedy = fmt::format("use batches of at least {} rows, best of a multiple", size())});
  }
  return replica_rows(count, {.replicas = size(), .replica = rank()}).real;
}

at::Tensor DataParallel::rows(const at::Tensor& batch) const {
  const auto range = rows(batch.size(0));
  return batch.slice(0, range.begin, range.end);
}

DataParallel::Pause DataParallel::no_sync() {
  return Pause(replica_->paused());
}

void DataParallel::broadcast_buffers() {
  replica_->broadcast_buffers();
}

int DataParallel::num_buckets() const {
  return replica_->num_buckets();
}

comm::Communicator& DataParallel::communicator() const {
  return replica_->communicator();
}

}  // namespace orthant
