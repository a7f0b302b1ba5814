// A rank's way into the store of its job where that is ours: by a connection inherited from the launcher, or at the
// socket of rank 0: a Unix-domain one on one host, over TCP and by the job's token on several.
#pragma once

#include <memory>
#include <string>

#include "orthant/launch/file_limit.h"
#include "orthant/launch/job.h"
#include "orthant/launch/store_client.h"
#include "orthant/launch/store_server.h"

namespace orthant::launch {

// Tells an executed rank its connection: "FD:INODE:RANK:WORLD_SIZE". The inode shows that the descriptor still is what
// the launcher opened, the ranks that the variable was meant for this process and not for one that started it.
inline constexpr const char* kStoreVariable = "ORTHANT_STORE";
std::string store_variable(int fd, const std::string& rank, const std::string& world_size);

// The descriptor in such a value; -1 when it does not fit this rank, is no such socket any more, or leads to another
// user, or to another host although all ranks are on this one. Processes that this one starts do not inherit it. Local.
int inherited_store(const std::string& variable, const Job& job);

struct JoinedStore {
  std::unique_ptr<RaisedFileLimit> file_limit;  // where this process serves it
  std::shared_ptr<StoreServer> server;          // the same
  std::shared_ptr<StoreClient> client;
};

// Whether the job's store is one of ours. Local.
bool has_orthant_store(const Job& job);

// Joins it; a process that does so twice at a time shares one connection. Blocks until rank 0 is there, where rank 0
// serves it; CommError after `timeout_seconds`.
std::shared_ptr<JoinedStore> join_orthant_store(const Job& job, double timeout_seconds);

// Serves a store at the listening socket of `job`, whose rank 0 this process is, and joins it.
std::shared_ptr<JoinedStore> serve_orthant_store(const Job& job);

}  // namespace orthant::launch
