// Host lists as schedulers write them: Slurm's bracket notation and the node files of PBS and LSF.
#pragma once

#include <string>
#include <vector>

namespace orthant::launch {

// "node[01-03,07],gpu-[1-2]-x" as the single host names, in order. ConfigError, naming `variable`, for a broken list.
// Local.
std::vector<std::string> expand_node_list(const std::string& text, const std::string& variable);

// "4(x2),3" as 4, 4, 3. ConfigError, naming `variable`, for anything else. Local.
std::vector<int> expand_tasks_per_node(const std::string& text, const std::string& variable);

// The words of a file with one host per line, repeats included. ConfigError when it cannot be read or is empty. Local.
std::vector<std::string> read_node_file(const std::string& path, const std::string& variable);

// The words of a text. Local.
std::vector<std::string> split_words(const std::string& text);

// Each host once, in order of first appearance. Local.
std::vector<std::string> different_hosts(const std::vector<std::string>& words);

// As different_hosts, less LSF's launch node, which runs no ranks: a first host named once where all others repeat.
// Local.
std::vector<std::string> lsf_compute_hosts(const std::vector<std::string>& words);

}  // namespace orthant::launch
