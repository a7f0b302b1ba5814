// What is being written beside its final name: `<final>.partial-<pid>`, with -2, -3, … appended where that exists. Its
// maker holds an flock on it, which the kernel drops when the process dies, so that what a dead process left behind is
// told from what a living one writes even after process numbers have come round.
#pragma once

#include <filesystem>
#include <vector>

#include "orthant/files/file_handle.h"

namespace orthant {

// Absolute, without "..", "." or a slash at the end. DataError when that leaves no name.
std::filesystem::path final_path_of(const std::filesystem::path& path);

// An empty file open for writing, or an empty folder open for reading, that did not exist before, and its flock.
FileHandle make_partial_file(const std::filesystem::path& final_path);
FileHandle make_partial_folder(const std::filesystem::path& final_path);

// Files and folders in `parent` that dead processes left half-written, in order of name. Nothing is removed. Where the
// file system has no flock, process numbers of this host decide; so on a file system that hosts share, ask only
// while a FolderLock keeps other jobs out, in folders where one process of this job makes partials: the one that asks.
std::vector<std::filesystem::path> stale_partials(const std::filesystem::path& parent);

// Removes what dead processes left half-written of this one file or folder, where the flock proves them dead. Needs no
// FolderLock: a partial that a living process has just made, and not locked yet, makes it take another name. What
// cannot be removed stays.
void remove_left_partials(const std::filesystem::path& final_path) noexcept;

}  // namespace orthant
