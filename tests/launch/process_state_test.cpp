// What the system tells of processes: those that live, those that are dead, and those that are dead and held.
#include "orthant/launch/process_state.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>

#include "launch/holder.h"

namespace orthant::launch {
namespace process_state_test {

// A child that runs `body`, killed and reaped at the end if it was not before.
class Child {
 public:
  explicit Child(const std::function<void()>& body) : pid_(fork()) {
    if (pid_ != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    body();
    _exit(70);
  }
  ~Child() {
    if (pid_ < 0) return;
    kill(pid_, SIGKILL);
    reap();
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const { return pid_; }

  int reap() {
    int status = 0;
    EXPECT_EQ(waitpid(pid_, &status, 0), pid_);
    pid_ = -1;
    return status;
  }

 private:
  pid_t pid_;
};

void live_forever() {
  for (;;) pause();
}

void wait_until_main_thread_is_dead(pid_t pid) {
  while (process_state(pid) != 'Z') usleep(100);
}

// The other threads are told of their end before the main thread dies, and come to it when they are next to run.
int wait_for_unreported_end(pid_t pid) {
  for (;;) {
    if (const auto end = unreported_end(pid)) return *end;
    usleep(100);
  }
}

TEST(ProcessState, IsThatOfTheSystem) {
  EXPECT_EQ(process_state(getpid()), 'R');
  EXPECT_EQ(process_state(999999999), 'X');
}

TEST(ProcessEnd, IsReportedOfAZombie) {
  Child child(live_forever);
  EXPECT_FALSE(reported_end(child.pid()));
  kill(child.pid(), SIGKILL);
  siginfo_t info{};
  waitid(P_PID, static_cast<id_t>(child.pid()), &info, WEXITED | WNOWAIT);
  EXPECT_EQ(reported_end(child.pid()), SIGKILL);
  EXPECT_FALSE(unreported_end(child.pid()));
  EXPECT_EQ(child.reap(), SIGKILL);
}

TEST(ProcessEnd, IsReportedWithTheExitCode) {
  Child child([] { _exit(3); });
  siginfo_t info{};
  waitid(P_PID, static_cast<id_t>(child.pid()), &info, WEXITED | WNOWAIT);
  EXPECT_EQ(reported_end(child.pid()), W_EXITCODE(3, 0));
}

TEST(ProcessEnd, IsNotThereWhileTheProcessLives) {
  Child child(live_forever);
  EXPECT_FALSE(reported_end(child.pid()));
  EXPECT_FALSE(unreported_end(child.pid()));
  EXPECT_FALSE(unreported_end(getpid())) << "no child of this process";
}

TEST(ProcessEnd, IsSeenBeforeItIsReportedWhereTheSystemHoldsAKilledThread) {
  for (const auto at : {Holder::At::kExit, Holder::At::kZombie}) {
    Holder holder;
    Child child([&] { holder.end_with_held_thread(at, [] { kill(getpid(), SIGKILL); }); });
    EXPECT_EQ(wait_for_unreported_end(child.pid()), SIGKILL);
    wait_until_main_thread_is_dead(child.pid());
    EXPECT_EQ(unreported_end(child.pid()), SIGKILL);
    EXPECT_FALSE(reported_end(child.pid()));
    holder.release();
    EXPECT_EQ(child.reap(), SIGKILL);
  }
}

TEST(ProcessEnd, IsSeenWithTheExitCodeWhereTheSystemHoldsAThread) {
  for (const int code : {0, 3}) {
    Holder holder;
    Child child([&] { holder.end_with_held_thread(Holder::At::kZombie, [&] { _exit(code); }); });
    EXPECT_EQ(wait_for_unreported_end(child.pid()), W_EXITCODE(code, 0));
    EXPECT_FALSE(reported_end(child.pid()));
    holder.release();
    EXPECT_EQ(child.reap(), W_EXITCODE(code, 0));
  }
}

TEST(ProcessEnd, IsNotThereWhileAnotherThreadOutlivesTheMainThread) {
  Child child([] {
    std::thread(live_forever).detach();
    syscall(SYS_exit, 0);  // as pthread_exit() does in the end, without unwinding the test's frames
  });
  wait_until_main_thread_is_dead(child.pid());
  EXPECT_FALSE(reported_end(child.pid()));
  EXPECT_FALSE(unreported_end(child.pid()));
}

}  // namespace process_state_test
}  // namespace orthant::launch
