#include "orthant/launch/activity_board.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "orthant/base/error.h"

namespace orthant::launch {

// Note [Versions of an action]
// A rank may be killed inside say(), so a slot never holds a text half replaced: it has four versions, and `count`, the
// number of texts said so far, tells which is the last complete one (count % 4). The writer fills the next version and
// then raises count. A reader takes count, copies that version and looks at count again: as long as it rose by less
// than three, nobody began to write over the copy's source. The contents are atomic words stored with release and
// loaded with acquire, so a reader that caught a word of a newer text also sees the count that came before it.
struct ActivitySlot {
  static constexpr size_t kMostFolderBytes = 1000;
  struct alignas(64) Version {
    std::atomic<uint64_t> words[kMostActivityBytes / sizeof(uint64_t)];
    std::atomic<int64_t> said_at;  // of the monotonic clock, which all processes of a host share
    std::atomic<int64_t> step;     // of the moment
    std::atomic<uint32_t> moment;  // its kind
    std::atomic<uint32_t> num_bytes;
  };
  static constexpr uint64_t kNumVersions = 4;

  std::atomic<uint64_t> mark;  // kMark in a board's slots, checked before a descriptor is believed to be a board
  std::atomic<uint64_t> count;
  std::atomic<int64_t> tensor_bytes;   // held now
  std::atomic<int64_t> besides_bytes;  // and of buffers that are not counted there
  std::atomic<uint32_t> phase;         // a JobPhase
  std::atomic<uint32_t> folder_bytes;  // stored behind the text, which is said once
  char folder[kMostFolderBytes];
  Version versions[kNumVersions];
};

namespace {

static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free,
              "processes share these, so they cannot have locks of their own");

constexpr uint64_t kMark = 0x4f72746841637435;  // "OrthAct5"; another layout takes another number
constexpr int kMostTries = 100'000;             // a reader gives up on a writer that does nothing but speak

thread_local Activity* thread_activity = nullptr;

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count();
}

// Null when the system refuses. `fd` -1: memory that forks share.
std::shared_ptr<ActivitySlot> map_slots(int fd, size_t num_bytes) {
  const int flags = fd < 0 ? MAP_SHARED | MAP_ANONYMOUS : MAP_SHARED;
  void* memory = mmap(nullptr, num_bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
  if (memory == MAP_FAILED) return nullptr;
  // The system's zeros are a valid, silent slot.
  return {static_cast<ActivitySlot*>(memory), [num_bytes](ActivitySlot* slots) { munmap(slots, num_bytes); }};
}

std::shared_ptr<ActivitySlot> slot_of(const std::shared_ptr<ActivitySlot>& slots, int slot) {
  return {slots, slots.get() + slot};
}

// The slot that "FD:SLOT" names, if that descriptor is a board. The descriptor is closed then and only then.
std::shared_ptr<ActivitySlot> slot_named_by(const char* variable) {
  if (variable == nullptr) return nullptr;
  const char* end = variable + std::strlen(variable);
  int fd = -1, slot = -1;
  const auto [colon, bad_fd] = std::from_chars(variable, end, fd);
  if (bad_fd != std::errc() || colon == end || *colon != ':') return nullptr;
  const auto [rest, bad_slot] = std::from_chars(colon + 1, end, slot);
  if (bad_slot != std::errc() || rest != end || fd < 0 || slot < 0) return nullptr;
  struct stat status{};
  if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) return nullptr;
  const auto num_bytes = static_cast<size_t>(status.st_size);
  if (num_bytes % sizeof(ActivitySlot) != 0 || static_cast<size_t>(slot) >= num_bytes / sizeof(ActivitySlot)) {
    return nullptr;
  }
  const auto slots = map_slots(fd, num_bytes);
  if (slots == nullptr || slots.get()[slot].mark.load() != kMark) return nullptr;
  Fd(fd).reset();
  return slot_of(slots, slot);
}

// As much of the text as fits, without half a UTF-8 character at its end.
std::string_view fitting(std::string_view text) {
  if (text.size() <= kMostActivityBytes) return text;
  size_t end = kMostActivityBytes;
  while (end > kMostActivityBytes - 4 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return text.substr(0, end);
}

// What a reader puts before the text. Nothing for a kind that is none.
std::string text_of(uint32_t kind, int64_t step) {
  if (kind == static_cast<uint32_t>(ActivityMoment::Kind::step)) return fmt::format("step {}, ", step);
  if (kind == static_cast<uint32_t>(ActivityMoment::Kind::evaluation)) {
    return fmt::format("evaluation after step {}, ", step);
  }
  return {};
}

void store_text(ActivitySlot& slot, ActivityMoment moment, std::string_view text) {
  const auto count = slot.count.load(std::memory_order_relaxed) + 1;
  auto& version = slot.versions[count % ActivitySlot::kNumVersions];
  for (size_t at = 0; at < text.size(); at += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, text.data() + at, std::min(sizeof word, text.size() - at));
    version.words[at / sizeof word].store(word, std::memory_order_release);
  }
  version.step.store(moment.step, std::memory_order_release);
  version.moment.store(static_cast<uint32_t>(moment.kind), std::memory_order_release);
  version.num_bytes.store(static_cast<uint32_t>(text.size()), std::memory_order_release);
  version.said_at.store(now_ns(), std::memory_order_release);
  slot.count.store(count, std::memory_order_release);
}

struct Said {
  std::string text;
  int64_t at = 0;
};

// Nothing when the version was written over meanwhile.
std::optional<Said> try_load_text(const ActivitySlot& slot) {
  const auto count = slot.count.load(std::memory_order_acquire);
  if (count == 0) return Said{};
  const auto& version = slot.versions[count % ActivitySlot::kNumVersions];
  const size_t num_bytes = std::min<size_t>(version.num_bytes.load(std::memory_order_acquire), kMostActivityBytes);
  const auto step = version.step.load(std::memory_order_acquire);
  const auto moment = version.moment.load(std::memory_order_acquire);
  Said said{std::string(num_bytes, ' '), version.said_at.load(std::memory_order_acquire)};
  for (size_t at = 0; at < num_bytes; at += sizeof(uint64_t)) {
    const uint64_t word = version.words[at / sizeof word].load(std::memory_order_acquire);
    std::memcpy(said.text.data() + at, &word, std::min(sizeof word, num_bytes - at));
  }
  if (slot.count.load(std::memory_order_relaxed) - count >= ActivitySlot::kNumVersions - 1) return std::nullopt;
  said.text = fitting(text_of(moment, step) + said.text);
  for (char& c : said.text) {
    if ((c >= 0 && c < ' ') || c == 0x7f) c = ' ';
  }
  return said;
}

Said load_text(const ActivitySlot& slot) {
  for (int i = 0; i < kMostTries; ++i) {
    if (auto said = try_load_text(slot)) return *said;
  }
  return {};
}

// The start for a number that is none.
JobPhase phase_in(const ActivitySlot& slot) {
  const auto number = slot.phase.load(std::memory_order_relaxed);
  return number <= static_cast<uint32_t>(JobPhase::save) ? static_cast<JobPhase>(number) : JobPhase::start;
}

int64_t held_in(const ActivitySlot& slot) {
  return slot.tensor_bytes.load(std::memory_order_relaxed) + slot.besides_bytes.load(std::memory_order_relaxed);
}

}  // namespace

ActivityBoard::ActivityBoard(int num_slots, For users) : num_slots_(num_slots) {
  const size_t num_bytes = num_slots * sizeof(ActivitySlot);
  const bool needs_fd = users == For::kPrograms;
  if (needs_fd) fd_.reset(memfd_create("orthant-activity", MFD_ALLOW_SEALING));
  // Sealed: a rank that cut it short would end the launcher at its next look.
  if (!needs_fd || (fd_ && ftruncate(fd_.get(), static_cast<off_t>(num_bytes)) == 0 &&
                    fcntl(fd_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)) {
    slots_ = map_slots(fd_.get(), num_bytes);
  }
  if (slots_ == nullptr) {
    const int error = errno;
    throw ConfigError(fmt::format("cannot make the table of what {} ranks do: {}", num_slots, std::strerror(error)),
                      {.remedy = error == EFBIG ? "raise the limit on file sizes (ulimit -f)"
                                                : "raise ulimit -n, free memory, or start fewer ranks"});
  }
  for (int i = 0; i < num_slots; ++i) slots_.get()[i].mark.store(kMark);
}

std::vector<ActivityBoard::Entry> ActivityBoard::entries() const {
  std::vector<Entry> entries;
  for (int i = 0; i < num_slots_; ++i) {
    auto said = load_text(slots_.get()[i]);
    const double age = said.text.empty() ? 0 : static_cast<double>(now_ns() - said.at) * 1e-9;
    entries.push_back({std::move(said.text), std::max(age, 0.0), phase_in(slots_.get()[i]), held_in(slots_.get()[i])});
  }
  return entries;
}

std::string ActivityBoard::run_folder() const {
  for (int i = 0; i < num_slots_; ++i) {
    const auto& slot = slots_.get()[i];
    const size_t num_bytes = slot.folder_bytes.load(std::memory_order_acquire);
    if (num_bytes > 0 && num_bytes <= ActivitySlot::kMostFolderBytes) return {slot.folder, num_bytes};
  }
  return {};
}

void ActivityBoard::take_slot(int slot) const {
  Activity& activity = Activity::of_process();
  activity.slot_ = slot_of(slots_, slot);
  activity.speaking_ = false;
}

std::string ActivityBoard::variable(int slot) const {
  return fmt::format("{}:{}", fd_.get(), slot);
}

Activity::Activity() : slot_(std::make_shared<ActivitySlot>()) {}

Activity::Activity(const ActivityBoard& board, int slot) : slot_(slot_of(board.slots_, slot)) {}

Activity::Activity(const char* variable) : slot_(slot_named_by(variable)) {
  if (slot_ == nullptr) slot_ = std::make_shared<ActivitySlot>();
}

Activity& Activity::of_process() {
  if (thread_activity != nullptr) return *thread_activity;
  // Never destroyed: threads and destructors may speak until the very end.
  static Activity& activity = *new Activity(std::getenv(kActivityVariable));
  return activity;
}

void Activity::say(ActivityMoment moment, std::string_view text) noexcept {
  if (speaking_.exchange(true, std::memory_order_acquire)) return;
  store_text(*slot_, moment, fitting(text));
  speaking_.store(false, std::memory_order_release);
}

void Activity::enter(JobPhase phase) noexcept {
  slot_->phase.store(static_cast<uint32_t>(phase), std::memory_order_relaxed);
}

std::atomic<int64_t>& Activity::tensor_bytes() noexcept {
  return slot_->tensor_bytes;
}

void Activity::hold_besides(int64_t bytes) noexcept {
  slot_->besides_bytes.store(bytes, std::memory_order_relaxed);
}

void Activity::keep_run_in(std::string_view folder) noexcept {
  if (folder.size() > ActivitySlot::kMostFolderBytes) return;
  slot_->folder_bytes.store(0, std::memory_order_relaxed);
  std::memcpy(slot_->folder, folder.data(), folder.size());
  slot_->folder_bytes.store(static_cast<uint32_t>(folder.size()), std::memory_order_release);
}

JobPhase Activity::phase() const noexcept {
  return phase_in(*slot_);
}

std::string Activity::last() const {
  return load_text(*slot_).text;
}

ActivityScope::ActivityScope() : outer_(thread_activity) {
  thread_activity = &own_;
}

ActivityScope::~ActivityScope() {
  thread_activity = outer_;
}

}  // namespace orthant::launch
