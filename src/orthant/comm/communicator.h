// All communication of one rank on one mesh: its groups, made up front in one order on every rank, and the buffers that
// travel through them. One per rank and mesh; nothing here is global, so one process may hold many ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "orthant/base/error.h"
#include "orthant/base/timeouts.h"
#include "orthant/comm/board.h"
#include "orthant/comm/group.h"
#include "orthant/comm/store.h"
#include "orthant/comm/transport.h"
#include "orthant/launch/job.h"
#include "orthant/mesh/mesh.h"

namespace orthant::trace {
class Recorder;
}

namespace orthant::comm {

class CallWatch;
class RecordedCalls;
struct Recordings;
class GlooDevice;
class NoticedFailure;
class ShmDevice;
class GroupState;
struct ChannelMembers;

enum class BackendKind { automatic, gloo, shm, nccl, fake };
BackendKind parse_backend(const std::string& name);  // ConfigError that names the nearest
const char* name_of(BackendKind kind);

struct CommOptions {
  // automatic: NCCL for CUDA when libtorch has it, with Gloo for CPU tensors of the world; on CPU shared memory for
  // groups within a host and Gloo for the others.
  BackendKind backend = BackendKind::automatic;
  at::Device device = at::kCPU;            // where the tensors will live
  double timeout_seconds = 300;            // how long a call waits for peers
  std::optional<Timeouts> phases = {};     // the same by what the job does, see enter(); timeout_seconds is its start's
  bool check = false;                      // compare calls before they run; see Note [Checked calls]
  std::string bind_address = "127.0.0.1";  // address of this host that peers connect to
  // Ends this process with an error that nobody can be told: a call over NCCL failed and the rank does not come back
  // from a wait for the device. Empty: it waits on.
  std::function<void(const CommError&)> leave = {};
  WrapTransport wrap = {};  // around the transport of every group of several ranks; none when empty
};

// A group over axes, asked for before start. Which ranks it has follows from the mesh.
struct GroupRequest {
  AxisSet axes;
  Purpose purpose = Purpose::control;
};

// Sub-groups that placements ask for (owners of a tied parameter, holders of one key/value copy): disjoint lists of
// global ranks under one name, the same on every rank.
struct SubgroupRequest {
  std::string name;
  std::vector<std::vector<int>> members;
  Purpose purpose = Purpose::gradients;
};

class Communicator {
 public:
  // Collective over the world: waits for all ranks, then makes the world group and all requested ones, in this order.
  // Fake backends need no store and no peers.
  Communicator(const Mesh& mesh, int rank, std::optional<Store> store, CommOptions options,
               const std::vector<GroupRequest>& groups = {}, const std::vector<SubgroupRequest>& subgroups = {});
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  // Leaves without an error when close() was not called, e.g. while an exception travels.
  ~Communicator();

  const Mesh& mesh() const { return mesh_; }
  int rank() const { return rank_; }
  // Where this rank's calls are recorded.
  const std::shared_ptr<trace::Recorder>& recorder() const { return recorder_; }
  // What `auto` became for the world: "shm" or "gloo" may differ for groups within a host.
  const char* backend_name() const { return name_of(world_backend_); }

  // What moves the bytes of a group: ranks of one host may share memory while others talk over a network.
  const char* backend_of(const Group& group) const { return name_of(backend_for(group.ranks())); }

  // All ranks, for control.
  Group world() const { return world_; }
  // A requested group. ConfigError when it was not requested.
  Group group(AxisSet axes, Purpose purpose = Purpose::control) const;
  // The requested sub-group this rank is in; a group of this rank alone when it is in none.
  Group subgroup(const std::string& name) const;

  // A buffer that may travel without a copy where the backend can arrange it. Uninitialised, 64-byte aligned.
  at::Tensor allocate(int64_t num_elements, at::ScalarType dtype) const;

  // Whether allocate() takes memory that the process' own allocator does not count.
  bool allocates_shared() const { return shm_ != nullptr; }

  // Sum of the counters of all groups over `axes`, any purpose.
  Counters counters(AxisSet axes) const;
  // The same of every requested group and sub-group, by name; the names are the same on every rank. Control of the
  // whole world is left out.
  std::map<std::string, Counters> counters_by_name() const;

  // What the job does from now on, beginning with JobPhase::start: how long calls wait for peers depends on it where
  // CommOptions::phases says so. Not while a call is under way. Local, but all ranks should agree.
  void enter(JobPhase phase) const;

  // Throws the CommError of a call that failed after it was started: calls over NCCL were broken off then, and what the
  // device made of them means nothing. Local.
  void throw_if_failed() const;

  // Whether a step whose exchanges are collectives can be recorded as a CUDA graph: see Note [Recorded exchanges].
  bool records() const { return recordings_ != nullptr; }
  // Calls between the two are recorded, and counted once. `whole`: false when the recording was broken off; null is
  // returned then. Local; nothing may be under way when it begins.
  void begin_recording() const;
  std::shared_ptr<const RecordedCalls> end_recording(bool whole = true) const;
  // The recorded step was put on the current stream; `again` counts its calls once more. It is watched over as one call
  // of the world.
  void played(const RecordedCalls& calls, bool again) const;

  // Until end_cutting() no call travels: the step that makes them is recorded in pieces, and plays make them between
  // these. `cut` ends a piece, and has what it is given called behind it by each play: see Note [Cut at exchanges].
  // Over any backend. Local; nothing may be under way when it begins.
  void begin_cutting(const std::function<void(std::function<void()>)>& cut) const;
  void end_cutting() const;

  // Ends all groups, also for handles that are still held; reports a Work that nobody waited for. Where a rank serves
  // the store, that rank stays until all have left or the timeout has passed.
  void close();

 private:
  Group make_group(const std::string& name, const std::vector<int>& ranks, Purpose purpose);
  BackendKind backend_for(const std::vector<int>& ranks) const;
  std::unique_ptr<Transport> make_transport(const std::string& channel, const ChannelMembers& members);
  std::unique_ptr<Transport> connect_transport(const std::string& channel, const ChannelMembers& members);
  std::unique_ptr<Transport> connect_gloo(const std::string& channel, const ChannelMembers& members);
  void share_memory(const std::vector<std::string>& hosts);
  void check_requests(const std::vector<SubgroupRequest>& subgroups) const;
  void part(double timeout_seconds) noexcept;
  void leave(double timeout_seconds) noexcept;

  Mesh mesh_;
  int rank_;
  std::optional<Store> store_;
  CommOptions options_;
  BackendKind world_backend_ = BackendKind::fake;
  std::shared_ptr<GlooDevice> gloo_;  // null until a group needs it
  std::shared_ptr<ShmDevice> shm_;    // null when this rank shares no memory
  std::shared_ptr<NoticedFailure> noticed_;
  std::shared_ptr<trace::Recorder> recorder_;
  std::shared_ptr<CallWatch> watch_;        // null until a group uses NCCL
  std::shared_ptr<Recordings> recordings_;  // null where steps cannot be recorded
  std::shared_ptr<Board> board_;
  Group world_;
  std::map<std::string, Group> groups_;                      // by channel name
  std::vector<std::shared_ptr<GroupState>> states_;          // of groups_, to close them
  std::map<std::string, std::vector<std::string>> by_axes_;  // axes name -> channel names
  bool left_ = false;
};

// The job's store, or nothing when the job has one rank or a fake backend. Blocks until connected.
std::optional<Store> join_store(const launch::Job& job, const CommOptions& options);

// Joins the job's store and makes the communicator of this process: once per process. A program that wants several
// joins the store once and gives each communicator a part of it: join_store(), Store::below().
std::unique_ptr<Communicator> make_communicator(const Mesh& mesh, const launch::Job& job, CommOptions options,
                                                const std::vector<GroupRequest>& groups = {},
                                                const std::vector<SubgroupRequest>& subgroups = {});

}  // namespace orthant::comm
