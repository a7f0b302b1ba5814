// What the system tells of a process of this host: its state, and how a child has ended. A process that is killed while
// its threads are inside a device's driver is dead, but neither SIGCHLD nor waitid() says so until the last thread has
// left the driver, which may take as long as the device is busy: unreported_end() sees it before.
#pragma once

#include <sys/types.h>

#include <optional>

namespace orthant::launch {

// As /proc shows it, of the main thread: see RankState. 'X' when there is no such process.
char process_state(pid_t pid);

// How a child of this process has ended, as waitpid gives it; nothing while waitid() does not report it. The child
// stays a zombie.
std::optional<int> reported_end(pid_t child);

// The same of a child that waitid() does not report and of whose program nothing will ever run again: all its threads
// are gone, exiting or about to be killed. Nothing of a child that goes on without its main thread.
std::optional<int> unreported_end(pid_t child);

}  // namespace orthant::launch
