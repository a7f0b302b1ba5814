// Shared memory: blocks, names, and that both sides see the same bytes.
#include "orthant/shm/arena.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <random>

#include "base/error_text.h"
#include "orthant/base/error.h"
#include "orthant/base/stable_hash.h"

namespace orthant::shm {
namespace arena_test {

TEST(Arena, HandsOutAlignedBlocksThatDoNotOverlapAndReusesFreedOnes) {
  Arena arena(8 << 20, 0);
  std::mt19937 random(1);
  std::map<std::byte*, size_t> blocks;
  for (int i = 0; i < 2000; ++i) {
    if (blocks.size() > 40 || (!blocks.empty() && random() % 3 == 0)) {
      const auto victim = std::next(blocks.begin(), static_cast<std::ptrdiff_t>(random() % blocks.size()));
      arena.release(victim->first);
      blocks.erase(victim);
      continue;
    }
    const size_t bytes = 1 + random() % 150000;
    auto* block = arena.allocate(bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % kAlignment, 0U);
    const auto next = blocks.lower_bound(block);
    if (next != blocks.end()) {
      EXPECT_LE(block + bytes, next->first);
    }
    if (next != blocks.begin()) {
      EXPECT_GE(block, std::prev(next)->first + std::prev(next)->second);
    }
    blocks[block] = bytes;
  }
  for (const auto& [block, bytes] : blocks) arena.release(block);
  EXPECT_NO_THROW(arena.release(arena.allocate(8 << 20)));  // everything has been joined again
}

TEST(Arena, RefusesMoreThanItHoldsAndABlockReleasedTwice) {
  Arena arena(1 << 20, 0);
  const auto text = error_text<DataError>([&] { arena.allocate(2 << 20); });
  EXPECT_NE(text.find(": out of memory\n  fix: use less memory per rank"), std::string::npos) << text;
  EXPECT_EQ(text.find("gloo"), std::string::npos) << text;
  auto* block = arena.allocate(100);
  arena.release(block);
  EXPECT_THROW(arena.release(block), InternalError);
}

struct Number {
  std::atomic<int> value{0};
};

std::shared_ptr<Mapping> opened(int fd) {
  return Mapping::open(fd, sizeof(ArenaHeader), size_t{1} << 30, "rank 3");
}

TEST(Arena, PublishedNamesAreFoundByThreadsAtTheSameAddress) {
  Arena arena(1 << 20, 0);
  const ArenaView view(opened(arena.mapping().fd()), 0);
  EXPECT_EQ(view.find(stable_hash("a"), 64), nullptr);
  auto* number = arena.publish<Number>("a", 64);
  EXPECT_EQ(view.find(stable_hash("a"), 64), reinterpret_cast<std::byte*>(number));
}

TEST(Arena, AnotherProcessThatGotTheDescriptorSeesWrites) {
  Arena arena(1 << 20, 0);
  auto* number = arena.publish<Number>("n", 0);
  const pid_t child = fork();
  if (child == 0) {
    const ArenaView view(opened(arena.mapping().fd()), 0);
    reinterpret_cast<Number*>(view.find(stable_hash("n"), sizeof(Number)))->value = 42;
    _exit(0);
  }
  waitpid(child, nullptr, 0);
  EXPECT_EQ(number->value.load(), 42);
}

// What Mapping::open says about a descriptor.
std::string refusal_of(int fd) {
  try {
    opened(fd);
  } catch (const CommError& error) {
    return error.message();
  }
  return "";
}

TEST(Mapping, CannotBeCutShortOrGrownByAPeer) {
  const auto mapping = Mapping::create(1 << 20);
  EXPECT_NE(ftruncate(mapping->fd(), 4096), 0);
  EXPECT_NE(ftruncate(mapping->fd(), 2 << 20), 0);
  EXPECT_NE(fcntl(mapping->fd(), F_ADD_SEALS, F_SEAL_WRITE), 0);
  EXPECT_EQ(fcntl(mapping->fd(), F_GETFD), FD_CLOEXEC);
}

TEST(Mapping, OpensNothingButSealedSharedMemoryOfAFittingSize) {
  constexpr int kAll = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  const auto memory = [](off_t bytes, int seals) {
    const int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    EXPECT_EQ(ftruncate(fd, bytes), 0);
    if (seals != 0) {
      EXPECT_EQ(fcntl(fd, F_ADD_SEALS, seals), 0);
    }
    return fd;
  };
  const auto expect_refused = [](int fd, const std::string& why) {
    const auto text = refusal_of(fd);
    EXPECT_TRUE(text.starts_with("rank 3: ")) << text;
    EXPECT_NE(text.find(why), std::string::npos) << text;
    close(fd);
  };
  expect_refused(memory(1 << 20, 0), "not sealed: it could be cut short");
  expect_refused(memory(1 << 20, F_SEAL_GROW | F_SEAL_SEAL), "not sealed");
  expect_refused(memory(1 << 20, F_SEAL_SHRINK | F_SEAL_GROW), "not sealed");
  expect_refused(memory(0, kAll), "has 0 bytes");
  expect_refused(memory(sizeof(ArenaHeader) - 1, kAll), "bytes, ");
  expect_refused(memory((off_t{1} << 30) + 1, kAll), "has 1073741825 bytes");
  expect_refused(memory(off_t{1} << 46, kAll), "has 70368744177664 bytes");
  expect_refused(open("/dev/zero", O_RDWR | O_CLOEXEC), "no shared memory");
  expect_refused(open("/proc/self/exe", O_RDONLY | O_CLOEXEC), "no shared memory");
  expect_refused(open("/tmp", O_RDONLY | O_CLOEXEC), "no shared memory");
  expect_refused(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), "no shared memory");
  expect_refused(-1, "no shared memory");
  const int sealed = memory(1 << 20, kAll | F_SEAL_WRITE);
  EXPECT_NE(refusal_of(sealed).find("cannot be mapped"), std::string::npos);
  close(sealed);
}

}  // namespace arena_test
}  // namespace orthant::shm
