#include "orthant/train/table_of_host.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "orthant/comm/control_group.h"
#include "orthant/data/shared_tables.h"
#include "orthant/launch/sockets.h"
#include "orthant/shm/mapping.h"

namespace orthant {
namespace {

// The table from this memory; the file that was read into it is given up.
ReadTable in_memory(const std::string& text, const std::string& hash, const std::shared_ptr<shm::Mapping>& memory) {
  return {open_shared_tables(text, {memory->data(), memory->bytes()}, memory), hash};
}

// Puts the table into memory that other processes of this user may open; gives what they need for it.
std::string share(ReadTable& table, std::shared_ptr<shm::Mapping>& memory) {
  memory = shm::Mapping::create(shared_size(table.tables));
  const auto text = share_tables(table.tables, {memory->data(), memory->bytes()});
  table = in_memory(text, table.hash, memory);
  return nlohmann::json{{"process", getpid()}, {"fd", memory->fd()}, {"hash", table.hash}, {"tables", text}}.dump();
}

// Null where the system does not let this process open it.
std::shared_ptr<shm::Mapping> open_memory(const nlohmann::json& said, int reader) {
  const auto path = fmt::format("/proc/{}/fd/{}", said.at("process").get<int>(), said.at("fd").get<int>());
  const launch::Fd fd(open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (fd.get() < 0) return nullptr;
  return shm::Mapping::open(fd.get(), 1, std::numeric_limits<std::size_t>::max(),
                            fmt::format("the table of rank {}", reader));
}

}  // namespace

TableOfHost read_table_once(const RunConfig& config, const Classifier& model, const ControlGroup& ranks) {
  const auto hosts = ranks.gather_texts(shm::host_identity());
  const auto& host = hosts.at(static_cast<std::size_t>(ranks.rank()));
  TableOfHost result;
  result.reader = static_cast<int>(std::ranges::find(hosts, host) - hosts.begin());
  std::shared_ptr<shm::Mapping> memory;
  std::string said;
  ranks.together([&] {
    if (result.reader != ranks.rank()) return;
    result.table = read_table(config, model);
    if (std::ranges::count(hosts, host) > 1) said = share(result.table, memory);
  });
  const auto all = ranks.gather_texts(said);
  ranks.together([&] {  // the reader keeps its descriptor open until all have
    if (result.reader == ranks.rank()) return;
    const auto shared = nlohmann::json::parse(all.at(static_cast<std::size_t>(result.reader)));
    if (const auto mapped = open_memory(shared, result.reader)) {
      result.table = in_memory(shared.at("tables"), shared.at("hash"), mapped);
    } else {
      result.table = read_table(config, model);
      result.reader = ranks.rank();
    }
  });
  return result;
}

}  // namespace orthant
