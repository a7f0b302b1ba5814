#include "orthant/comm/communicator.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "orthant/base/error.h"
#include "orthant/base/error_report.h"
#include "orthant/base/nearest.h"
#include "orthant/comm/call_failure.h"
#include "orthant/comm/call_watch.h"
#include "orthant/comm/checked.h"
#include "orthant/comm/device_split.h"
#include "orthant/comm/gloo.h"
#include "orthant/comm/group_state.h"
#include "orthant/comm/host_socket.h"
#include "orthant/comm/identity.h"
#include "orthant/comm/nccl.h"
#include "orthant/comm/recorded_exchanges.h"
#include "orthant/comm/shm.h"
#include "orthant/comm/staged.h"
#include "orthant/trace/recorder.h"

namespace orthant::comm {
namespace {

std::string channel_name(const std::string& group, Purpose purpose) {
  return fmt::format("{}/{}", group, name_of(purpose));
}

BackendKind resolve(BackendKind kind, const at::Device& device) {
  if (kind != BackendKind::automatic || !device.is_cuda()) return kind;
  return nccl_available() ? BackendKind::nccl : BackendKind::gloo;
}

}  // namespace

BackendKind parse_backend(const std::string& name) {
  if (name == "auto") return BackendKind::automatic;
  if (name == "gloo") return BackendKind::gloo;
  if (name == "shm") return BackendKind::shm;
  if (name == "nccl") return BackendKind::nccl;
  if (name == "fake") return BackendKind::fake;
  const std::vector<std::string> valid{"auto", "gloo", "shm", "nccl", "fake"};
  throw ConfigError(fmt::format("unknown backend '{}'", name),
                    {.remedy = fmt::format("use --backend {} (one of {})", nearest(name, valid).value_or("auto"),
                                           fmt::join(valid, ", "))});
}

const char* name_of(BackendKind kind) {
  static constexpr const char* kNames[] = {"auto", "gloo", "shm", "nccl", "fake"};
  return kNames[static_cast<size_t>(kind)];
}

Communicator::Communicator(const Mesh& mesh, int rank, std::optional<Store> store, CommOptions options,
                           const std::vector<GroupRequest>& groups, const std::vector<SubgroupRequest>& subgroups)
    : mesh_(mesh),
      rank_(rank),
      store_(std::move(store)),
      options_(std::move(options)),
      noticed_(std::make_shared<NoticedFailure>()),
      recorder_(std::make_shared<trace::Recorder>(rank, mesh.world_size())) {
  check_requests(subgroups);
  options_.backend = resolve(options_.backend, options_.device);
  if (options_.backend == BackendKind::fake || mesh_.world_size() == 1) {
    store_.reset();
    left_ = true;  // nobody to tell
  } else {
    if (!store_) {
      throw InternalError("a communicator of several ranks needs a store",
                          {.remedy = "pass join_store(job)", .rank = rank_});
    }
    if (store_->has(fmt::format("arrived/{}", rank_))) {
      throw ConfigError("this store already serves a communicator of this rank",
                        {.remedy = "give each communicator store.below(NAME)", .rank = rank_});
    }
    const bool share = options_.device.is_cpu() &&
                       (options_.backend == BackendKind::automatic || options_.backend == BackendKind::shm);
    if (share) shm_ = ShmDevice::create(rank_, mesh_.world_size());
    const auto hosts = wait_for_all(*store_, rank_, mesh_.world_size(), options_.timeout_seconds,
                                    shm_ ? ShmDevice::host() : "no shared memory");
    if (shm_) share_memory(hosts);
    board_ = std::make_shared<Board>(*store_, rank_, mesh_.world_size());
    if (shm_) board_->watch([shm = shm_](int peer) { return shm->is_gone(peer); });
  }

  std::vector<int> everyone(static_cast<size_t>(mesh_.world_size()));
  for (size_t i = 0; i < everyone.size(); ++i) everyone[i] = static_cast<int>(i);
  world_backend_ = backend_for(everyone);
  world_ = make_group("world", everyone, Purpose::control);
  for (const auto& request : groups) {
    const auto name = request.axes.name();
    const auto channel = channel_name(name, request.purpose);
    if (groups_.contains(channel)) continue;
    make_group(name, mesh_.group_of(rank_, request.axes), request.purpose);
    by_axes_[name].push_back(channel);
  }
  for (const auto& request : subgroups) {
    std::vector<int> own{rank_};
    for (const auto& members : request.members) {
      if (std::find(members.begin(), members.end(), rank_) != members.end()) own = members;
    }
    make_group(request.name, own, request.purpose);
    by_axes_[request.name].push_back(channel_name(request.name, request.purpose));
  }
  // Gloo connects pairs one by one: a rank that is done and fails at once would break the connecting of a slower one,
  // which would then blame the network. So nobody begins before all are connected.
  if (gloo_) wait_for_all(store_->below("connected"), rank_, mesh_.world_size(), options_.timeout_seconds, "");
}

void Communicator::share_memory(const std::vector<std::string>& hosts) {
  std::vector<int> ranks;  // of this host
  for (size_t rank = 0; rank < hosts.size(); ++rank) {
    if (static_cast<int>(rank) == rank_ || hosts[rank] == ShmDevice::host()) ranks.push_back(static_cast<int>(rank));
  }
  if (ranks.size() == 1) return;
  if (const auto descriptors = store_->descriptors()) {
    shm_->connect(ranks, *descriptors, options_.timeout_seconds);
  } else {
    HostSocket socket(*store_, ranks, rank_, options_.timeout_seconds);
    shm_->connect(ranks, socket.descriptors(), options_.timeout_seconds);
    socket.wait_until_all_have_used_it();
  }
}

void Communicator::check_requests(const std::vector<SubgroupRequest>& subgroups) const {
  std::set<std::string> names;
  for (const auto& request : subgroups) {
    std::set<int> seen;
    bool sound = names.insert(request.name).second && request.name != "world";
    for (const Axis axis : kAxes) sound = sound && request.name != axis_name(axis);
    for (const auto& members : request.members) {
      sound = sound && std::is_sorted(members.begin(), members.end());
      for (const int rank : members)
        sound = sound && rank >= 0 && rank < mesh_.world_size() && seen.insert(rank).second;
    }
    if (!sound) {
      throw ConfigError(
          fmt::format("sub-group {}: its name is taken, or its members are not disjoint ascending ranks below {}",
                      request.name, mesh_.world_size()),
          {.remedy = "use a new name and disjoint lists of ranks", .rank = rank_});
    }
  }
}

Communicator::~Communicator() {
  leave(0);
}

Group Communicator::make_group(const std::string& name, const std::vector<int>& ranks, Purpose purpose) {
  const auto channel = channel_name(name, purpose);
  const auto place = std::find(ranks.begin(), ranks.end(), rank_);
  if (place == ranks.end()) {
    throw InternalError(fmt::format("rank is no member of its group {}", name),
                        {.remedy = "report this", .rank = rank_});
  }
  const int index = static_cast<int>(place - ranks.begin());
  // Several groups of one name exist side by side; the first member tells them apart.
  const auto unique_name = fmt::format("{}@{}", channel, ranks.front());
  std::optional<Store> store;
  if (store_ && ranks.size() > 1) store = store_->below(unique_name);
  const ChannelMembers members{name, ranks, index, purpose};
  auto state = std::make_shared<GroupState>(members, make_transport(unique_name, members), store,
                                            options_.timeout_seconds, noticed_);
  state->record_into(recorder_, fmt::format("{} {}", unique_name, fmt::join(ranks, ",")));
  states_.push_back(state);
  return groups_.emplace(channel, Group(state)).first->second;
}

BackendKind Communicator::backend_for(const std::vector<int>& ranks) const {
  if (options_.backend == BackendKind::automatic) {
    return shm_ && shm_->reaches(ranks) ? BackendKind::shm : BackendKind::gloo;
  }
  if (options_.backend == BackendKind::shm && store_ && !(shm_ && shm_->reaches(ranks))) {
    throw ConfigError(fmt::format("--backend shm: ranks [{}] do not share a host, or their tensors are not on the CPU",
                                  fmt::join(ranks, ", ")),
                      {.remedy = "use --backend auto", .rank = rank_});
  }
  return options_.backend;
}

std::unique_ptr<Transport> Communicator::connect_gloo(const std::string& channel, const ChannelMembers& members) {
  if (!gloo_) gloo_ = std::make_shared<GlooDevice>(options_.bind_address);
  return make_staged_transport(make_gloo_transport(*gloo_, store_->below(channel), members.index,
                                                   static_cast<int>(members.ranks.size()), options_.timeout_seconds));
}

std::unique_ptr<Transport> Communicator::connect_transport(const std::string& channel, const ChannelMembers& members) {
  switch (backend_for(members.ranks)) {
    case BackendKind::shm:
      return make_shm_transport(shm_, channel, members.ranks, members.index, options_.timeout_seconds);
    case BackendKind::nccl: {
      if (!watch_) {
        watch_ = std::make_shared<CallWatch>(noticed_, options_.leave);
        // Checks ask the store before each call.
        if (!options_.check) recordings_ = std::make_shared<Recordings>(options_.device);
      }
      auto nccl =
          make_nccl_transport(watch_, store_->below(channel), members, options_.device, options_.timeout_seconds);
      if (members.purpose == Purpose::control) {
        nccl = make_device_split_transport(connect_gloo(channel + "/host", members), std::move(nccl));
      }
      if (!recordings_) return nccl;
      return make_recordable_transport(std::move(nccl), {recordings_, &recordings_->exchanges});
    }
    default:
      return connect_gloo(channel, members);
  }
}

std::unique_ptr<Transport> Communicator::make_transport(const std::string& channel, const ChannelMembers& members) {
  const auto& [name, ranks, index, purpose] = members;
  const int size = static_cast<int>(ranks.size());
  if (size == 1 || options_.backend == BackendKind::fake) return make_identity_transport(size);
  std::unique_ptr<Transport> transport;
  try {
    transport = connect_transport(channel, members);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    if (is_out_of_memory(error)) throw;
    const std::string text = error.what();
    throw CommError(
        fmt::format("group {} of ranks [{}] could not be connected within {:.6g} s: {}", channel,
                    fmt::join(ranks, ", "), options_.timeout_seconds, text.substr(0, text.find('\n'))),
        {.remedy = "see whether one of these ranks died; raise --timeout when they are only slow", .rank = rank_});
  }
  if (options_.check) {
    transport = make_checked_transport(std::move(transport), {channel, ranks, index, options_.timeout_seconds, watch_},
                                       store_->below(channel), board_);
  }
  return options_.wrap ? options_.wrap(std::move(transport), ranks, index) : std::move(transport);
}

Group Communicator::group(AxisSet axes, Purpose purpose) const {
  const auto found = groups_.find(channel_name(axes.name(), purpose));
  if (found == groups_.end()) {
    throw ConfigError(fmt::format("group {} for {} was not asked for before start", axes.name(), name_of(purpose)),
                      {.remedy = "add it to the communicator's group requests", .rank = rank_});
  }
  return found->second;
}

Group Communicator::subgroup(const std::string& name) const {
  const auto channels = by_axes_.find(name);
  if (channels == by_axes_.end()) {
    throw ConfigError(fmt::format("sub-group {} was not asked for before start", name),
                      {.remedy = "add it to the communicator's sub-group requests", .rank = rank_});
  }
  return groups_.at(channels->second.front());
}

at::Tensor Communicator::allocate(int64_t num_elements, at::ScalarType dtype) const {
  if (shm_) return allocate_shared(shm_, num_elements, dtype);
  return at::empty({num_elements}, at::TensorOptions().dtype(dtype).device(options_.device));
}

Counters Communicator::counters(AxisSet axes) const {
  return counters_by_name()[axes.name()];
}

std::map<std::string, Counters> Communicator::counters_by_name() const {
  std::map<std::string, Counters> found;
  for (const auto& [name, channels] : by_axes_) {
    for (const auto& channel : channels) found[name] += groups_.at(channel).counters();
  }
  return found;
}

void Communicator::enter(JobPhase phase) const {
  if (!options_.phases) return;
  for (const auto& state : states_) state->set_timeout(options_.phases->of(phase));
}

void Communicator::throw_if_failed() const {
  noticed_->throw_if_set();
}

void Communicator::close() {
  throw_if_failed();
  for (const auto& state : states_) {
    state->throw_if_dropped();
    if (state->num_open() != 0) {
      throw ConfigError(fmt::format("closed with {} calls on group {} that nobody has waited for", state->num_open(),
                                    state->members().name),
                        {.remedy = "wait for every Work before close()", .rank = rank_});
    }
  }
  part(options_.timeout_seconds);
  leave(options_.timeout_seconds);
}

// NCCL: a rank whose part of a call is done may be in possession of what a peer still waits for, so nobody ends a
// communicator before all ranks have done their calls. Whoever does not come has failed, and says so.
void Communicator::part(double timeout_seconds) noexcept {
  if (!watch_ || !watch_->wait_until_done(timeout_seconds)) return;
  try {
    wait_for_all(store_->below("parting"), rank_, mesh_.world_size(), timeout_seconds, "");
  } catch (const std::exception&) {
  }
}

// Says goodbye and ends the groups, so that peers inside a call are told; the server of the store then stays for the
// others.
void Communicator::leave(double timeout_seconds) noexcept {
  const bool tells = !left_;
  left_ = true;
  try {
    if (tells) board_->left();
  } catch (const std::exception&) {
    // The store's server is gone: there is nobody to tell.
  }
  if (recordings_ && recordings_->any_left()) watch_->give_up();
  for (const auto& state : states_) state->close();
  try {
    if (tells && store_->is_served_here() && timeout_seconds > 0) board_->wait_for_leavers(timeout_seconds);
  } catch (const std::exception&) {
    // As above.
  }
}

std::optional<Store> join_store(const launch::Job& job, const CommOptions& options) {
  if (options.backend == BackendKind::fake || job.world_size == 1) return std::nullopt;
  return connect(job, options.timeout_seconds);
}

std::unique_ptr<Communicator> make_communicator(const Mesh& mesh, const launch::Job& job, CommOptions options,
                                                const std::vector<GroupRequest>& groups,
                                                const std::vector<SubgroupRequest>& subgroups) {
  mesh.check_world(job.world_size);
  return std::make_unique<Communicator>(mesh, job.rank, join_store(job, options), std::move(options), groups,
                                        subgroups);
}

}  // namespace orthant::comm
