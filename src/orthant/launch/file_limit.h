// How many files this process may open at a time. Whoever serves ranks holds a few descriptors for each of them.
#pragma once

#include <sys/resource.h>

namespace orthant::launch {

// While this lives the process may open as many files as the system allows; then as many as before.
class RaisedFileLimit {
 public:
  RaisedFileLimit() {
    getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit most{before_.rlim_max, before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &most);
  }
  ~RaisedFileLimit() { setrlimit(RLIMIT_NOFILE, &before_); }
  RaisedFileLimit(const RaisedFileLimit&) = delete;
  RaisedFileLimit& operator=(const RaisedFileLimit&) = delete;

  const rlimit& before() const { return before_; }

 private:
  rlimit before_{};
};

}  // namespace orthant::launch
