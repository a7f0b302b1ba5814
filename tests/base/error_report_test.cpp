#include "orthant/base/error_report.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <new>
#include <stdexcept>
#include <system_error>

#include "orthant/base/error.h"

namespace orthant {
namespace error_report_test {

TEST(ErrorReport, OursKeepTheirTextAndExitCode) {
  EXPECT_EQ(report_text(ConfigError("wrong", {.remedy = "right"}), "error: "), "error: wrong\n  fix: right\n");
  EXPECT_EQ(report_of(CommError("gone")).exit_code, 3);
  EXPECT_EQ(report_text(InternalError("broken"), "").substr(0, 12), "broken\n  at ");
}

TEST(ErrorReport, WhatTheSystemRefusesIsNoDefectOfOurs) {
  const std::filesystem::filesystem_error path("cannot get status", "/a/b",
                                               std::make_error_code(std::errc::filename_too_long));
  EXPECT_EQ(report_text(path, ""), "/a/b: File name too long\n  fix: use a shorter path\n");
  EXPECT_EQ(report_of(path).exit_code, 4);
  const std::system_error threads(EAGAIN, std::generic_category(), "thread");
  EXPECT_EQ(report_of(threads).exit_code, 4);
  EXPECT_EQ(report_of(threads).remedy, "raise the limit on processes and threads (ulimit -u), or use fewer threads");
  EXPECT_EQ(report_of(std::system_error(EMFILE, std::generic_category())).remedy,
            "raise the limit on open files (ulimit -n)");
  EXPECT_EQ(report_of(std::bad_alloc()).message, "out of memory");
  EXPECT_EQ(report_of(std::bad_alloc()).exit_code, 4);
  EXPECT_EQ(report_of(std::bad_alloc()).error_number, ENOMEM);
  EXPECT_EQ(report_of(threads).error_number, EAGAIN);
  EXPECT_EQ(report_of(path).error_number, ENAMETOOLONG);
  EXPECT_EQ(report_of(std::runtime_error("DefaultCPUAllocator: can't allocate memory: you tried to ...")).exit_code, 4);
}

TEST(ErrorReport, LackOfMemoryIsKnownWhoeverThrowsIt) {
  EXPECT_TRUE(is_out_of_memory(std::bad_alloc()));
  EXPECT_TRUE(is_out_of_memory(std::system_error(ENOMEM, std::generic_category())));
  EXPECT_TRUE(is_out_of_memory(std::runtime_error("CUDA out of memory. Tried to allocate 2.00 GiB.")));
  EXPECT_TRUE(is_out_of_memory(std::runtime_error("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling ...")));
  EXPECT_FALSE(is_out_of_memory(std::system_error(EAGAIN, std::generic_category())));
  EXPECT_FALSE(is_out_of_memory(std::logic_error("never")));
  EXPECT_FALSE(is_out_of_memory(DataError("rank 1: out of memory")));  // says so itself
}

TEST(ErrorReport, TheRestIsOurs) {
  EXPECT_EQ(report_text(std::logic_error("never"), "error: "), "error: never\n");
  EXPECT_EQ(report_of(std::logic_error("never")).exit_code, 70);
}

TEST(ErrorReport, TextOfFilesCannotMoveTheCursor) {
  EXPECT_EQ(report_text(DataError("tensor \x1b[2J\rw", {.remedy = "a\x9b"}), ""),
            "tensor \\x1b[2J\\x0dw\n  fix: a\\x9b\n");
}

}  // namespace error_report_test
}  // namespace orthant
