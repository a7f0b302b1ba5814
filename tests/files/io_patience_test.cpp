#include "orthant/files/io_patience.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <thread>

namespace orthant {
namespace io_patience_test {

TEST(IoPatience, TriesAgainWhatMayGoWellLater) {
  int calls = 0;
  const auto answer = IoPatience(1).retry([&] {
    if (++calls < 3) throw IoError("busy", ESTALE);
    return 7;
  });
  EXPECT_EQ(answer, 7);
  EXPECT_EQ(calls, 3);
}

TEST(IoPatience, GivesUpAfterItsTime) {
  int calls = 0;
  EXPECT_THROW(IoPatience(0.05).retry([&] {
    ++calls;
    throw IoError("gone", EIO);
  }),
               IoError);
  EXPECT_GE(calls, 3);  // pauses of 10, 20 and 20 ms, or longer ones
  EXPECT_LE(calls, 4);
  calls = 0;
  EXPECT_THROW(IoPatience(0).retry([&] {
    ++calls;
    throw IoError("gone", EIO);
  }),
               IoError);
  EXPECT_EQ(calls, 1);
}

TEST(IoPatience, AttemptsThatTakeLongCountToo) {
  int calls = 0;
  EXPECT_THROW(IoPatience(0.05).retry([&] {
    ++calls;
    std::this_thread::sleep_for(std::chrono::milliseconds(60));
    throw IoError("slow", ETIMEDOUT);
  }),
               IoError);
  EXPECT_EQ(calls, 2);
}

TEST(IoPatience, DoesNotRepeatWhatStaysSo) {
  int calls = 0;
  const auto act = [&] {
    ++calls;
    throw IoError("full", ENOSPC);
  };
  EXPECT_THROW(IoPatience(1).retry(act), IoError);
  EXPECT_EQ(calls, 1);
  EXPECT_THROW(IoPatience(1).retry([&] {
    ++calls;
    throw DataError("damaged");
  }),
               DataError);
  EXPECT_EQ(calls, 2);
  for (const int error : {EIO, ESTALE, EAGAIN, EMFILE, ENFILE, ETIMEDOUT, EACCES, EINTR}) {
    EXPECT_TRUE(is_transient(error)) << error;
  }
  for (const int error : {ENOENT, ENOSPC, EROFS, ENOTDIR, ELOOP}) EXPECT_FALSE(is_transient(error)) << error;
}

}  // namespace io_patience_test
}  // namespace orthant
